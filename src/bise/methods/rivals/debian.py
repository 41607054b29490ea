"""DebiAN: a discoverer parts each class where the classifier is unequal, which the classifier answers by weights.

Idea: two networks learn in turn; one says which samples of a class belong to a group that the other does worse on,
the other one weighs that group up (Li et al. 2022).
Loss: of the classifier mean (1 + d̃) CE, d̃ = d where the group d has the lower mean p, else 1 − d; of the discoverer,
d = σ(D(x))_y, the mean over classes of −ln |P_1 − P_0| − λ ln(1 − |d̄ − (1 − d̄)|), P the mean p_y weighted by d and
by 1 − d.
Labels: y; no bias labels.
Defaults: λ = 1 and ε = 1e-6 within logarithms, as published; both networks have the same architecture.
Departures: both networks take their step at the same time and on the same batch, and not in turn on two. The gradient
that reaches d from a batch of n is at most 1/√n long, as a CE's is: at a small |P_1 − P_0| the logarithm's is so long
that SGD drives every d to 0 or 1, which the source's Adam doesn't. The comparison's budget and selection, where the
source takes the last epoch. As a source of labels, a class that lies on one side of d̃ = ½ is cut at its mean.
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
from bise.methods.shared.guessing import named, sides
from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.losses import held
from bise.methods.shared.stages import outputs_of, train_stage

EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True)
class DebianConfig:
    """How even the discoverer's groups are to be."""

    balance: float = option(1.0, at_least=0)
    """λ."""

    def __post_init__(self) -> None:
        check_options(self)


def group_means(p: Tensor, d: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(P_1, P_0, mean d, number of samples), each [C], of p [n] and d [n]; zeros for a class without samples."""
    member = (y[:, None] == torch.arange(classes, device=y.device)).to(p.dtype)
    count = member.sum(0)
    one = (d * p) @ member / (d @ member).clamp_min(EPSILON)
    zero = ((1 - d) * p) @ member / ((1 - d) @ member).clamp_min(EPSILON)
    return one, zero, d @ member / count.clamp_min(1), count


def discovery(p: Tensor, d: Tensor, y: Tensor, classes: int, balance: float) -> Tensor:
    """The discoverer's loss."""
    one, zero, mean, count = group_means(p, d, y, classes)
    unequal = -((one - zero).abs() + EPSILON).log()
    even = -(1 - (2 * mean - 1).abs() + EPSILON).log()
    return ((unequal + balance * even) * (count > 0)).sum() / (count > 0).sum()


def worse(p: Tensor, d: Tensor, y: Tensor, classes: int) -> Tensor:
    """d̃ [n]: how much a sample belongs to the group of its class with the lower mean p."""
    one, zero, _, _ = group_means(p, d, y, classes)
    return torch.where((one <= zero)[y], d, 1 - d)


class _Learner(Learner):
    y: Tensor

    def __init__(
        self, network: nn.Module, discoverer: nn.Module, y: Tensor, classes: int, config: DebianConfig
    ) -> None:
        super().__init__(network)
        self.discoverer, self.classes, self.config = discoverer, classes, config
        self.register_buffer("y", y)

    def loss(self, x: Any, index: Tensor) -> Tensor:
        y = self.y[index]
        logits = self.logits(x)
        d = held(self.logits(x, self.discoverer).gather(1, y[:, None]).squeeze(1).sigmoid())
        p = logits.detach().softmax(1).gather(1, y[:, None]).squeeze(1)
        errors = F.cross_entropy(logits, y, reduction="none")
        weights = 1 + worse(p, d.detach(), y, self.classes)
        return (weights * errors).mean() + discovery(p, d, y, self.classes, self.config.balance)


def _trained(start: Start, train: Any, val: Any, config: DebianConfig, setting: Setting) -> Any:
    cells = labels(train, need_bias=False)
    network, discoverer = (fresh(start, torch.device("cpu"), which) for which in (0, 1))
    learner = _Learner(network, discoverer, cells.y, cells.classes, config).to(setting.device)
    return train_stage(learner, train, val, setting, need_bias=False)


def debian_guess(start: Start, train: Any, config: DebianConfig, setting: Setting) -> Tensor:
    """b̃ [N]: samples that the discoverer puts into the worse group of their class conflict."""
    cells = labels(train, need_bias=False)
    learner = _trained(start, train, None, config, setting)
    logits = outputs_of(learner.network, train, setting)[0]
    y = cells.y[:, None]
    d = outputs_of(learner.discoverer, train, setting)[0].gather(1, y).squeeze(1).sigmoid()
    p = logits.softmax(1).gather(1, y).squeeze(1)
    return named(logits, cells.y, sides(worse(p, d, cells.y, cells.classes), 0.5, cells.y))


def debian(start: Start, train: Any, val: Any, config: DebianConfig, setting: Setting) -> nn.Module:
    """The classifier."""
    return _trained(start, train, val, config, setting).network
