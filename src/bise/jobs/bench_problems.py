"""What methods are compared on: data, an architecture, a vanilla model and budgets, for each seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput, NoSplit
from bise.data.core.cells import Cells
from bise.data.core.content import Content
from bise.data.core.contract import Labelled, labels
from bise.data.core.identity import hashes, identities
from bise.data.core.subset import subset, taken
from bise.data.sets.digits import coloured_digits
from bise.engine.config import TrainConfig
from bise.jobs.data_sources import rho_of
from bise.jobs.recipes import RECIPES, recipe, splits, start, student
from bise.network.architectures.small import digit_net
from bise.network.twin import duplicate, fingerprint, named_tensors

SECOND = 1_000_003
"""What is added to the seed for the weights of a method's second network."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Data and a model, and how long every method may train."""

    name: str
    splits: Callable[[int], Mapping[str, Any]]
    """seed -> {"train", "val", "test"}; val may be None."""
    make: Callable[[int], nn.Module]
    """seed -> a fresh model."""
    train: TrainConfig
    finetune: TrainConfig
    vanilla: nn.Module | None = None
    """Weights that are there already; else a model is trained by `train`."""
    search: Mapping[str, Any] = field(default_factory=dict)
    """What the problem changes in the default extraction."""
    known: Callable[[], Mapping[str, Any]] | None = None
    """What tells data and a model of one's own from others: hashes, by which a run knows what it was begun with."""
    student: Callable[[int], nn.Module] | None = None
    """seed -> a fresh student of a distillation, where it is of another architecture."""

    def starts(self, seed: int) -> Callable[[int], nn.Module]:
        """A function that gives a fresh model: the method's first network, or its second one."""
        return lambda which: self.make(seed + SECOND * which)

    def students(self, seed: int) -> Callable[[int], nn.Module]:
        """The same for the student of a distillation."""
        return lambda which: (self.student or self.make)(seed + SECOND * which)


def problems_named(
    names: str, *, root: Path | None = None, limit: int | None = None, epochs: int | None = None
) -> list[Problem]:
    """demo and recipes by their names with commas between them, each with its own ρ or name:ρ."""
    found = []
    for name in dict.fromkeys(one.strip() for one in names.split(",") if one.strip()):
        base, _, rho = name.partition(":")
        if base == "demo":
            found.append(_demo(name, rho_of(rho or None), limit))
        elif base in RECIPES:
            found.append(_by_recipe(name, base, rho_of(rho.replace("/", ",") or None), root, limit))
        else:
            raise BadInput(f"data set {name!r} is unknown; use some of demo, {', '.join(RECIPES)}, each with :ρ or not")
    if not found:
        raise BadInput(f"{names!r} names no data set; use some of demo, {', '.join(RECIPES)}")
    return [one if epochs is None else replace(one, train=shortened(one.train, epochs)) for one in found]


def _demo(name: str, rho: Any, limit: int | None) -> Problem:
    def parts(seed: int) -> dict[str, Any]:
        made = coloured_digits(rho=0.97 if rho is None else rho, seed=seed)
        return made if limit is None else {split: subset(data, limit, seed) for split, data in made.items()}

    return Problem(
        name=name,
        splits=parts,
        make=digit_net,
        train=TrainConfig(epochs=6, lr=0.05, schedule="cosine"),
        finetune=TrainConfig.finetuning(epochs=8, lr=0.01, schedule="cosine", jitter=1.0),
    )


def _by_recipe(name: str, base: str, rho: Any, root: Path | None, limit: int | None) -> Problem:
    chosen = recipe(base, rho=rho)

    def parts(seed: int) -> dict[str, Any]:
        how: dict[str, Any] = {"recipe": base, "rho": chosen.rho, "protocol": chosen.protocol, "seed": seed}
        how |= {"root": root, "limit": limit}
        found: dict[str, Any] = {split: splits(split, **how) for split in ("train", "test")}
        try:
            found["val"] = splits("val", **how)
        except NoSplit:
            found["val"] = None
        return found

    return Problem(
        name=name,
        splits=parts,
        make=lambda seed: start(chosen, seed=seed)[0],
        train=replace(chosen.train, precision="auto"),
        finetune=TrainConfig.finetuning(**chosen.finetune_balanced),
        search=dict(chosen.extract_balanced),
        student=None if chosen.student == "same" else lambda seed: student(chosen, seed=seed),
    )


OWN = TrainConfig(epochs=20, optimizer="adam", lr=1e-3, schedule="cosine")
"""How models of one's own are trained, unless one says otherwise."""


def own_problem(
    name: str,
    make: Callable[[], nn.Module],
    parts: Mapping[str, Any],
    *,
    train: TrainConfig = OWN,
    finetune: TrainConfig | None = None,
    vanilla: nn.Module | None = None,
) -> Problem:
    """One's own model and data: `make` returns a fresh model each time, `parts` are the splits."""
    return Problem(
        name=name,
        splits=lambda _: parts,
        make=partial(_drawn, make),
        train=train,
        finetune=finetune or TrainConfig.finetuning(batch_size=train.batch_size, epochs=train.epochs),
        vanilla=vanilla,
        known=lambda: hashes(identities(parts)) | {"model": _told(make)},
    )


def _told(make: Callable[[], nn.Module]) -> str:
    """A hash of what `make` gives under a seed; of its shapes alone, where it draws by other random numbers too."""
    one, other = (_drawn(make, 0) for _ in range(2))
    if (found := fingerprint(one)) == fingerprint(other):
        return found
    return Content()([(name, tuple(tensor.shape)) for name, tensor in named_tensors(one).items()]).hex()


def _drawn(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """What `make` gives under this seed, the caller's random numbers left as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make()
    if not isinstance(model, nn.Module):
        raise BadInput(f"the model's function returned {type(model).__name__}; it should return a torch module")
    return duplicate(model)  # one that gives the same module each time would have it trained again and again


def shortened(config: TrainConfig, epochs: int) -> TrainConfig:
    """The configuration with other epochs, its milestones at the same shares of them."""
    if epochs < 1:
        raise BadInput(f"epochs={epochs} trains nothing; give 1 or more")
    milestones = tuple(sorted({max(1, round(m * epochs / config.epochs)) for m in config.milestones}))
    return replace(config, epochs=epochs, milestones=milestones)


def like_train(val: Any, train: Cells, seed: int) -> Labelled:
    """The largest part of val whose cells have the shares that they have in train: a val that nobody has balanced.

    Cells of train that val lacks are left out.
    """
    cells = labels(val)
    shares = torch.where(cells.counts > 0, _counts(train, cells), 0).double()
    if not shares.any():
        raise BadInput("val and train share no cell of target and bias, so that val can't be drawn like train")
    shares = shares / shares.sum()
    total = float((cells.counts[shares > 0] / shares[shares > 0]).min())
    # sums are rounded and not each cell, else all the small ones would go
    wanted = (shares.cumsum(0) * total + 1e-9).floor().diff(prepend=torch.zeros(1, dtype=torch.float64)).long()
    order = torch.randperm(len(cells), generator=torch.Generator().manual_seed(seed))
    kept = [order[cells.index[order] == cell][: int(n)] for cell, n in enumerate(wanted.tolist()) if n]
    if not kept:
        raise BadInput("val is too small to be drawn like train; give more of it, or select otherwise")
    return taken(_labelled(val, cells), torch.cat(kept))


def _counts(train: Cells, cells: Cells) -> Tensor:
    """How often each of val's cells occurs in train, which may number more labels."""
    if (train.classes, train.bias_classes) == (cells.classes, cells.bias_classes):
        return train.counts
    found = [0] * len(cells.counts)
    numbers = {cells.labels_of(cell): cell for cell in range(len(found))}
    for cell, count in enumerate(train.counts.tolist()):
        if (same := numbers.get(train.labels_of(cell))) is not None:
            found[same] = count
    return torch.tensor(found)


def _labelled(data: Any, cells: Cells) -> Labelled:
    if isinstance(data, Labelled):
        return data
    return Labelled(data, y=cells.y, b=cells.b, classes=cells.classes, bias_classes=cells.bias_classes)
