"""Steps on what samples add while no gate flips: the same masks as by running the network, in fewer passes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import bise
from bise import BiseWarning, ExtractConfig, standing
from bise.data import Labelled
from conftest import toy, toy_model, trained

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
CONFIG = ExtractConfig.paper(upsilon=6, head_epochs=1, batch_size=50, early_stop=False, precision="fp32")


class Pictures(nn.Module):
    """Two convolutions and a linear layer on [n, 2, 2, 2]."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 9, 1), nn.Conv2d(9, 12, 2, padding=1)
        self.norm, self.fc = nn.BatchNorm2d(12), nn.Linear(12, 3)

    def forward(self, x):
        h = torch.relu(self.norm(self.second(torch.relu(self.first(x.view(-1, 2, 2, 2))))))
        return self.fc(h.mean((2, 3)))


class SequenceFirst(nn.Module):
    """Its units lie behind the samples' dimension, which is not the first one."""

    def __init__(self):
        super().__init__()
        self.first, self.relu, self.fc = nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 3)

    def forward(self, x):
        steps = x.view(-1, 4, 2).transpose(0, 1)
        return self.fc(self.relu(self.first(steps)).mean(0))


@pytest.fixture(scope="module")
def data():
    return {"train": toy(900), "val": toy(rho=1 / 3, seed=1)}


def made(kind, data, device):
    torch.manual_seed(0)
    return trained(kind(), data["train"]).to(device)


@pytest.fixture
def watched(monkeypatch):
    """Switched on for CPUs too; gives the epochs: True where one stood, False where a gate flipped in it."""
    seen = []
    run = standing.Standing._steps

    def noted(self, order):
        figures = run(self, order)
        seen.append(figures is not None)
        return figures

    monkeypatch.setattr(standing, "DEVICES", ("cpu", "cuda"))
    monkeypatch.setattr(standing.Standing, "_steps", noted)
    return seen


def plain(monkeypatch, *arguments, **options):
    with monkeypatch.context() as patch:
        patch.setattr(standing, "DEVICES", ())
        return bise.extract(*arguments, **options)


def assert_alike(found, expected):
    for part, other in ((found, expected), (found.last, expected.last)):
        for name in other.masks:
            assert torch.equal(part.masks[name], other.masks[name])
            torch.testing.assert_close(part.scores[name], other.scores[name], rtol=1e-3, atol=1e-5)
    for row, other in zip(found.record["history"], expected.record["history"], strict=True):
        assert (row["epoch"], row["tau"], row["flips"], row["open"]) == tuple(
            other[key] for key in ("epoch", "tau", "flips", "open")
        )
        for key in ("loss", "cross_entropy", "mutual_information", "head_loss"):
            assert row[key] == pytest.approx(other[key], rel=2e-3, abs=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [toy_model, Pictures])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mi": "none"},
        {"weights": "none", "mi": "batch", "head_lr": 0.01},
        {"collapse": "prevent"},
        {"margin": 0.25},
        {"smoothing": 0.1},
    ],
)
def test_it_learns_what_running_the_network_learns(data, watched, monkeypatch, device, kind, changes):
    model, config = made(kind, data, device), replace(CONFIG, **changes)
    monkeypatch.setattr(standing, "JACOBIAN", 0.0)  # so that it is tried with Jacobians of all samples too
    how = {"val": data["val"], "config": config}
    expected = plain(monkeypatch, model, data["train"], **how)
    assert not watched
    assert_alike(bise.extract(model, data["train"], **how), expected)
    assert sum(watched) > (10 if device == "cpu" else 5)  # which gates flip late is a matter of rounding


def test_an_epoch_in_which_a_gate_flips_is_done_again(data, watched, monkeypatch):
    model = made(Pictures, data, "cpu")
    monkeypatch.setattr(standing, "QUIET", 0)
    expected = plain(monkeypatch, model, data["train"], config=CONFIG)
    assert_alike(bise.extract(model, data["train"], config=CONFIG), expected)
    assert watched[0] is False
    assert True in watched


def test_after_a_flip_it_waits_longer(data, watched, monkeypatch):
    """A mask that never rests costs a few trials, not one an epoch."""
    model = made(Pictures, data, "cpu")
    monkeypatch.setattr(standing, "QUIET", 1)
    config = replace(CONFIG, lr=1.0, momentum=0.0, tau_min=0.3, upsilon=40)
    sub = bise.extract(model, data["train"], config=config)
    restless = sum(row["flips"] > 0 for row in sub.record["history"])
    assert restless > 40
    assert watched.count(False) < 7


def test_passes_are_saved(data, watched, monkeypatch):
    model = made(Pictures, data, "cpu")
    calls, fills = [], []
    fill = standing.Standing._fill
    monkeypatch.setattr(standing.Standing, "_fill", lambda self: (fills.append(len(self.measured)), fill(self)))
    model.fc.register_forward_hook(lambda *_: calls.append(len(_[2])))
    plain(monkeypatch, model, data["train"], config=CONFIG)
    before, calls[:] = sum(calls), []
    bise.extract(model, data["train"], config=CONFIG)
    trial = 2 * 4  # four samples, with gates for each and for all
    assert sum(calls) == before - 900 * sum(watched) + sum(900 + measured for measured in fills) + trial
    assert sum(watched) > 10 * len(fills)


def test_where_samples_lie_elsewhere_the_network_is_run(data, watched, monkeypatch):
    model = made(SequenceFirst, data, "cpu")
    expected = plain(monkeypatch, model, data["train"], config=CONFIG)
    found = bise.extract(model, data["train"], config=CONFIG)
    assert not watched
    assert all(torch.equal(found.scores[name], expected.scores[name]) for name in expected.scores)


@pytest.mark.parametrize(
    "changes",
    [
        {"cache": False},
        {"memory": 150_000},
        {"bn": "statistics"},
        {"sampler": "balanced", "weights": "none", "steps": 2},
    ],
)
def test_it_is_left_where_it_would_not_be_the_same_or_not_pay(data, watched, changes):
    bise.extract(made(Pictures, data, "cpu"), data["train"], config=replace(CONFIG, **changes))
    assert not watched


def test_data_that_change_are_run(data, watched):
    class Noisy(torch.utils.data.Dataset):
        y, b = data["train"].y, data["train"].b

        def __len__(self):
            return len(self.y)

        def __getitem__(self, index):
            x, y, b = data["train"][index]
            return x + torch.randn(8) / 100, y, b

    bise.extract(made(Pictures, data, "cpu"), Noisy(), config=replace(CONFIG, tau_min=0.1))
    assert not watched


def test_on_a_cpu_the_network_is_run(data, monkeypatch):
    monkeypatch.setattr(standing.Standing, "run", lambda *_: pytest.fail("its sums are not promised on a CPU"))
    bise.extract(made(Pictures, data, "cpu"), data["train"], config=CONFIG)


def test_a_device_without_room_runs_the_network_and_says_so(data, watched, monkeypatch):
    model = made(Pictures, data, "cpu")
    expected = plain(monkeypatch, model, data["train"], config=CONFIG)

    def full(self):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(standing.Standing, "_fill", full)
    with pytest.warns(BiseWarning, match="no room for each sample's share of the gradient"):
        found = bise.extract(model, data["train"], config=CONFIG)
    assert all(torch.equal(found.scores[name], expected.scores[name]) for name in expected.scores)


class Stop(Exception):
    pass


def test_a_stopped_run_goes_on_alike(data, watched, tmp_path):
    model = made(Pictures, data, "cpu")
    whole = bise.extract(model, data["train"], config=CONFIG)
    first_standing = next(
        i for i in range(2, 60) if not any(row["flips"] for row in whole.record["history"][i - 2 : i])
    )
    for rows in (first_standing - 1, first_standing, first_standing + 2):
        path, logged = tmp_path / f"{rows}.safetensors", []

        def log(row, logged=logged, rows=rows):
            logged.append(row)
            if len(logged) == rows:
                raise Stop

        with pytest.raises(Stop):
            bise.extract(model, data["train"], config=CONFIG, checkpoint=path, checkpoint_every=0, log=log)
        again = bise.extract(model, data["train"], config=CONFIG, checkpoint=path)
        assert all(torch.equal(again.scores[name], whole.scores[name]) for name in whole.scores)
        assert again.record["history"] == whole.record["history"]


def test_several_biases(watched, monkeypatch):
    data = toy(900)
    both = Labelled(
        TensorDataset(*data.dataset.tensors), y=data.y, b=torch.stack([data.b, data.b.flip(0)], 1), bias_classes=[3, 3]
    )
    model = made(toy_model, {"train": data}, "cpu")
    config = replace(CONFIG, weights="groups")
    expected = plain(monkeypatch, model, both, config=config)
    assert_alike(bise.extract(model, both, config=config), expected)
    assert True in watched
