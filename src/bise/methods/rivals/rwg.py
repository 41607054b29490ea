"""RWG, reweighting groups: every batch draws the cells (y, b) evenly.

Idea: a sample of a rare cell comes as often as needed for its cell to count as much as any other (Idrissi et al.
2022).
Loss: mean CE(f(x), y) over batches drawn with probability 1/n_g.
Labels: y, b.
Defaults: the comparison's training budget; the source tunes rate, decay and batch size on val.
Departures: strata are dealt from shuffled decks, which has the same expectation and less variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from bise.data.core.contract import labels
from bise.data.core.sampling import Sampler, strata
from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.stages import train_stage


@dataclass(frozen=True, kw_only=True)
class RwgConfig:
    """RWG has no settings of its own."""


def rwg(start: Start, train: Any, val: Any, config: RwgConfig, setting: Setting) -> nn.Module:
    """The model, trained anew on cells drawn evenly."""
    cells = labels(train)
    even = Sampler(len(cells), strata(cells, "cells"))
    return train_stage(fresh(start, setting.device), train, val, setting, sampler=even)
