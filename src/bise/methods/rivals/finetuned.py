"""Dense finetuning: the vanilla model trained on with cells drawn evenly, without any mask.

Idea: the control for our method: what the same data, draws and steps do where nothing is taken out.
Loss: mean CE(f(x), y) over batches with even cells.
Labels: y, b.
Defaults: the comparison's finetuning budget.
Departures: none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from bise.methods.finetuning import finetune
from bise.methods.shared.interface import Setting, Start, vanilla


@dataclass(frozen=True, kw_only=True)
class FinetunedConfig:
    """Dense finetuning has no settings of its own."""


def finetuned(start: Start, train: Any, val: Any, config: FinetunedConfig, setting: Setting) -> nn.Module:
    """The vanilla model, trained on."""
    budget = replace(setting.finetune, seed=setting.seed, selection=setting.selection)
    judged, path = setting.judge(val), setting.path("finetune")
    tuned = finetune(
        vanilla(start), train, val=judged, config=budget, progress=setting.progress, checkpoint=path,
        checkpoint_every=setting.every,
    )  # fmt: skip
    each = len(train) if budget.steps is None else budget.steps * budget.batch_size
    setting.tally.samples += each * len(tuned.record["history"])
    return tuned.bare()
