"""ReBias: features that are statistically independent of those of a network that can only learn the bias.

Idea: a network of 1 × 1 kernels stands for what texture tells; f is trained to be independent of it by HSIC, and it
to follow f (Bahng et al. 2020).
Loss: f: CE(f) + λ · HSIC(z_f, sg z_g); g: CE(g) − λ_g · HSIC(z_g, sg z_f); HSIC unbiased (Song et al. 2012), RBF
kernels.
Labels: y; no bias labels.
Defaults: λ = λ_g = 1, σ = 1, one g.
Departures: f and g make their steps at the same time, and not in turn.
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
from bise.methods.shared.narrow import narrow_network
from bise.methods.shared.stages import last_linear, train_stage


@dataclass(frozen=True, kw_only=True)
class RebiasConfig:
    """How strong independence is asked for."""

    independence: float = option(1.0, at_least=0)
    """λ."""
    following: float = option(1.0, at_least=0)
    """λ_g."""
    sigma: float = option(1.0, above=0)
    """Of the kernels."""

    def __post_init__(self) -> None:
        check_options(self)


def kernel(z: Tensor, sigma: float) -> Tensor:
    """exp(−‖z_i − z_j‖² / 2σ²) [n, n]."""
    squares = z.square().sum(1)
    distances = (squares[:, None] + squares - 2 * z @ z.T).clamp_min(0)
    return (-distances / (2 * sigma**2)).exp()


def hsic(one: Tensor, other: Tensor, sigma: float) -> Tensor:
    """The unbiased estimate from features [n, d] and [n, e] of the same samples; n is 4 or more."""
    n = len(one)
    off = 1 - torch.eye(n, device=one.device)
    k, m = kernel(one, sigma) * off, kernel(other, sigma) * off
    traces = (k * m).sum()
    sums = k.sum() * m.sum() / ((n - 1) * (n - 2))
    crossed = 2 * (k.sum(0) * m.sum(0)).sum() / (n - 2)
    return (traces + sums - crossed) / (n * (n - 3))


class _Learner(Learner):
    y: Tensor

    def __init__(self, network: nn.Module, narrow: nn.Module, name: str, y: Tensor, config: RebiasConfig) -> None:
        super().__init__(network, bottleneck=name)
        self.narrow, self.config = narrow, config
        self.register_buffer("y", y)

    def loss(self, x: Any, index: Tensor) -> Tensor:
        y, c = self.y[index], self.config
        logits, z = self.both(x)
        biased, w = self.both(x, self.narrow)
        errors = F.cross_entropy(logits, y) + F.cross_entropy(biased, y)
        if len(y) < 4:  # too few for the estimate
            return errors
        apart = c.independence * hsic(z, w.detach(), c.sigma)
        return errors + apart - c.following * hsic(w, z.detach(), c.sigma)


def rebias(start: Start, train: Any, val: Any, config: RebiasConfig, setting: Setting) -> nn.Module:
    """The model, trained anew against the narrow network."""
    cells = labels(train, need_bias=False)
    model = fresh(start, setting.device)
    name, _ = last_linear(model, train, setting)
    learner = _Learner(model, narrow_network(start, setting), name, cells.y, config).to(setting.device)
    return train_stage(learner, train, val, setting, need_bias=False).network
