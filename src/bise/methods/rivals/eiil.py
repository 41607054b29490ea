"""EIIL, environment inference for invariant learning: train is cut where a first model breaks invariance most.

Idea: two environments are inferred such that a biased model is as far as can be from being the best one in both; then
a method that needs groups is trained on them (Creager et al. 2021).
Loss: of the cut, to be made large over q = σ(w): ½ [(mean q a)² + (mean (1 − q) a)²], a = ∂/∂s CE(s f, y) at s = 1.
Then Group DRO over the cells (y, environment), or IRM: mean_e CE_e + λ mean_e (mean of a in e)².
Labels: y; no bias labels.
Defaults: Adam at 1e-3 for 10,000 steps over all samples, cut at q = ½; IRM's λ = 1e4 after a fifth of the epochs, and
the loss is divided by it, as in the official code; Group DRO's η = 0.01.
Departures: the first model is the plain training cut to one epoch; the objective is multiplied by N, else Adam's ε
leaves well fitted samples where chance put them; environments are drawn evenly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.data.core.sampling import Sampler
from bise.engine.learners import Learner
from bise.methods.shared.dro import against_groups
from bise.methods.shared.guessing import harder, named
from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.stages import first_model, outputs_of, train_stage


@dataclass(frozen=True, kw_only=True)
class EiilConfig:
    """How environments are inferred, and what is trained on them."""

    first_epochs: int = option(1, above=0)
    """Of the first model."""
    steps: int = option(10_000, above=0)
    lr: float = option(1e-3, above=0)
    """Of the cut."""
    then: str = option("group-dro", choices=("group-dro", "irm"))
    eta: float = option(0.01, above=0)
    """Of Group DRO."""
    penalty: float = option(1e4, at_least=1)
    """IRM's λ."""
    after: float = option(0.2, at_least=0, below=1)
    """The share of the epochs before λ is more than 1."""

    def __post_init__(self) -> None:
        check_options(self)


def slopes(logits: Tensor, y: Tensor) -> Tensor:
    """a [n]: ∂/∂s CE(s f, y) at s = 1, which is Σ_c (p_c − 1[c = y]) f_c."""
    return (logits.softmax(1) * logits).sum(1) - logits.gather(1, y[:, None]).squeeze(1)


def violation(q: Tensor, a: Tensor) -> Tensor:
    """½ [(mean q a)² + (mean (1 − q) a)²]: how far one model is from being the best in both environments."""
    return ((q * a).mean().square() + ((1 - q) * a).mean().square()) / 2


def environments(a: Tensor, steps: int, lr: float, generator: torch.Generator) -> Tensor:
    """[N] bool: the cut of samples with slopes a [N] that violates invariance most; which side is True is chance."""
    w = torch.randn(len(a), generator=generator).to(a.device).requires_grad_()
    optimizer = torch.optim.Adam([w], lr=lr, maximize=True)
    for _ in range(steps):
        (w.grad,) = torch.autograd.grad(len(a) * violation(w.sigmoid(), a), w)
        optimizer.step()
    return w.detach() > 0


def _inferred(start: Start, train: Any, config: EiilConfig, setting: Setting) -> tuple[Tensor, Tensor]:
    """(logits of the first model, which samples are in the environment where it is worse)."""
    y = labels(train, need_bias=False).y
    logits = outputs_of(first_model(start, train, setting, config.first_epochs), train, setting)[0]
    a = slopes(logits, y).to(setting.device)
    part = environments(a, config.steps, config.lr, torch.Generator().manual_seed(setting.seed)).cpu()
    return logits, harder(F.cross_entropy(logits, y, reduction="none"), part, y, by_class=False)


def eiil_guess(start: Start, train: Any, config: EiilConfig, setting: Setting) -> Tensor:
    """b̃ [N]: samples of the environment where the first model is worse conflict."""
    logits, hard = _inferred(start, train, config, setting)
    return named(logits, labels(train, need_bias=False).y, hard)


class _Invariant(Learner):
    y: Tensor
    hard: Tensor
    penalty: Tensor

    def __init__(self, network: nn.Module, y: Tensor, hard: Tensor, config: EiilConfig) -> None:
        super().__init__(network)
        self.config = config
        self.register_buffer("y", y)
        self.register_buffer("hard", hard)
        self.register_buffer("penalty", torch.ones(()))

    def begin(self, epoch: int, epochs: int) -> None:
        self.penalty.fill_(self.config.penalty if epoch > self.config.after * epochs else 1.0)

    def loss(self, x: Any, index: Tensor) -> Tensor:
        return invariant(self.logits(x), self.y[index], self.hard[index], self.penalty)


def invariant(logits: Tensor, y: Tensor, hard: Tensor, penalty: Tensor) -> Tensor:
    """(mean_e CE_e + λ mean_e (mean of a in e)²) / λ over the environments e, `hard` [n] and not; λ is 1 or more."""
    errors, a = F.cross_entropy(logits, y, reduction="none"), slopes(logits, y)
    total = errors.new_zeros(())
    for members in (hard.to(errors.dtype), (~hard).to(errors.dtype)):
        share = members / members.sum().clamp_min(1)
        total = total + (share @ errors + penalty * (share @ a).square()) / 2
    return total / penalty


def eiil(start: Start, train: Any, val: Any, config: EiilConfig, setting: Setting) -> nn.Module:
    """The model, trained anew on the environments."""
    y = labels(train, need_bias=False).y
    _, hard = _inferred(start, train, config, setting)
    model = fresh(start, setting.device)
    if config.then == "group-dro":
        return against_groups(model, train, val, setting, y, 2 * y + hard, config.eta, need_bias=False)
    learner = _Invariant(model, y, hard, config).to(setting.device)
    sampler = Sampler(len(y), hard.long())
    return train_stage(learner, train, val, setting, sampler=sampler, need_bias=False).network
