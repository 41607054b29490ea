"""How weights are trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bise.base.checking import (
    check_at_least_zero,
    check_choice,
    check_momentum,
    check_positive,
    check_whole,
)
from bise.base.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How weights are trained: from scratch, or in a subnetwork whose mask stays. The defaults suit finetuning."""

    epochs: int = 20
    batch_size: int = 100
    steps: int | None = None
    """Steps an epoch; None is one pass over the data, or as many draws."""
    optimizer: str = "sgd"
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: str = "constant"
    """"constant", "cosine", "linear" to 0, or "steps": divided by 10 at each of `milestones`; set once an epoch."""
    milestones: tuple[int, ...] = ()
    sampler: str = "natural"
    balance: str = "auto"
    weights: str = "none"
    margin: float = 0.0
    """α: as in extraction; 1 on natural passes is logit adjustment by p(y | b), which needs no weights."""
    jitter: float = 0.0
    """Turn, stretch, slant and shift pictures at random: by up to 15 degrees, 15 %, a tenth and a fourteenth at 1."""
    selection: str = "unbiased"
    """What the best epoch maximises on val."""
    precision: str = "auto"
    """Format of forward and backward passes: "fp32", "bf16", or "auto", bf16 on a GPU that has it."""
    graphs: bool = True
    """On a GPU, record a step once and replay it."""
    compile: bool = False
    """On a GPU, let torch.compile fuse what it can, for runs of minutes: it takes ten seconds and a C compiler."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, ("sgd", "adam", "adamw"))
        check_choice("schedule", self.schedule, ("constant", "cosine", "linear", "steps"))
        check_choice("sampler", self.sampler, ("natural", "balanced"))
        check_choice("balance", self.balance, ("auto", "cells", "alignment"))
        check_choice("weights", self.weights, ("groups", "paper", "none"))
        check_choice("selection", self.selection, ("unbiased", "worst_group", "accuracy"))
        check_choice("precision", self.precision, ("auto", "fp32", "bf16"))
        check_whole(epochs=self.epochs, batch_size=self.batch_size, steps=self.steps, seed=self.seed)
        check_positive(epochs=self.epochs, batch_size=self.batch_size, steps=self.steps, lr=self.lr)
        check_at_least_zero(weight_decay=self.weight_decay, margin=self.margin, jitter=self.jitter)
        check_momentum(momentum=self.momentum)
        if self.sampler == "balanced" and self.weights != "none":
            raise BadInput(
                f'weights={self.weights!r} beside sampler="balanced" would count small groups twice;'
                ' use weights="none", or sampler="natural"'
            )

    @classmethod
    def finetuning(cls, **changes: Any) -> TrainConfig:
        """Cells drawn evenly, as in extraction's default."""
        return cls(**({"sampler": "balanced"} | changes))

    @classmethod
    def paper(cls, **changes: Any) -> TrainConfig:
        """The paper's finetuning on BiasedMNIST: natural passes, its weights, 50 epochs of SGD at 1e-3, in fp32."""
        letter: dict[str, Any] = {"weights": "paper", "epochs": 50, "selection": "accuracy", "precision": "fp32"}
        return cls(**(letter | changes))
