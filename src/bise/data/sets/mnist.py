"""What the data sets made from MNIST share: its digits, split into train, val and test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bise.base.checking import check_choice
from bise.base.errors import BadInput
from bise.data.core.arguments import SPLITS
from bise.data.sets.idx import data_root, read_idx

PROTOCOLS = ("held-out", "paper")
HELD_OUT = 10_000
"""Validation digits."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Digits:
    """One split's labels, and its pictures for whoever asks."""

    y: Tensor
    """[N]."""
    images: Callable[[], Tensor]
    """Reads the pictures, uint8 [N, 28, 28]."""
    generator: torch.Generator
    """Of this split alone, by the seed."""


def digits(split: str, *, seed: int, protocol: str, root: str | Path | None) -> Digits:
    """The digits of a split. `protocol="held-out"` keeps 10,000 training digits for val alone; `"paper"` trains on all
    60,000, in their own order, and gives 10,000 of them to val as well.
    """
    check_choice("split", split, SPLITS)
    check_choice("protocol", protocol, PROTOCOLS)
    folder = data_root(root) / "mnist"
    prefix = "t10k" if split == "test" else "train"
    y = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz").long()
    if y.dim() != 1 or (len(y) and int(y.max()) > 9):
        raise BadInput(f"{folder}/{prefix}-labels-idx1-ubyte.gz holds no digits from 0 to 9; fetch it again")
    kept = torch.arange(len(y))
    if split != "test":
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
        kept = order[:HELD_OUT] if split == "val" else order[HELD_OUT:] if protocol == "held-out" else kept

    def images() -> Tensor:
        path = folder / f"{prefix}-images-idx3-ubyte.gz"
        found = read_idx(path)
        if found.dim() != 3 or len(found) != len(y):
            raise BadInput(f"{path} has shape {tuple(found.shape)} for {len(y)} labels; fetch both files again")
        return found[kept]

    generator = torch.Generator().manual_seed(seed * 3 + SPLITS.index(split))
    return Digits(y=y[kept], images=images, generator=generator)
