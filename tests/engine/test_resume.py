"""A run that was stopped goes on as if nothing had happened: bit for bit the same scores, masks, weights, history."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import bise
from bise import BadInput
from bise.config import ExtractConfig, TrainConfig
from conftest import toy, toy_model, trained


class Stop(Exception):
    """Stands in for a kill: raised from the log, after a row was written."""


def stopped_after(rows):
    seen = []

    def log(row):
        seen.append(row)
        if len(seen) == rows:
            raise Stop

    return log


@pytest.fixture(scope="module")
def data():
    return {"train": toy(), "val": toy(rho=1 / 3, seed=1)}


@pytest.fixture(scope="module")
def model(data):
    return trained(toy_model(), data["train"])


CONFIGS = {
    "balanced": ExtractConfig(upsilon=3, steps=5, head_epochs=2, tau_min=0.2, early_stop=False),
    "settling": ExtractConfig(upsilon=3, steps=5, head_epochs=2, tau_min=1e-3),
    "paper": ExtractConfig.paper(upsilon=2, head_epochs=1, tau_min=0.2, collapse="prevent"),
    "all of BatchNorm": ExtractConfig(upsilon=2, steps=5, head_epochs=2, tau_min=0.2, bn="all"),
}


def without_times(record):
    return {key: value for key, value in record.items() if key not in ("seconds", "phases")}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("rows", [1, 3, 4])
def test_extraction_goes_on(model, data, tmp_path, name, rows):
    config = CONFIGS[name]
    if config.bn != "frozen":
        *layers, last = toy_model()
        model = trained(nn.Sequential(*layers, nn.BatchNorm1d(last.in_features), last), data["train"])
    whole = bise.extract(model, data["train"], val=data["val"], config=config)
    path = tmp_path / "extract.safetensors"
    with pytest.raises(Stop):
        bise.extract(
            model, data["train"], val=data["val"], config=config, checkpoint=path, checkpoint_every=0,
            log=stopped_after(rows),
        )  # fmt: skip
    logged = []
    again = bise.extract(
        model, data["train"], val=data["val"], config=config, checkpoint=path, checkpoint_every=0, log=logged.append
    )
    assert without_times(again.record) == without_times(whole.record)
    assert logged == whole.record["history"]
    for name in whole.scores:
        assert torch.equal(again.scores[name], whole.scores[name])
        assert torch.equal(again.last.scores[name], whole.last.scores[name])
    assert bise.fingerprint(again.bare()) == bise.fingerprint(whole.bare())


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_training_goes_on(model, data, tmp_path, optimizer):
    net = nn.Sequential(*model, nn.Dropout(0.3))
    config = TrainConfig(epochs=4, optimizer=optimizer, lr=0.01, schedule="cosine")
    whole = bise.finetune(net, data["train"], val=data["val"], config=config)
    path = tmp_path / "finetune.safetensors"
    with pytest.raises(Stop):
        bise.finetune(
            net, data["train"], val=data["val"], config=config, checkpoint=path, checkpoint_every=0,
            log=stopped_after(3),
        )  # fmt: skip
    before = torch.get_rng_state()
    again = bise.finetune(net, data["train"], val=data["val"], config=config, checkpoint=path, checkpoint_every=0)
    assert torch.equal(torch.get_rng_state(), before)
    assert again.record["history"] == whole.record["history"]
    assert bise.fingerprint(again.bare()) == bise.fingerprint(whole.bare())


def test_the_checkpoint_of_another_run_is_refused(model, data, tmp_path):
    path = tmp_path / "extract.safetensors"
    quick = {"upsilon": 1, "steps": 2, "head_epochs": 1, "tau_min": 0.4}
    bise.extract(model, data["train"], config=ExtractConfig(**quick), checkpoint=path, checkpoint_every=0)
    with pytest.raises(BadInput, match="another configuration, model or data"):
        bise.extract(model, data["train"], config=ExtractConfig(**quick, gamma=2.0), checkpoint=path)
    with pytest.raises(BadInput, match="another configuration, model or data"):
        bise.extract(model, toy(seed=3), config=ExtractConfig(**quick), checkpoint=path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BadInput, match="no readable checkpoint"):
        bise.extract(model, data["train"], config=ExtractConfig(**quick), checkpoint=path)
