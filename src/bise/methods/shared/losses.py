"""Losses that several methods share, as functions of tensors with fixed shapes, so that a GPU can record them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def contrastive(z: Tensor, positives: Tensor, tau: float, *, among: Tensor | None = None) -> Tensor:
    """Mean over anchors i of −Σ_p w_ip ln(e^{s_ip/τ} / Σ_a e^{s_ia/τ}) / Σ_p w_ip, with s the cosines of z [n, d].

    `positives` [n, n] are the weights w, 0 on the diagonal. a runs over all others, or over those that `among` [n, n]
    names. An anchor without positives counts as 0, and stays in the mean.
    """
    z = F.normalize(z.float(), dim=1)
    own = torch.eye(len(z), dtype=torch.bool, device=z.device)
    left_out = own if among is None else own | ~among
    s = z @ z.T / tau
    # finite, since an anchor that has nobody to be held against would make the gradient NaN
    total = s.masked_fill(left_out, -1e30).logsumexp(1, keepdim=True)
    weights = positives.to(s.dtype).masked_fill(left_out, 0.0)
    each = -(weights * (s - total)).sum(1) / weights.sum(1).clamp_min(1e-12)
    return each.mean()


def generalised(logits: Tensor, y: Tensor, q: float) -> Tensor:
    """[n]: cross-entropies, each weighed by q · p_y^q without a gradient: what is easy counts more."""
    errors = F.cross_entropy(logits, y, reduction="none")
    return (-errors.detach() * q).exp() * q * errors


def running(table: Tensor, seen: Tensor, index: Tensor, values: Tensor, alpha: float) -> None:
    """table[i] ← α · table[i] + (1 − α) · value, and the value itself where i is seen for the first time."""
    old, known = table[index], seen[index]
    table[index] = torch.where(known, alpha * old + (1 - alpha) * values, values)
    seen.index_fill_(0, index, True)


def by_class(table: Tensor, y: Tensor, classes: int) -> Tensor:
    """[C]: the largest value of the table [N] in each class."""
    return table.new_zeros(classes).scatter_reduce(0, y, table, "amax", include_self=True)


def relative_difficulty(biased: Tensor, debiased: Tensor) -> Tensor:
    """W = L_b / (L_b + L_d + 1e-8) [n]: near 1 where the biased network fails."""
    return biased / (biased + debiased + 1e-8)


def held(values: Tensor) -> Tensor:
    """`values` [n, …] themselves, whose gradient is at most 1/√n long, as cross-entropy's is."""
    if values.requires_grad:
        values.register_hook(lambda gradient: gradient / (gradient.norm() * len(values) ** 0.5).clamp_min(1))
    return values
