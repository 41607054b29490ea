"""LfF, learning from failure: one network is made to fall for the shortcut, another learns from what it gets wrong.

Idea: a loss that prefers what is easy makes the first network biased; the second one weighs samples by how much
harder they are for the first than for itself (Nam et al. 2020).
Loss: GCE_q(f_b(x), y) + mean of W · CE(f_d(x), y), W = L_b / (L_b + L_d + 1e-8), where L are running means of the
cross-entropies of each sample, over the largest of its class.
Labels: y; no bias labels.
Defaults: q = 0.7 and α = 0.7, as in the official code.
Departures: none known; the comparison's budget in place of the source's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.engine.learners import Learner
from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.losses import by_class, generalised, relative_difficulty, running
from bise.methods.shared.stages import train_stage


@dataclass(frozen=True, kw_only=True)
class LffConfig:
    """How biased the first network is made, and how long losses are remembered."""

    q: float = option(0.7, above=0)
    alpha: float = option(0.7, at_least=0, below=1)
    """α: the share of the old value in a running mean."""

    def __post_init__(self) -> None:
        check_options(self)


class _Learner(Learner):
    y: Tensor
    table: Tensor
    seen: Tensor

    def __init__(self, network: nn.Module, biased: nn.Module, y: Tensor, classes: int, config: LffConfig) -> None:
        super().__init__(network)
        self.biased, self.config, self.classes = biased, config, classes
        self.register_buffer("y", y)
        self.register_buffer("table", torch.zeros(2, len(y)))
        self.register_buffer("seen", torch.zeros(2, len(y), dtype=torch.bool))

    def loss(self, x: Any, index: Tensor) -> Tensor:
        y = self.y[index]
        biased, debiased = self.logits(x, self.biased), self.logits(x)
        errors = F.cross_entropy(debiased, y, reduction="none")
        with torch.no_grad():
            found = (F.cross_entropy(biased, y, reduction="none"), errors.detach())
            relative = []
            for k, values in enumerate(found):
                running(self.table[k], self.seen[k], index, values, self.config.alpha)
                relative.append(
                    self.table[k, index] / by_class(self.table[k], self.y, self.classes)[y].clamp_min(1e-12)
                )
            weights = relative_difficulty(*relative)
        return generalised(biased, y, self.config.q).mean() + (weights * errors).mean()


def lff(start: Start, train: Any, val: Any, config: LffConfig, setting: Setting) -> nn.Module:
    """The second network."""
    cells = labels(train, need_bias=False)
    debiased, biased = (fresh(start, torch.device("cpu"), which) for which in (0, 1))
    learner = _Learner(debiased, biased, cells.y, cells.classes, config).to(setting.device)
    return train_stage(learner, train, val, setting, need_bias=False).network
