"""Which data a run is about, as a hash: a run goes on only with what it began with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Subset

from bise.data.contract import label_tensor, stored, tensors_of
from bise.data.pictures import PictureFiles, Pictures
from bise.data.tokens import Sentences

LOOKED_AT = 1000
"""Pictures whose sizes are looked at, evenly over all of them."""
COMPARED = 8
"""Samples that two splits are compared by, about."""


def data_sha256(dataset: Any) -> str | None:
    """Labels, and inputs as far as they are known without asking for samples; None where there is no data set.

    Tensors and texts go by their content, pictures by their names and sizes; one's own data set, which may draw random
    numbers, by its length and the labels that it has at hand.
    """
    if dataset is None:
        return None
    digest = hashlib.sha256()
    _add(digest, len(dataset))
    for name in ("y", "b"):
        labels = getattr(dataset, name, None)
        if labels is not None:
            _add(digest, label_tensor(labels, name))
    _inputs(digest, stored(dataset)[0])
    return digest.hexdigest()


def same_samples(one: Any, other: Any) -> bool:
    """Whether two data sets of one hash are the very same: a few samples tell, where that knows no more than labels."""
    if one is other:
        return True
    some = range(0, len(one), max(1, len(one) // COMPARED))
    try:
        return all(_equal(one[i], other[i]) for i in some)
    except Exception:  # what can't be read, whoever needs it says so
        return False


def _equal(one: Any, other: Any) -> bool:
    """Whether two samples, nested or not, hold the same values."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(np.array_equal(one, other))


def _inputs(digest: Any, dataset: Any) -> None:
    tensors = tensors_of(dataset)
    if tensors is not None:
        _add(digest, tensors[0])
    elif isinstance(dataset, Sentences):
        _add(digest, [dataset.texts.buffer, torch.tensor(dataset.texts.ends)])
    elif isinstance(dataset, Subset):
        _add(digest, list(dataset.indices))
        _inputs(digest, dataset.dataset)
    elif isinstance(dataset, Pictures):
        if isinstance(dataset, PictureFiles):
            _add(digest, [dataset.paths.buffer, torch.tensor(dataset.paths.ends)])
        for index in range(0, len(dataset), max(1, len(dataset) // LOOKED_AT)):
            source = dataset.source(index)[0]
            _add(digest, _size(source) if isinstance(source, Path) else source)
    else:
        _add(digest, type(dataset).__qualname__)


def _size(path: Path) -> int:
    """Bytes of a file; whoever reads one that isn't there says so."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _add(digest: Any, part: Any) -> None:
    if isinstance(part, list):
        for one in part:
            _add(digest, one)
        return
    if isinstance(part, Tensor):
        digest.update(f"{part.dtype} {tuple(part.shape)}".encode())
        part = part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    elif not isinstance(part, (bytes, bytearray)):
        part = json.dumps(part).encode()
    digest.update(part)
    digest.update(b"\0")
