"""LayerNorm over the open units alone, as the authors of the paper put it behind BERT's feed-forward outputs."""

from __future__ import annotations

import torch
from torch import Tensor


def masked_layer_norm(x: Tensor, live: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """x [..., d] normalised over the units where `live` [d] is True; the others pass without scale or shift.

    Mean and variance are sums over the open units, divided by how many there are.
    """
    x = x if x.dtype == torch.float64 else x.float()  # as autocast has it for LayerNorm
    count = live.sum().clamp_min(1)
    centred = x - torch.where(live, x, 0.0).sum(-1, keepdim=True) / count
    variance = torch.where(live, centred, 0.0).square().sum(-1, keepdim=True) / count
    out = centred * (variance + eps).rsqrt()
    if weight is not None:
        out = out * weight
    if bias is not None:
        out = out + bias
    return torch.where(live, out, x)
