"""Group DRO: minimise the loss of the worst cell, by weights that grow where the loss is high.

Idea: an adversary weighs the cells (y, b), and the model answers; both move in every step (Sagawa et al. 2020).
Loss: Σ_g q_g L_g, after q_g ← q_g · exp(η (L_g + K/√n_g)), normalised; L_g is the mean CE of cell g in the batch.
Labels: y, b.
Defaults: η = 0.01, K = 0 and cells drawn evenly, as in the official code.
Departures: none known. As there, a cell that a batch lacks has L_g = 0 in the update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.data.core.sampling import strata
from bise.methods.shared.dro import against_groups
from bise.methods.shared.interface import Setting, Start, fresh


@dataclass(frozen=True, kw_only=True)
class GroupDroConfig:
    """How fast the adversary moves."""

    eta: float = option(0.01, above=0)
    adjustment: float = option(0.0, at_least=0)
    """K."""

    def __post_init__(self) -> None:
        check_options(self)


def group_dro(start: Start, train: Any, val: Any, config: GroupDroConfig, setting: Setting) -> nn.Module:
    """The model, trained anew against the adversary; samples without a bias label are a cell of their class."""
    cells = labels(train)
    model, group = fresh(start, setting.device), strata(cells, "cells")
    return against_groups(model, train, val, setting, cells.y, group, config.eta, k=config.adjustment)
