"""LEACE: the bottleneck's features are changed as little as possible so that no linear classifier reads b from them.

Idea: project out, in whitened space, the directions in which features covary with the concept, in closed form
(Belrose et al. 2023).
Formula: z ← z − W⁺ P W (z − μ), with W = Σ_zz^{−1/2} and P the orthogonal projection onto the columns of W Σ_zb.
Labels: y, b.
Defaults: none to choose.
Departures: means and covariances weigh the cells (y, b) evenly: with natural shares, b would stand for y where the
two go together, and erasing it would erase the target. What comes out is written into the last layer, which computes
the same.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bise.data.core.contract import labels
from bise.data.core.sampling import strata
from bise.data.core.weights import group_weights
from bise.methods.shared.interface import Setting, Start, vanilla
from bise.methods.shared.stages import drawn_by, last_linear, outputs_of, single_bias

NOISE = 1e-9
"""Directions whose variance, or singular value, is below this share of the largest are taken for none."""


@dataclass(frozen=True, kw_only=True)
class LeaceConfig:
    """LEACE has no settings of its own."""


def eraser(z: Tensor, b: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """(A [d, d], c [d]) in float64: A z + c has no linear relation to the one-hot b under these weights [N]."""
    z, share = z.double(), (weights / weights.sum()).double()
    concept = F.one_hot(b).double()
    mean = share @ z
    centred, about = z - mean, concept - share @ concept
    covariance = centred.T @ (share[:, None] * centred)
    across = centred.T @ (share[:, None] * about)
    values, vectors = torch.linalg.eigh(covariance)
    kept = values > NOISE * values.max()
    whitening = vectors[:, kept] @ torch.diag(values[kept].rsqrt()) @ vectors[:, kept].T
    colouring = vectors[:, kept] @ torch.diag(values[kept].sqrt()) @ vectors[:, kept].T
    left, size, _ = torch.linalg.svd(whitening @ across, full_matrices=False)
    columns = left[:, size > NOISE * size.max().clamp_min(1e-300)]
    matrix = torch.eye(len(mean), dtype=torch.float64) - colouring @ columns @ columns.T @ whitening
    return matrix, mean - matrix @ mean


def leace(start: Start, train: Any, val: Any, config: LeaceConfig, setting: Setting) -> nn.Module:
    """The vanilla model whose last layer reads erased features."""
    model = vanilla(start)
    cells = labels(train)
    b = single_bias(cells, "leace")
    name, layer = last_linear(model, train, setting)
    z = outputs_of(model, train, setting, name)[1]
    matrix, shift = (part.to(layer.weight.device) for part in eraser(z, b, group_weights(strata(cells, "cells"))))
    out = copy.deepcopy(model)
    with torch.no_grad():
        weight = layer.weight.double()
        with drawn_by(setting.seed):
            erased = nn.Linear(layer.in_features, layer.out_features, device=layer.weight.device)
        erased.weight.copy_(weight @ matrix)
        erased.bias.copy_(weight @ shift + (0 if layer.bias is None else layer.bias.double()))
    where, _, key = name.rpartition(".")
    setattr(out.get_submodule(where), key, erased)
    return out.eval()
