"""A run that was stopped goes on as if nothing had happened: bit for bit the same scores, masks, weights, history."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import bise
from bise import BadInput
from bise.base.errors import BiseWarning
from bise.data import Labelled
from bise.engine.checkpoints import Checkpoint
from bise.engine.config import TrainConfig
from bise.extraction.config import ExtractConfig
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
    "by progress": ExtractConfig(upsilon=4, steps=5, head_epochs=2, tau_min=0.01, patience=1, early_stop=False),
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
    again = bise.extract(model, data["train"], val=data["val"], config=config, checkpoint=path, log=logged.append)
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


class Noisy:
    """A data set that isn't in memory and draws random numbers of its own."""

    def __init__(self, data):
        self.data, self.y, self.b = data, data.y, data.b

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        x, y, b = self.data[index]
        return x + torch.randn(8) / 10, y, b


def stop_after(monkeypatch, saves):
    """Stop right after so many checkpoints; returns what undoes it."""
    save, seen = Checkpoint.save, []

    def counted(self, tensors, state):
        save(self, tensors, state)
        seen.append("done" in tensors)
        if len(seen) == saves:
            raise Stop

    monkeypatch.setattr(Checkpoint, "save", counted)
    return seen


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("saves", [2, 9])
def test_extraction_goes_on_in_the_middle_of_an_epoch(model, data, tmp_path, monkeypatch, name, saves):
    config = CONFIGS[name]
    whole = bise.extract(model, data["train"], val=data["val"], config=config)
    how = {"val": data["val"], "config": config, "checkpoint": tmp_path / "x.safetensors"}
    with monkeypatch.context() as patch:
        seen = stop_after(patch, saves)
        with pytest.raises(Stop):
            bise.extract(model, data["train"], **how, checkpoint_every=0)
    assert seen[-1], "stopped in the middle of an epoch"
    again = bise.extract(model, data["train"], **how)
    assert without_times(again.record) == without_times(whole.record)
    for site in whole.scores:
        assert torch.equal(again.scores[site], whole.scores[site])
        assert torch.equal(again.last.scores[site], whole.last.scores[site])


def test_a_collapse_after_a_stop_goes_back_to_the_same_mask(data, tmp_path, monkeypatch):
    model = trained(toy_model(), data["train"])
    with torch.no_grad():
        model[-1].weight.mul_(-20)  # all units hurt, so they close
    config = ExtractConfig.paper(lr=0.5, upsilon=2, head_epochs=1)
    how = {"config": config, "checkpoint": tmp_path / "x.safetensors", "checkpoint_every": 0}
    with monkeypatch.context() as patch:
        seen = stop_after(patch, -1)
        with pytest.warns(BiseWarning, match="closed wholly in epoch"):
            whole = bise.extract(model, data["train"], **how)
    assert seen[-1], "in the middle of the epoch in which it collapses"
    for file in tmp_path.iterdir():
        file.unlink()
    with monkeypatch.context() as patch:
        stop_after(patch, len(seen))
        with pytest.raises(Stop):
            bise.extract(model, data["train"], **how)
    with pytest.warns(BiseWarning, match="closed wholly in epoch"):
        again = bise.extract(model, data["train"], **how)
    assert without_times(again.record) == without_times(whole.record)
    assert all(torch.equal(again.scores[site], whole.scores[site]) for site in whole.scores)


@pytest.mark.parametrize("saves", [1, 8, 15])
def test_training_goes_on_in_the_middle_of_an_epoch(model, data, tmp_path, monkeypatch, saves):
    net, train = nn.Sequential(*model, nn.Dropout(0.3)), Noisy(data["train"])
    how = {"val": data["val"], "config": TrainConfig.finetuning(epochs=3, lr=0.01, schedule="linear")}
    whole = bise.finetune(net, train, **how)
    how |= {"checkpoint": tmp_path / "x.safetensors", "checkpoint_every": 0}
    with monkeypatch.context() as patch:
        seen = stop_after(patch, saves)
        with pytest.raises(Stop):
            bise.finetune(net, train, **how)
    assert seen[-1], "stopped in the middle of an epoch"
    again = bise.finetune(net, train, **how)
    assert again.record["history"] == whole.record["history"]
    assert bise.fingerprint(again.bare()) == bise.fingerprint(whole.bare())
    done = bise.finetune(net, train, **how)  # from the result, without a step
    assert done.record["history"] == whole.record["history"]
    assert bise.fingerprint(done.bare()) == bise.fingerprint(whole.bare())


@pytest.mark.parametrize("damage", [lambda raw: raw[:-200], lambda raw: raw[:-60] + bytes(60), lambda raw: b""])
def test_the_one_before_a_damaged_checkpoint_serves(model, data, tmp_path, monkeypatch, damage):
    config, path = CONFIGS["balanced"], tmp_path / "x.safetensors"
    whole = bise.extract(model, data["train"], config=config)
    with monkeypatch.context() as patch:
        stop_after(patch, 5)
        with pytest.raises(Stop):
            bise.extract(model, data["train"], config=config, checkpoint=path, checkpoint_every=0)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(BiseWarning, match="no readable checkpoint .* goes on from the one before it"):
        again = bise.extract(model, data["train"], config=config, checkpoint=path)
    assert all(torch.equal(again.scores[site], whole.scores[site]) for site in whole.scores)


def test_the_checkpoint_of_another_run_is_refused(model, data, tmp_path):
    path = tmp_path / "extract.safetensors"
    quick = {"upsilon": 1, "steps": 2, "head_epochs": 1, "tau_min": 0.4}
    bise.extract(model, data["train"], config=ExtractConfig(**quick), checkpoint=path, checkpoint_every=0)
    with pytest.raises(BadInput, match="another configuration, model or data"):
        bise.extract(model, data["train"], config=ExtractConfig(**quick, gamma=2.0), checkpoint=path)
    with pytest.raises(BadInput, match="another configuration, model or data"):
        bise.extract(model, toy(seed=3), config=ExtractConfig(**quick), checkpoint=path)
    train = data["train"]
    other = Labelled(TensorDataset(train.dataset.tensors[0] + 1), y=train.y, b=train.b)
    with pytest.raises(BadInput, match="another configuration, model or data"):
        bise.extract(model, other, config=ExtractConfig(**quick), checkpoint=path)
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(BadInput, match="no readable checkpoint"):
        bise.extract(model, data["train"], config=ExtractConfig(**quick), checkpoint=path)


def test_the_checkpoint_of_another_validation_set_is_refused(model, data, tmp_path):
    path = tmp_path / "extract.safetensors"
    config = ExtractConfig(upsilon=1, steps=2, head_epochs=1, tau_min=0.4)
    val = data["val"]
    bise.extract(model, data["train"], val=val, config=config, checkpoint=path, checkpoint_every=0)
    moved = Labelled(val.dataset, y=val.y.roll(1), b=val.b)
    with pytest.raises(BadInput, match="another configuration, model or data"):
        bise.extract(model, data["train"], val=moved, config=config, checkpoint=path)
