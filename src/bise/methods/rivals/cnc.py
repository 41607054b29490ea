"""CnC, correct-n-contrast: samples of one class that a first model answers differently are pulled together.

Idea: what a plainly trained model predicts stands for the bias; features of a class are to be alike across these
predictions, and unlike those of other classes with the same one (Zhang et al. 2022).
Loss: 0.75 · con + 0.25 · CE, con = −mean_p ln(e^{s_p/τ} / (Σ_n e^{s_n/τ} + Σ_p' e^{s_p'/τ})) with cosines s on the
bottleneck; an anchor is answered right, its positives have its y and another prediction, its negatives another y and
its prediction.
Labels: y; no bias labels.
Defaults: τ = 0.05, weights 0.75 and 0.25, as for CelebA; slices by prediction, as in the paper.
Departures: contrasts are taken within batches, half of each drawn evenly over (y, prediction), in place of batches
made around anchors; anchors of the other side are left out; the encoder is trained in training mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.data.core.weights import group_weights
from bise.engine.learners import Learner
from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.losses import contrastive
from bise.methods.shared.samplers import Beside, Weighted
from bise.methods.shared.stages import first_model, last_linear, no_errors, outputs_of, train_stage


@dataclass(frozen=True, kw_only=True)
class CncConfig:
    """How the first model is trained, and how both losses are weighed."""

    first_epochs: int = option(1, above=0)
    """Of the first model."""
    tau: float = option(0.05, above=0)
    contrast: float = option(0.75, at_least=0, below=1)
    """The share of the contrastive loss; the rest is CE's."""

    def __post_init__(self) -> None:
        check_options(self)


def pairs(y: Tensor, predicted: Tensor) -> tuple[Tensor, Tensor]:
    """(positives [n, n], positives and negatives [n, n]) of each anchor; rows of samples answered wrong are empty."""
    anchor = (y == predicted)[:, None]
    same, alike = y[:, None] == y, predicted[:, None] == predicted
    positives = anchor & same & ~alike
    return positives, positives | (anchor & ~same & alike)


class _Learner(Learner):
    y: Tensor
    predicted: Tensor

    def __init__(self, network: nn.Module, name: str, y: Tensor, predicted: Tensor, config: CncConfig) -> None:
        super().__init__(network, bottleneck=name)
        self.config, self.natural = config, 0
        self.register_buffer("y", y)
        self.register_buffer("predicted", predicted)

    def loss(self, x: Any, index: Tensor) -> Tensor:
        logits, z = self.both(x)
        first, share = self.natural, self.config.contrast
        errors = F.cross_entropy(logits[:first], self.y[index[:first]])
        positives, among = pairs(self.y[index[first:]], self.predicted[index[first:]])
        return share * contrastive(z[first:], positives, self.config.tau, among=among) + (1 - share) * errors


def cnc(start: Start, train: Any, val: Any, config: CncConfig, setting: Setting) -> nn.Module:
    """The model, trained anew on what the first one tells apart."""
    cells = labels(train, need_bias=False)
    first = first_model(start, train, setting, config.first_epochs)
    predicted = outputs_of(first, train, setting)[0].argmax(1)
    if torch.equal(predicted, cells.y):
        raise no_errors(config.first_epochs, "nothing can be contrasted")
    model = fresh(start, setting.device)
    name, _ = last_linear(model, train, setting)
    learner = _Learner(model, name, cells.y, predicted, config).to(setting.device)
    slices = cells.y * (int(predicted.max()) + 1) + predicted
    sampler = Beside(len(cells), Weighted(group_weights(slices)))
    learner.natural = sampler.first(setting.train.batch_size)
    return train_stage(learner, train, val, setting, sampler=sampler, need_bias=False).network
