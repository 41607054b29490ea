"""SoftCon: the contrastive loss of BiasContrastive without bias labels, by the features of a biased network.

Idea: a network of 1 × 1 kernels learns colours alone; samples of one class that it finds unlike are pulled together,
the more the unliker (Hong & Yang 2021).
Loss: 0.01 · CE(f(x), y) + supervised contrastive loss with weights 1[y_i = y_j] · (1 − cos(φ_i, φ_j)) for positives.
Labels: y; no bias labels.
Defaults: τ = 0.07; draws by how unlike a sample is to 1024 others of its class.
Departures: batches are half natural draws and half such draws; augmentation is the data set's own; the biased network
has the comparison's budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.engine.inputs import Inputs
from bise.engine.learners import Learner
from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.losses import contrastive
from bise.methods.shared.narrow import narrow_network
from bise.methods.shared.samplers import Beside, Weighted
from bise.methods.shared.stages import last_linear, outputs_of, train_stage

REFERENCES = 1024
"""Samples of its class that each one is held against."""


@dataclass(frozen=True, kw_only=True)
class SoftconConfig:
    """How both losses are weighed."""

    tau: float = option(0.07, above=0)
    ce: float = option(0.01, at_least=0)
    """The weight of the cross-entropy."""

    def __post_init__(self) -> None:
        check_options(self)


def unlikeness(features: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    """[N]: Σ (1 − cos) to so many random samples of the same class; `features` [N, d] have length 1."""
    out = torch.zeros(len(y))
    for one in torch.unique(y):
        members = (y == one).nonzero().flatten()
        chosen = members[torch.randint(len(members), (REFERENCES,), generator=generator)]
        out[members] = REFERENCES - features[members] @ features[chosen].sum(0)
    return out.clamp_min(0)


class _Learner(Learner):
    y: Tensor
    features: Tensor

    def __init__(self, network: nn.Module, name: str, y: Tensor, features: Tensor, config: SoftconConfig) -> None:
        super().__init__(network, bottleneck=name)
        self.config, self.natural = config, 0
        self.register_buffer("y", y)
        self.register_buffer("features", features)

    def loss(self, x: Any, index: Tensor) -> Tensor:
        logits, z = self.both(x)
        first = self.natural
        errors = F.cross_entropy(logits[:first], self.y[index[:first]])
        y, phi = self.y[index[first:]], self.features[index[first:]]
        weights = (y[:, None] == y) * (1 - phi @ phi.T).clamp_min(0)
        return self.config.ce * errors + contrastive(z[first:], weights, self.config.tau)


def softcon(start: Start, train: Any, val: Any, config: SoftconConfig, setting: Setting) -> nn.Module:
    """The model, trained anew against what the biased network finds alike."""
    cells = labels(train, need_bias=False)
    model = fresh(start, setting.device)
    name, _ = last_linear(model, train, setting)
    narrow = narrow_network(start, setting)
    narrow = train_stage(narrow, train, None, setting, part="biased", select=False, need_bias=False)
    features = F.normalize(outputs_of(narrow, train, setting, name)[1], dim=1)
    drawn = unlikeness(features, cells.y, torch.Generator().manual_seed(setting.seed)) + 1e-6
    learner = _Learner(model, name, cells.y, features, config).to(setting.device)
    views = 2 if Inputs(train, setting.device).changing else 1
    sampler = Beside(len(cells), Weighted(drawn), views)
    learner.natural = sampler.first(setting.train.batch_size)
    return train_stage(learner, train, val, setting, sampler=sampler, need_bias=False).network
