"""The cross-entropy of equation 4, weighted by sample, with margins by p(y | b) and smoothed targets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from bise.data.core.cells import Cells


def cross_entropies(
    logits: Tensor, y: Tensor, *, b: Tensor | None = None, priors: Sequence[Tensor] = (), smoothing: float = 0.0
) -> Tensor:
    """ℓ(ŷ_j, y_j) of each sample [N].

    With `priors`, [|B_k| + 1, |Y|] for each bias, the logits are raised by their mean over the biases first: a class
    that goes with b has to be beaten by that much more, so that even a sample that is classified well still says
    something. `smoothing` is the share of the target that is spread over all classes.
    """
    logits = logits.float()
    if priors:
        assert b is not None
        logits = logits + torch.stack([prior[b[:, k]] for k, prior in enumerate(priors)]).mean(0)
    return F.cross_entropy(logits, y, reduction="none", label_smoothing=smoothing)


def weighted_mean(values: Tensor, weights: Tensor | None, samples: Tensor | None = None) -> Tensor:
    """1/N Σ_j r_j ℓ_j (equation 4); the plain mean without weights.

    N is `samples` where `values` are this process's part of a batch, whose means add up to the batch's.
    """
    values = values if weights is None else values * weights
    return values.mean() if samples is None else values.sum() / samples


def margins(cells: Cells, margin: float, classes: int, device: torch.device) -> list[Tensor]:
    """What logits are raised by for each b of each bias; nothing at all without a margin."""
    if not margin:
        return []
    return [margin * prior.to(device) for prior in log_priors(cells.y, cells.b, classes, cells.bias_classes)]


def log_priors(y: Tensor, b: Tensor, classes: int, bias_classes: tuple[int, ...]) -> list[Tensor]:
    """ln p(y | b_k) [|B_k| + 1, |Y|] of each bias, by counts with one added to each; the last row, 0, is for b = −1."""
    out = []
    for k, size in enumerate(bias_classes):
        known = b[:, k] >= 0
        counts = torch.bincount(b[known, k] * classes + y[known], minlength=size * classes).view(size, classes)
        counts = counts.float() + 1
        out.append(torch.cat([(counts / counts.sum(1, keepdim=True)).log(), counts.new_zeros(1, classes)]))
    return out
