"""BISE: the subnetwork of the vanilla model that leans least on the bias, its weights as they were.

Idea: one score per unit is learned with the weights frozen, and units below 0 are closed; the last layer may be
fitted anew on the masked features, or what is left be finetuned, with the mask fixed.
Loss: J = CE + γ·I(b̂, b) over the scores (equation 5); then multinomial logistic regression, or CE with even cells.
Labels: y, b.
Defaults: the preset `balanced` of `bise extract`, as a recipe changes it; `bise refit`; the finetuning budget.
Departures: docs/departures.md lists those of the preset from the paper.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from bise.base.options import check_options, option
from bise.extraction.algorithm import extract
from bise.extraction.config import ExtractConfig
from bise.methods.finetuning import finetune
from bise.methods.refit.refitting import refit
from bise.methods.shared.interface import Setting, Start, vanilla
from bise.network.subnetwork import Subnetwork


@dataclass(frozen=True, kw_only=True)
class OursConfig:
    """How the mask is looked for, and what comes after it."""

    extract: ExtractConfig = field(default_factory=ExtractConfig)
    then: str = option("nothing", choices=("nothing", "refit", "finetuning"))

    def __post_init__(self) -> None:
        check_options(self)


def ours(start: Start, train: Any, val: Any, config: OursConfig, setting: Setting) -> Subnetwork:
    """The subnetwork, on the vanilla model's weights where nothing comes after it."""
    model: nn.Module = vanilla(start)
    search = replace(config.extract, seed=setting.seed, selection=setting.selection)
    how: dict[str, Any] = {"val": setting.judge(val), "progress": setting.progress}
    kept: dict[str, Any] = {"checkpoint_every": setting.every}
    sub = extract(model, train, config=search, checkpoint=setting.path("extract"), **how, **kept)
    setting.tally.samples += len(sub.record["history"]) * search.epoch_steps(len(train)) * search.batch_size
    if config.then == "refit":
        return refit(sub, train, seed=setting.seed, **how).eval()
    if config.then == "finetuning":
        budget = replace(setting.finetune, seed=setting.seed, selection=setting.selection)
        tuned = finetune(sub, train, config=budget, checkpoint=setting.path("finetune"), **how, **kept)
        each = len(train) if budget.steps is None else budget.steps * budget.batch_size
        setting.tally.samples += each * len(tuned.record["history"])
        return tuned
    return sub
