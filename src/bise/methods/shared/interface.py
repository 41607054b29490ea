"""What a method of a comparison is, and what every one of them is given alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.checking import check_choice
from bise.base.errors import BadInput
from bise.data.core.contract import Progress
from bise.engine.checkpoints import EVERY, Checkpoint
from bise.engine.config import TrainConfig

LABELS = {"b": "bias labels of train", "val": "val with bias labels, to fit on"}
"""What a method can need beside (x, y) of train, and what it is called."""
STARTS = ("vanilla", "scratch", "teacher")
CHANGES = ("nothing", "last layer", "weights", "everything")


@dataclass(kw_only=True)
class Tally:
    """What a method's training took."""

    samples: int = 0
    """Samples that passed a network with a gradient, each as often as it did."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all methods of a comparison share: budgets, the selection of epochs, the seed, and where states are kept."""

    train: TrainConfig
    """How a model is trained anew."""
    finetune: TrainConfig
    """How trained weights are trained on."""
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    selects: bool = True
    """Whether epochs are selected on val; else the last one is taken."""
    selection: str = "unbiased"
    """The figure on val that they are selected by."""
    states: Path | None = None
    """A folder for checkpoints."""
    key: str = ""
    """Whose checkpoints these are."""
    every: float = EVERY
    progress: Progress | None = None
    tally: Tally = field(default_factory=Tally)

    def judge(self, val: Any) -> Any:
        """What epochs are selected on: val, or nothing."""
        return val if self.selects else None

    def path(self, part: str) -> Path | None:
        """Where a part of the method keeps its state."""
        return None if self.states is None else self.states / f"{part}.safetensors"

    def checkpoint(self, part: str) -> Checkpoint | None:
        """A part's checkpoint."""
        path = self.path(part)
        return None if path is None else Checkpoint(path, key=f"{self.key}/{part}", every=self.every)


Fresh = Callable[[int], nn.Module]
"""A function that gives a fresh model, with weights drawn by the seed and by which network of the method it is: 0, or 1
for a second one."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """What a distillation starts from."""

    teacher: nn.Module
    """The vanilla model."""
    student: Fresh
    """Of the vanilla model's architecture, or of another one that a recipe names."""


Start = nn.Module | Fresh | Pair
"""The vanilla model, a function that gives a fresh one of its architecture, or a teacher and its student."""
Run = Callable[..., nn.Module]
"""(start, train, val, config, setting) -> model; neither the start nor the data are changed."""
Guess = Callable[..., Tensor]
"""(start, train, config, setting) -> b̃ [N]: y of a sample that the method takes for aligned, else another class."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to a less biased model, as `bise bench` runs it."""

    name: str
    run: Run
    config: Any
    """Its own settings at their defaults, a frozen dataclass."""
    starts: str = "scratch"
    """From the "vanilla" model's weights, from "scratch", or from a "teacher", the vanilla model, and its student."""
    needs: tuple[str, ...] = ()
    """Of `LABELS`."""
    changes: str = "everything"
    """Of the weights it started from: "nothing", the "last layer", the "weights" that are left, or "everything"."""
    tried: tuple[Mapping[str, Any], ...] = ()
    """Other settings, in the order in which a search on val tries them after the defaults: fields of the
    configuration, fields of an extraction in it as "extract.gamma", or "rate", a factor on the budgets' rates."""

    guess: Guess | None = None
    """How it tells conflicting samples without bias labels, where it does: a source for `bise.pseudo_bias`."""

    def __post_init__(self) -> None:
        check_choice("starts", self.starts, STARTS)
        check_choice("changes", self.changes, CHANGES)
        for need in self.needs:
            check_choice("needs", need, tuple(LABELS))

    def reason_against(self, train: Any, val: Any) -> str | None:
        """Why it can't run on such data, by what it needs; None where it can."""
        if "b" in self.needs and getattr(train, "b", True) is None:
            return f"{self.name} needs {LABELS['b']}, and train has none"
        if "val" in self.needs and val is None:
            return f"{self.name} needs {LABELS['val']}, and there is no val"
        return None


def fresh(start: Start, device: torch.device, which: int = 0) -> nn.Module:
    """A fresh model on the device, from the function that a method from scratch is given; of a pair, its student."""
    start = start.student if isinstance(start, Pair) else start
    if isinstance(start, nn.Module):
        raise BadInput(
            f"start is a {type(start).__name__}; a method that trains anew takes a function that returns a fresh model"
        )
    model = start(which)
    if not isinstance(model, nn.Module):
        raise BadInput(f"start returned {type(model).__name__}; it should return a fresh torch module")
    return model.to(device)


def vanilla(start: Start) -> nn.Module:
    """The trained model that a method goes on from; of a pair, the teacher."""
    start = start.teacher if isinstance(start, Pair) else start
    if not isinstance(start, nn.Module):
        raise BadInput(f"start is {start!r}; a method that goes on from a trained model takes that model")
    return start
