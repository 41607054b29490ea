"""How a last layer is fitted anew."""

from __future__ import annotations

from dataclasses import dataclass

from bise.base.checking import (
    check_choice,
    check_positive,
    check_whole,
)
from bise.base.errors import BadInput

L2 = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""Weights λ of ‖W‖²/2 beside the mean cross-entropy over the cells, W on standardised features."""


@dataclass(frozen=True, kw_only=True)
class RefitConfig:
    """How a last layer is fitted anew."""

    on: str = "train"
    """The samples that it is fitted on: "train", "val" or "both"."""
    l2: tuple[float, ...] = L2
    """Values to choose from, tried from the largest on."""
    folds: int = 5
    """Of the cross-validation, where val can't choose."""
    seed: int = 0
    """Of the folds."""
    keep_worse: bool = False
    """Take the refit also where the mean over groups on val falls."""

    def __post_init__(self) -> None:
        check_choice("on", self.on, ("train", "val", "both"))
        check_whole(folds=self.folds, seed=self.seed)
        if not self.l2:
            raise BadInput("l2=() leaves nothing to try; give numbers above 0")
        for value in self.l2:
            check_positive(l2=value)
        if self.folds < 2:
            raise BadInput(f"folds={self.folds} leaves nothing to fit on; give 2 or more")
        object.__setattr__(self, "l2", tuple(sorted(self.l2, reverse=True)))
