"""HEX: what a description of texture can answer is projected out of the answers that are trained.

Idea: grey levels of neighbouring pixels tell texture and no shape; logits are made orthogonal to what these say
alone, so that the network has to learn the rest (Wang et al. 2019).
Loss: CE(F_A − F_G (F_Gᵀ F_G)⁻¹ F_Gᵀ F_A, y) over a batch's logits [n, C], F_A of features and texture, F_G of texture
alone. In use: F_P, of features alone, which is the network itself.
Labels: y; no bias labels. Pictures alone.
Defaults: 16 grey levels, 32 texture features, as in the official code; co-occurrence of a pixel and its neighbour.
Departures: features are not normalised across the batch, else an answer would depend on its neighbours; F_Gᵀ F_G
has a ridge, since it is singular in a batch smaller than C or where texture is dead; grey is the mean of the
channels between the least and the greatest of the first 512 samples; co-occurrences are means and not sums over
pixels.
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
from bise.methods.shared.stages import drawn_by, last_linear, train_stage

SEEN = 512
"""Samples by which grey levels are scaled."""


@dataclass(frozen=True, kw_only=True)
class HexConfig:
    """How texture is described."""

    levels: int = option(16, above=1)
    """Of grey."""
    width: int = option(32, above=0)
    """Texture features."""
    ridge: float = option(1e-3, above=0)
    """Added to F_Gᵀ F_G, as a share of its mean diagonal."""

    def __post_init__(self) -> None:
        check_options(self)


def projected(both: Tensor, texture: Tensor, ridge: float) -> Tensor:
    """F_A − F_G (F_Gᵀ F_G + ε 1)⁻¹ F_Gᵀ F_A [n, C]."""
    gram = texture.T @ texture
    least = ridge * gram.diagonal().mean() + 1e-6
    gram = gram + least * torch.eye(len(gram), device=gram.device)
    return both - texture @ torch.linalg.solve_ex(gram, texture.T @ both)[0]


def co_occurrence(grey: Tensor, here: Tensor, there: Tensor) -> Tensor:
    """[n, k, k]: means over pixels of clamp(right neighbour − λ_i) · clamp(pixel − θ_j), clamped to 1e-5 … 1.

    `grey` [n, h, w] counts levels from 0; θ = `here` [k] and λ = `there` [k] are learned thresholds.
    """
    pixel, neighbour = grey[:, :, :-1].flatten(1), grey[:, :, 1:].flatten(1)
    one = (neighbour[:, None] - there[:, None]).clamp(1e-5, 1)
    other = (pixel[:, None] - here[:, None]).clamp(1e-5, 1)
    return one @ other.transpose(1, 2) / pixel.shape[1]


class _Learner(Learner):
    y: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, network: nn.Module, name: str, y: Tensor, seen: Tensor, classes: int, config: HexConfig) -> None:
        super().__init__(network)
        self.name, self.config = name, config
        k = config.levels
        self.here, self.there = (nn.Parameter(torch.rand(k) * k) for _ in range(2))
        self.describe, self.answer = nn.Linear(k * k, config.width), nn.Linear(config.width, classes, bias=False)
        self.register_buffer("y", y)
        self.register_buffer("low", seen.mean(1).min())
        self.register_buffer("high", seen.mean(1).max())

    def loss(self, x: Any, index: Tensor) -> Tensor:
        grey = (x.float().mean(1) - self.low) / (self.high - self.low).clamp_min(1e-6) * (self.config.levels - 1)
        g = self.describe(co_occurrence(grey, self.here, self.there).flatten(1)).relu()
        last: Any = self.network.get_submodule(self.name)
        texture = self.answer(g) if last.bias is None else self.answer(g) + last.bias
        return F.cross_entropy(projected(self.logits(x) + self.answer(g), texture, self.config.ridge), self.y[index])


def hex(start: Start, train: Any, val: Any, config: HexConfig, setting: Setting) -> nn.Module:
    """The network, trained anew on what texture doesn't say."""
    cells = labels(train, need_bias=False)
    seen = Inputs(train, setting.device).example(SEEN)
    if not isinstance(seen, Tensor) or seen.dim() != 4 or seen.shape[3] < 2:
        raise BadInput("hex describes the texture of pictures, [samples, channels, height, width], and these are none")
    model = fresh(start, setting.device)
    name, layer = last_linear(model, train, setting)
    if layer.out_features < 2:
        raise BadInput(f"{name} has one output; hex projects the logits of two classes or more")
    with drawn_by(setting.seed):
        learner = _Learner(model, name, cells.y, seen.float().cpu(), layer.out_features, config)
    return train_stage(learner.to(setting.device), train, val, setting, need_bias=False).network
