"""Wrong bias labels on purpose: how much of them a method bears."""

from __future__ import annotations

import copy
from typing import Any

import torch

from bise.base.errors import BadInput
from bise.data.core.contract import Labelled, labels, unloaded


def noisy_bias(labelled: Any, p: float, seed: int = 0) -> Labelled:
    """The same data with another random b for round(p · N) of the N samples whose b is known.

    Where there are several biases, each of a chosen sample's labels changes.

    Args:
        labelled: A data set or DataLoader that yields (x, y, b).
        p: The share of samples, from 0 to 1.
        seed: Draws them.

    Returns:
        A data set; all else is as it was.

    Raises:
        BadInput: p is no share, or a bias has one value only.

    Example:
        >>> int((bise.data.noisy_bias(train, 0.1).b != train.b).sum())
        300
    """
    if not 0 <= p <= 1:
        raise BadInput(f"p={p} is no share of samples; give a value from 0 to 1")
    labelled = unloaded(labelled)
    cells = labels(labelled)
    if not isinstance(labelled, Labelled):
        labelled = Labelled(labelled, y=cells.y, b=cells.b[:, 0] if cells.biases == 1 else cells.b)
    if min(cells.bias_classes) < 2:
        raise BadInput(f"a bias with {min(cells.bias_classes)} value has no other to change to; give at least two")
    generator = torch.Generator().manual_seed(seed)
    known = cells.known.nonzero().flatten()
    chosen = known[torch.randperm(len(known), generator=generator)[: round(p * len(known))]]
    b = cells.b.clone()
    for k, size in enumerate(cells.bias_classes):
        step = torch.randint(1, size, (len(chosen),), generator=generator)  # never 0, so never the same b
        b[chosen, k] = (b[chosen, k] + step) % size
    noisy = copy.copy(labelled)
    noisy.b = b[:, 0] if labelled.b is not None and labelled.b.dim() == 1 else b
    # the largest label may be gone from the noisy ones; the number of classes stays
    noisy.bias_classes = cells.bias_classes
    return noisy
