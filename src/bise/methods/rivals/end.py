"""EnD, entangling and disentangling: features of one bias are pulled apart, those of one class across biases together.

Idea: samples that share b shouldn't be alike because of it, and samples of one class with other b should (Tartaglione
et al. 2021).
Loss: CE + α R⊥ + β R∥ on cosines G of features: R⊥ = Σ_b |Σ_{i>j, b_i=b_j=b} G_ij| / #pairs of b; R∥ = 1 − mean of (1
+ G)/2 over pairs with the same y and another b.
Labels: y, b.
Defaults: α = β = 0.1, the official command line's; the source searches both on val.
Departures: the last layer reads features as they are, and not normalised, so that any architecture will do. All pairs
of the same y and another b count, where the official code drops half of them.
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
from bise.methods.shared.stages import last_linear, single_bias, train_stage


@dataclass(frozen=True, kw_only=True)
class EndConfig:
    """How strong both terms are."""

    alpha: float = option(0.1, at_least=0)
    beta: float = option(0.1, at_least=0)

    def __post_init__(self) -> None:
        check_options(self)


def disentangling(z: Tensor, b: Tensor, biases: int) -> Tensor:
    """R⊥ of features z [n, d]."""
    z = F.normalize(z, dim=1)
    gram = (z @ z.T).clamp(-1, 1).tril(-1)
    one_hot = (b[:, None] == torch.arange(biases, device=b.device)).float()
    sums = torch.einsum("ik,ij,jk->k", one_hot, gram, one_hot)
    counts = one_hot.sum(0)
    return (sums.abs() / (counts * (counts - 1) / 2).clamp_min(1)).sum()


def entangling(z: Tensor, y: Tensor, b: Tensor) -> Tensor:
    """R∥ of features z [n, d]; 0 where no pair has the same y and another b."""
    z = F.normalize(z, dim=1)
    gram = (z @ z.T).clamp(-1, 1)
    pairs = ((y[:, None] == y) & (b[:, None] != b)).float()
    count = pairs.sum()
    return (1 - (pairs * (1 + gram) / 2).sum() / count.clamp_min(1)) * (count > 0)


class _Learner(Learner):
    y: Tensor
    b: Tensor

    def __init__(self, network: nn.Module, name: str, y: Tensor, b: Tensor, config: EndConfig) -> None:
        super().__init__(network, bottleneck=name)
        self.config, self.biases = config, int(b.max()) + 1
        self.register_buffer("y", y)
        self.register_buffer("b", b)

    def loss(self, x: Any, index: Tensor) -> Tensor:
        logits, z = self.both(x)
        y, b = self.y[index], self.b[index]
        apart = self.config.alpha * disentangling(z, b, self.biases)
        return F.cross_entropy(logits, y) + apart + self.config.beta * entangling(z, y, b)


def end(start: Start, train: Any, val: Any, config: EndConfig, setting: Setting) -> nn.Module:
    """The model, trained anew with both terms."""
    cells = labels(train)
    model = fresh(start, setting.device)
    name, _ = last_linear(model, train, setting)
    learner = _Learner(model, name, cells.y, single_bias(cells, "end"), config).to(setting.device)
    return train_stage(learner, train, val, setting).network
