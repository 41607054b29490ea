"""Every listed method on a tiny set: it trains, changes what it says, by seed and after a stop alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from bise.data import Labelled
from bise.data.core.identity import data_sha256
from bise.engine.checkpoints import Checkpoint
from bise.engine.config import TrainConfig
from bise.methods.rivals.listed import METHODS
from bise.methods.shared.interface import Pair, Setting, Tally
from bise.network.subnetwork import Subnetwork
from bise.network.twin import fingerprint, named_tensors
from conftest import trained

SHORT = TrainConfig(epochs=2, batch_size=32, lr=0.05)


def pictures(n: int = 200, *, rho: float = 0.8, seed: int = 0, bright: float = 2.0) -> Labelled:
    """8 × 8 pictures: y is where the bright bar is, b the channel that is lit."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (n,), generator=generator)
    b = torch.where(torch.rand(n, generator=generator) < rho, y, 1 - y)
    y[:8], b[:8] = torch.tensor([0, 0, 1, 1] * 2), torch.tensor([0, 1] * 4)
    x = 0.3 * torch.randn(n, 3, 8, 8, generator=generator)
    x[torch.arange(n), b] += 1
    x[y == 0, 2, :2] += bright
    x[y == 1, 2, :, :2] += bright
    return Labelled(TensorDataset(x), y=y, b=b, classes=2, bias_classes=2)


def net(which: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7 + which)
        return nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(24, 10),
            nn.ReLU(),
            nn.Linear(10, 2),
        )


TRAIN, VAL = pictures(), pictures(80, rho=0.5, seed=1)
VANILLA = trained(net(), TRAIN, epochs=3)


def config_of(method):
    """The method's defaults, with a search of a few steps where there is one."""
    if method.name == "eiil":
        return replace(method.config, steps=50, lr=0.1)
    if hasattr(method.config, "extract"):
        short = replace(
            method.config.extract, upsilon=1, steps=2, head_epochs=1, head_steps=2, batch_size=32, tau_min=0.1
        )
        return replace(method.config, extract=short)
    return method.config


def setting(seed: int = 0, states: Path | None = None, **changes) -> Setting:
    every = 0.0 if states is not None else 60.0
    return Setting(
        train=SHORT,
        finetune=replace(SHORT, sampler="balanced"),
        seed=seed,
        states=states,
        every=every,
        tally=Tally(),
        **changes,
    )


def run(method, where: Setting) -> nn.Module:
    start = {"vanilla": VANILLA, "scratch": net, "teacher": Pair(teacher=VANILLA, student=net)}[method.starts]
    return method.run(start, TRAIN, VAL, config_of(method), where)


def tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in named_tensors(model).items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class Stopped(Exception):
    """In place of a kill."""


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.filterwarnings("ignore::bise.BiseWarning")  # on a set this small much is doubtful
def test_a_listed_method(name, tmp_path, monkeypatch):
    method = METHODS[name]
    before, data = fingerprint(VANILLA), [data_sha256(TRAIN), data_sha256(VAL)]
    random = torch.get_rng_state()
    whole = setting()
    model = run(method, whole)
    # nothing that it was given is changed, nor the caller's random numbers
    assert fingerprint(VANILLA) == before
    assert [data_sha256(TRAIN), data_sha256(VAL)] == data
    assert torch.equal(torch.get_rng_state(), random)
    assert not model.training
    with torch.no_grad():
        logits = model(TRAIN.tensors[0][:5])
    assert logits.shape == (5, 2)
    assert logits.isfinite().all()
    check_changes(method, model)
    assert (whole.tally.samples > 0) == (method.changes != "last layer" or name == "bise-refit")
    # a seed gives the same bits, and another one others
    found = tensors(model)
    again = run(method, setting())
    assert same(found, tensors(again))
    if method.starts != "vanilla":
        assert not same(found, tensors(run(method, setting(seed=1))))
    check_resumes(method, found, tmp_path, monkeypatch)


def check_changes(method, model: nn.Module) -> None:
    """What it says that it changes, and nothing else of the vanilla model; what it trains anew has moved wholly."""
    plain = model.bare() if isinstance(model, Subnetwork) else model
    own, now = tensors(VANILLA), tensors(plain)
    changed = {key for key in own if key not in now or not torch.equal(own[key], now[key])}
    if method.changes == "nothing":
        assert not changed
        assert any(score.any() for score in model.scores.values())
    elif method.changes == "last layer":
        assert changed <= {"7.weight", "7.bias"}
    elif method.changes == "weights":
        assert {"0.weight", "5.weight", "7.weight"} <= changed
        assert method.name != "ffw" or changed == {"0.weight", "5.weight", "7.weight"}
    else:
        begun = dict(net().named_parameters())
        # encoders and students that end before it
        last = {"7.weight", "7.bias"} if method.name in ("dfa", "simkd", "dett") else set()
        names = {key: f"own.{key}" if method.name == "dfa" else key for key in begun.keys() - last}
        for key, name in names.items():
            assert not torch.equal(now[name], begun[key]), f"{name} was not trained"


def check_resumes(method, found, tmp_path, monkeypatch) -> None:
    """Stopped behind each of its first checkpoints, it ends with the same bits."""
    saved = Checkpoint.save
    for stop in (2, 9):
        count = 0

        def save(self, *args, stop=stop):
            nonlocal count
            saved(self, *args)
            count += 1
            if count == stop:
                raise Stopped

        states = tmp_path / str(stop)
        monkeypatch.setattr(Checkpoint, "save", save)
        try:
            model = run(method, setting(states=states))
        except Stopped:
            monkeypatch.setattr(Checkpoint, "save", saved)
            model = run(method, setting(states=states))
        monkeypatch.setattr(Checkpoint, "save", saved)
        assert same(found, tensors(model)), f"stopped behind checkpoint {stop}"
