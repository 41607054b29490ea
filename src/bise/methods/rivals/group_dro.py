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

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.data.core.sampling import Sampler, strata
from bise.engine.learners import Learner
from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.stages import train_stage


@dataclass(frozen=True, kw_only=True)
class GroupDroConfig:
    """How fast the adversary moves."""

    eta: float = option(0.01, above=0)
    adjustment: float = option(0.0, at_least=0)
    """K."""

    def __post_init__(self) -> None:
        check_options(self)


def group_losses(errors: Tensor, group: Tensor, groups: int) -> Tensor:
    """[G]: the mean of `errors` [n] in each group, 0 in one without samples."""
    member = (group[:, None] == torch.arange(groups, device=group.device)).to(errors.dtype)
    return errors @ member / member.sum(0).clamp_min(1)  # a GPU adds by index in an order that changes


def moved(q: Tensor, losses: Tensor, eta: float) -> Tensor:
    """q_g · exp(η L_g), normalised."""
    q = q * (eta * losses).exp()
    return q / q.sum()


class _Learner(Learner):
    q: Tensor
    y: Tensor
    group: Tensor
    extra: Tensor

    def __init__(self, network: nn.Module, y: Tensor, group: Tensor, config: GroupDroConfig) -> None:
        super().__init__(network)
        counts = torch.bincount(group).float()
        self.eta = config.eta
        self.register_buffer("q", torch.full_like(counts, 1 / len(counts)))
        self.register_buffer("y", y)
        self.register_buffer("group", group)
        self.register_buffer("extra", config.adjustment / counts.sqrt())

    def loss(self, x: Any, index: Tensor) -> Tensor:
        errors = F.cross_entropy(self.logits(x), self.y[index], reduction="none")
        losses = group_losses(errors, self.group[index], len(self.q)) + self.extra
        with torch.no_grad():
            self.q.copy_(moved(self.q, losses, self.eta))
        return (self.q.clone() * losses).sum()


def group_dro(start: Start, train: Any, val: Any, config: GroupDroConfig, setting: Setting) -> nn.Module:
    """The model, trained anew against the adversary; samples without a bias label are a cell of their class."""
    cells = labels(train)
    drawn = strata(cells, "cells")
    group = torch.unique(drawn, return_inverse=True)[1]
    learner = _Learner(fresh(start, torch.device("cpu")), cells.y, group, config).to(setting.device)
    return train_stage(learner, train, val, setting, sampler=Sampler(len(cells), drawn)).network
