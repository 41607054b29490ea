"""Group DRO's adversary, which several methods minimise against, each over groups of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bise.data.core.sampling import Sampler
from bise.engine.learners import Learner
from bise.methods.shared.interface import Setting
from bise.methods.shared.stages import train_stage


def group_losses(errors: Tensor, group: Tensor, groups: int) -> Tensor:
    """[G]: the mean of `errors` [n] in each group, 0 in one without samples."""
    member = (group[:, None] == torch.arange(groups, device=group.device)).to(errors.dtype)
    return errors @ member / member.sum(0).clamp_min(1)  # a GPU adds by index in an order that changes


def moved(q: Tensor, losses: Tensor, eta: float) -> Tensor:
    """q_g · exp(η L_g), normalised."""
    q = q * (eta * losses).exp()
    return q / q.sum()


class Adversary(Learner):
    """A network, and the weights q of the groups, which move in every step."""

    q: Tensor
    y: Tensor
    group: Tensor
    extra: Tensor

    def __init__(self, network: nn.Module, y: Tensor, group: Tensor, eta: float, k: float = 0.0) -> None:
        super().__init__(network)
        counts = torch.bincount(group).float()
        self.eta = eta
        self.register_buffer("q", torch.full_like(counts, 1 / len(counts)))
        self.register_buffer("y", y)
        self.register_buffer("group", group)
        self.register_buffer("extra", k / counts.sqrt())

    def loss(self, x: Any, index: Tensor) -> Tensor:
        errors = F.cross_entropy(self.logits(x), self.y[index], reduction="none")
        losses = group_losses(errors, self.group[index], len(self.q)) + self.extra
        with torch.no_grad():
            self.q.copy_(moved(self.q, losses, self.eta))
        return (self.q.clone() * losses).sum()


def against_groups(
    network: nn.Module, train: Any, val: Any, setting: Setting, y: Tensor, group: Tensor, eta: float, **how: Any
) -> nn.Module:
    """The network, trained against the adversary; `group` [N] numbers groups, which are drawn evenly."""
    group = torch.unique(group, return_inverse=True)[1]
    learner = Adversary(network, y, group, eta, how.pop("k", 0.0)).to(setting.device)
    return train_stage(learner, train, val, setting, sampler=Sampler(len(y), group), **how).network
