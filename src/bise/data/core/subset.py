"""Some of a data set, for runs that need not mean anything."""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.utils.data import Subset

from bise.base.errors import BadInput
from bise.data.core.contract import Deferred, Labelled
from bise.data.core.tokens import Sentences


def subset(labelled: Labelled, count: int, seed: int = 0) -> Labelled:
    """`count` samples drawn by `seed`, in their order; all of them where there are no more.

    Drawn and not the first ones, since some sets are sorted by their bias.
    """
    if count < 1:
        raise BadInput(f"{count} samples are too few; give 1 or more")
    if count >= len(labelled):
        return labelled
    return taken(labelled, torch.randperm(len(labelled), generator=torch.Generator().manual_seed(seed))[:count])


def taken(labelled: Labelled, index: Tensor) -> Labelled:
    """The samples `index`, in the data set's order."""
    index = index.sort().values
    inner = labelled.dataset
    out = copy.copy(labelled)
    if isinstance(inner, Deferred):
        out.dataset = Deferred(lambda: inner.tensors[0][index], len(index))
    elif isinstance(inner, Sentences):
        out.dataset = Sentences(inner.texts.take(index.tolist()), inner.coder)
    else:
        out.dataset = Subset(inner, index.tolist())
    out.y = labelled.y[index]
    out.b = None if labelled.b is None else labelled.b[index]
    return out
