"""DFR, deep feature reweighting: only the last layer of the vanilla model is fitted anew, all cells evenly.

Idea: a biased model's features are good enough; a last layer fitted on group-balanced data weighs them anew
(Kirichenko et al. 2023).
Loss: multinomial logistic regression on z with an L2 term, each cell with the same weight, solved to the end.
Labels: y and b of what it is fitted on: val as published (`on="val"`), or train.
Defaults: λ from 1e-5 to 0.1, chosen by cross-validation on val, or on val where train is fitted.
Departures: the source averages L1-regularised fits over ten balanced subsets; ours is one L2 fit with even weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from bise.base.options import check_options, option
from bise.methods.refit.refitting import refit
from bise.methods.shared.interface import Setting, Start, vanilla


@dataclass(frozen=True, kw_only=True)
class DfrConfig:
    """What the last layer is fitted on."""

    on: str = option("val", choices=("train", "val"))

    def __post_init__(self) -> None:
        check_options(self)


def dfr(start: Start, train: Any, val: Any, config: DfrConfig, setting: Setting) -> nn.Module:
    """The vanilla model with another last layer."""
    given = val if config.on == "val" else setting.judge(val)
    fitted = refit(
        vanilla(start), train, val=given, on=config.on, seed=setting.seed, keep_worse=True, progress=setting.progress
    )
    return fitted.bare()
