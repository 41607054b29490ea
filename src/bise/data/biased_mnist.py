"""BiasedMNIST (Bahng et al. 2020): white digits on a background whose colour goes with the class."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from bise.data.contract import Deferred, Labelled
from bise.data.idx import data_root, read_idx
from bise.data.transforms import Transform
from bise.errors import BadInput

# the source has 225 in colours 3 and 4, where 255 would be expected
PALETTE = (
    (255, 0, 0), (0, 255, 0), (0, 0, 255), (225, 225, 0), (225, 0, 225),
    (0, 255, 255), (255, 128, 0), (255, 0, 128), (128, 0, 255), (128, 128, 128),
)  # fmt: skip
HELD_OUT = 10_000
"""Validation digits."""


def biased_mnist(
    split: str, *, rho: float = 0.99, seed: int = 0, protocol: str = "held-out", root: str | Path | None = None
) -> Labelled:
    """The train, val or test split [N, 3, 28, 28], kept as bytes and handed out in [−1, 1].

    val and test have ρ = 0.1: every colour evenly.
    `protocol="held-out"` keeps 10,000 training digits for val alone. `protocol="paper"` trains on all 60,000 and
    recolours 10,000 of them for val.
    """
    if split not in ("train", "val", "test"):
        raise BadInput(f'split={split!r} is unknown; use "train", "val" or "test"')
    if protocol not in ("held-out", "paper"):
        raise BadInput(f'protocol={protocol!r} is unknown; use "held-out" or "paper"')
    if not 0 <= rho <= 1:
        raise BadInput(f"rho={rho} is no share of aligned samples; give a value from 0 to 1")
    folder = data_root(root) / "mnist"
    prefix = "t10k" if split == "test" else "train"
    y = read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz").long()
    kept = torch.arange(len(y))
    if split != "test":
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
        held_out = order[:HELD_OUT]
        kept = held_out if split == "val" else order[HELD_OUT:] if protocol == "held-out" else kept
    y = y[kept]
    generator = torch.Generator().manual_seed(seed * 3 + ("train", "val", "test").index(split))
    b = assign(y, rho if split == "train" else 0.1, generator)
    return Labelled(
        Deferred(lambda: colour(read_idx(folder / f"{prefix}-images-idx3-ubyte.gz")[kept], b), len(y)),
        y=y,
        b=b,
        classes=10,
        bias_classes=10,
        aligned=list(range(10)),
        transform=Transform(mean=(0.5,), std=(0.5,)),
    )


def assign(y: Tensor, rho: float, generator: torch.Generator) -> Tensor:
    """[N] colours: of each digit's n samples int(n·ρ) get its own, the rest in equal chunks the others, shuffled.

    As the source does it, chunks are ceil(rest / 9) long, so that at high ρ some colours get none.
    """
    b = torch.empty_like(y)
    for digit in range(10):
        index = (y == digit).nonzero().flatten()
        index = index[torch.randperm(len(index), generator=generator)]
        own = int(len(index) * rho)
        b[index[:own]] = digit
        rest = index[own:]
        others = torch.tensor([c for c in range(10) if c != digit])[torch.randperm(9, generator=generator)]
        for chunk, other in zip(rest.split(max(1, -(-len(rest) // 9))), others, strict=False):
            b[chunk] = other
    return b


def colour(images: Tensor, b: Tensor) -> Tensor:
    """Every pixel that isn't 0 white, every other one the colour b, as uint8 [N, 3, 28, 28]."""
    ground = torch.tensor(PALETTE, dtype=torch.uint8)[b][:, :, None, None]
    return torch.where(images[:, None] > 0, 255, ground)
