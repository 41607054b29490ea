"""Small real runs of which each ends otherwise: what the page has to say of them is known beforehand."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

from bise.base.errors import BiseWarning
from bise.data import Labelled, LabelNames
from bise.jobs.extract import extract_job
from bise.jobs.finetune import finetune_job
from conftest import toy, toy_model, trained

NAMES = LabelNames(
    target="shape", biases=("shade",), classes=("cross", "dot"), bias_classes=(("dark", "light"),)
)  # fmt: skip
THREE = LabelNames(
    target="shape", biases=("shade",), classes=("cross", "dot", "ring"), bias_classes=(("dark", "grey", "light"),)
)
HARSH = {"gamma": 1000.0, "lr": 1.0, "mi": "batch", "sampler": "natural", "validate_every": 1}
"""So much against the bias that units are closed that the target needs."""


def nothing(label, done, total):
    pass


def run(model, splits, out: Path, changes: dict, *, finetuned: dict | None = None) -> Path:
    """A run folder, extracted by few steps, and finetuned if wanted."""
    few = {"steps": 10, "upsilon": 2, "batch_size": 60, "head_epochs": 2, "head_steps": 5, "seed": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BiseWarning)  # the page is looked at here
        extract_job(
            model,
            splits,
            out,
            preset="balanced",
            changes={**few, **changes},
            bottleneck=None,
            sites=None,
            source={"model": "mine:net", "weights": "net.safetensors", "data": "mine:splits"},
            progress=nothing,
        )
    if finetuned is not None:
        finetune_job(model, splits, out, changes=finetuned, progress=nothing)
    return out


def split_of(rho: dict[str, float], seen: str, n: int = 600):
    """Splits of two classes whose inputs give away y or b (`seen`), and nothing else."""

    def splits(split: str) -> Labelled:
        y = torch.arange(n) % 2
        # whole classes in each part, so that both have aligned and conflicting samples
        b = torch.where(torch.arange(n) // 2 % 10 < 10 * rho[split], y, 1 - y)
        x = nn.functional.one_hot(y if seen == "y" else b, 2).float() * 9
        return Labelled(TensorDataset(x), y=y, b=b, names=NAMES, aligned=[0, 1])

    return splits


RHO = {"train": 0.9, "val": 0.5, "test": 0.5}


def by_hand() -> nn.Module:
    """Answers which of two inputs is the larger."""
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(3, 2)), net[0].bias.zero_()
        net[2].weight.copy_(torch.eye(2, 3)), net[2].bias.zero_()
    return net.eval()


def toys(split: str, scale: float = 1.0) -> Labelled:
    """Three classes; the inputs as they are, or not scaled as in training."""
    seeds = {"train": (0, 0.95), "val": (1, 1 / 3), "test": (2, 1 / 3)}
    seed, rho = seeds[split]
    data = toy(rho=rho, seed=seed)
    return Labelled(TensorDataset(data.tensors[0] * scale), y=data.y, b=data.b, names=THREE, aligned=[0, 1, 2])


def at_chance(out: Path) -> Path:
    """A good model that gets its inputs so small that only its constant terms count."""
    return run(trained(toy_model(), toy()), lambda split: toys(split, 1e-4), out, {})


def nothing_closed(out: Path) -> Path:
    return run(by_hand(), split_of(RHO, "y"), out, HARSH)


def constant_refused(out: Path) -> Path:
    """The model goes by the bias; a mask that answers always the same does as well on val."""
    return run(by_hand(), split_of(RHO, "b"), out, HARSH)


def constant_mask(out: Path) -> Path:
    """Without a model to compete with, all that is found answers always the same."""
    return run(by_hand(), split_of(RHO, "y"), out, HARSH | {"baseline": False})


def gain(out: Path) -> Path:
    """The subnetwork is right more often where the bias misleads; finetuned, it stays ahead of the whole model."""
    return run(trained(toy_model(), toy()), toys, out, {}, finetuned={"epochs": 1, "lr": 1e-3})


def dense_ahead(out: Path) -> Path:
    """Finetuned for long, the whole model does as well."""
    return run(trained(toy_model(), toy()), toys, out, {}, finetuned={"epochs": 20, "lr": 0.1})


CASES = {
    "at_chance": at_chance,
    "nothing_closed": nothing_closed,
    "constant_refused": constant_refused,
    "constant_mask": constant_mask,
    "gain": gain,
    "dense_ahead": dense_ahead,
}
