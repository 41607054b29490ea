"""b̃ of samples that a method takes for conflicting: the class that their shortcut seems to say."""

from __future__ import annotations

import torch
from torch import Tensor

from bise.base.errors import BadInput


def named(logits: Tensor, y: Tensor, conflicting: Tensor) -> Tensor:
    """b̃ [N]: y of aligned samples, and the likeliest other class of the `conflicting` [N] ones, by `logits` [N, C]."""
    others = logits.scatter(1, y[:, None], -torch.inf)
    return torch.where(conflicting, others.argmax(1), y)


def sides(values: Tensor, cut: float, y: Tensor) -> Tensor:
    """[N] bool: values above the cut; in a class that lies wholly on one side, those above its mean."""
    out = values > cut
    for one in torch.unique(y):
        members = y == one
        if out[members].all() or not out[members].any():
            out[members] = values[members] > values[members].mean()
    return out


def harder(errors: Tensor, part: Tensor, y: Tensor, *, by_class: bool) -> Tensor:
    """[N] bool: of two parts [N] of the samples the one with the larger mean error, in each class or over all."""
    out = torch.zeros_like(part)
    for one in torch.unique(y) if by_class else [None]:
        members = torch.ones_like(part) if one is None else y == one
        first, second = members & part, members & ~part
        if not first.any() or not second.any():
            continue
        out |= first if errors[first].mean() > errors[second].mean() else second
    if not out.any():
        raise BadInput("the two parts that train was cut into are one, so that nothing conflicts; train for longer")
    return out
