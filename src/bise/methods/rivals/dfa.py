"""DFA: two encoders, one for the target and one for the bias, whose features are swapped between samples.

Idea: a biased and a debiased branch are told apart as in LfF; then each debiased feature is paired with a bias of
another sample, which makes conflicting samples that the data lack (Lee et al. 2021).
Loss: W · CE(C_i([z_i; sg z_b]), y) + λ · GCE(C_b([sg z_i; z_b]), y), and, from a fifth of the epochs on, the same
with z_b of another sample, whose label the second term takes. In use: C_i([z_i; z_b]).
Labels: y; no bias labels.
Defaults: q = 0.7, α = 0.7, λ = 1 for both biased terms, the swapped loss weighs 1, as in the official code at 5 %.
Departures: the partner in a swap is the next sample of the batch, whose order is random; the comparison's budget and
schedule. The result has two encoders, and so twice the size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bise.base.errors import BadInput
from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.engine.inputs import Inputs
from bise.engine.learners import Learner
from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.losses import by_class, generalised, relative_difficulty, running
from bise.methods.shared.stages import drawn_by, last_linear, train_stage
from bise.network.outputs import call, logits_tensor


@dataclass(frozen=True, kw_only=True)
class DfaConfig:
    """How the branches are told apart, and when swapping begins."""

    q: float = option(0.7, above=0)
    alpha: float = option(0.7, at_least=0, below=1)
    """α: the share of the old value in a running mean."""
    biased: float = option(1.0, at_least=0)
    """λ."""
    swapped: float = option(1.0, at_least=0)
    """The weight of the swapped loss."""
    after: float = option(0.2, at_least=0, below=1)
    """The share of the epochs before swapping."""

    def __post_init__(self) -> None:
        check_options(self)


class Disentangled(nn.Module):
    """C_i([z_i; z_b]) of two encoders."""

    def __init__(self, own: nn.Module, biased: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.own, self.biased = own, biased
        self.head = nn.Linear(2 * width, classes)

    def features(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """(z_i, z_b), each [n, d]."""
        return logits_tensor(self.own(*args, **kwargs)), logits_tensor(self.biased(*args, **kwargs))

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.head(torch.cat(self.features(*args, **kwargs), 1))


class _Learner(Learner):
    network: Disentangled
    y: Tensor
    table: Tensor
    seen: Tensor
    swapping: Tensor

    def __init__(self, network: Disentangled, y: Tensor, classes: int, config: DfaConfig) -> None:
        super().__init__(network)
        self.config, self.classes = config, classes
        self.biased_head = nn.Linear(network.head.in_features, classes)
        self.register_buffer("y", y)
        self.register_buffer("table", torch.zeros(2, len(y)))
        self.register_buffer("seen", torch.zeros(2, len(y), dtype=torch.bool))
        self.register_buffer("swapping", torch.zeros(()))

    def begin(self, epoch: int, epochs: int) -> None:
        self.swapping.fill_(float(epoch > self.config.after * epochs))

    def loss(self, x: Any, index: Tensor) -> Tensor:
        own, biased = self.whole(x, lambda part: call(self.network.features, part))  # type: ignore[arg-type]
        y, c = self.y[index], self.config
        errors, easy, weights = self._branches(own, biased, y, y, index)
        other, target = biased.roll(1, 0), y.roll(1, 0)
        swapped = F.cross_entropy(self.network.head(torch.cat([own, other.detach()], 1)), y, reduction="none")
        wrong = generalised(self.biased_head(torch.cat([own.detach(), other], 1)), target, c.q)
        plain = (weights * errors).mean() + c.biased * easy.mean()
        return plain + self.swapping * c.swapped * ((weights * swapped).mean() + c.biased * wrong.mean())

    def _branches(
        self, own: Tensor, biased: Tensor, y: Tensor, target: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(CE of the one branch, GCE of the other, and the weights W that follow), each [n]."""
        answers = self.biased_head(torch.cat([own.detach(), biased], 1))
        errors = F.cross_entropy(self.network.head(torch.cat([own, biased.detach()], 1)), y, reduction="none")
        with torch.no_grad():
            relative = []
            for k, values in enumerate((F.cross_entropy(answers, target, reduction="none"), errors.detach())):
                running(self.table[k], self.seen[k], index, values, self.config.alpha)
                highest = by_class(self.table[k], self.y, self.classes)[y]
                relative.append(self.table[k, index] / highest.clamp_min(1e-12))
        return errors, generalised(answers, target, self.config.q), relative_difficulty(*relative)


def dfa(start: Start, train: Any, val: Any, config: DfaConfig, setting: Setting) -> nn.Module:
    """Both encoders with the debiased head."""
    cells = labels(train, need_bias=False)
    encoders = [fresh(start, setting.device, which) for which in (0, 1)]
    name, layer = last_linear(encoders[0], train, setting)
    where, _, key = name.rpartition(".")
    for encoder in encoders:
        setattr(encoder.get_submodule(where), key, nn.Identity())
    with drawn_by(setting.seed):
        network = Disentangled(encoders[0], encoders[1], layer.in_features, cells.classes)
        learner = _Learner(network, cells.y, cells.classes, config).to(setting.device)
    _check_encoder(learner, train, setting, layer.in_features)
    return train_stage(learner, train, val, setting, need_bias=False).network


def _check_encoder(learner: _Learner, train: Any, setting: Setting, width: int) -> None:
    learner.eval()
    with torch.no_grad():
        shape = call(learner.network.features, Inputs(train, setting.device).example(2))[0].shape  # type: ignore[arg-type]
    if shape[1:] != (width,):
        raise BadInput(
            f"the model's last layer sees features of shape {tuple(shape[1:])}, and dfa needs {width} of them beside"
            " each other; pool them before that layer"
        )
