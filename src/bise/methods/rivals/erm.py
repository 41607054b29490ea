"""ERM: the model trained anew by plain cross-entropy, as if there were no bias.

Idea: nothing is done against the bias, so that every other method can be held against this one.
Loss: mean CE(f(x), y) over natural batches.
Labels: y.
Defaults: the comparison's training budget.
Departures: none. The row "vanilla" is the same training without a selection on val.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.stages import train_stage


@dataclass(frozen=True, kw_only=True)
class ErmConfig:
    """ERM has no settings of its own."""


def erm(start: Start, train: Any, val: Any, config: ErmConfig, setting: Setting) -> nn.Module:
    """The model, trained anew."""
    return train_stage(fresh(start, setting.device), train, val, setting, need_bias=False)
