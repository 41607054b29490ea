"""How a last layer is fitted anew."""

from __future__ import annotations

from dataclasses import dataclass

from bise.base.errors import BadInput
from bise.base.options import check_options, option

L2 = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""Weights λ of ‖W‖²/2 beside the mean cross-entropy over the cells, W on standardised features."""


@dataclass(frozen=True, kw_only=True)
class RefitConfig:
    """How a last layer is fitted anew."""

    on: str = option(
        "train",
        help="The samples that the last layer is fitted on: {choices}.",
        choices=("train", "val", "both"),
        fixed=True,
    )
    l2: tuple[float, ...] = option(
        L2, help="A weight of the L2 term to try; may be repeated. Default 1e-5, 1e-4, … 0.1.", above=0
    )
    """Tried from the largest on."""
    folds: int = option(
        5,
        help="Folds of the cross-validation, where val can't choose the L2.",
        at_least=2,
        refusal="leaves nothing to fit on; give 2 or more",
        fixed=True,
    )
    seed: int = option(0, help="Seed of the folds.", fixed=True)
    keep_worse: bool = option(False, help="Take the refit also where the mean over groups on val falls.", fixed=True)

    def __post_init__(self) -> None:
        if not self.l2:
            raise BadInput("l2=() leaves nothing to try; give numbers above 0")
        check_options(self)
        object.__setattr__(self, "l2", tuple(sorted(self.l2, reverse=True)))
