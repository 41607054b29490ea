"""BiasedMNIST (Bahng et al. 2020): white digits on a background whose colour goes with the class."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from bise.data.arguments import check_share
from bise.data.contract import Deferred, Labelled
from bise.data.mnist import digits
from bise.data.naming import digit_and
from bise.data.transforms import Transform

# the source has 225 in colours 3 and 4, where 255 would be expected
PALETTE = (
    (255, 0, 0), (0, 255, 0), (0, 0, 255), (225, 225, 0), (225, 0, 225),
    (0, 255, 255), (255, 128, 0), (255, 0, 128), (128, 0, 255), (128, 128, 128),
)  # fmt: skip


def biased_mnist(
    split: str, *, rho: float = 0.99, seed: int = 0, protocol: str = "held-out", root: str | Path | None = None
) -> Labelled:
    """The train, val or test split [N, 3, 28, 28], kept as bytes and handed out in [−1, 1].

    val and test have ρ = 0.1: every colour evenly.
    `protocol="held-out"` keeps 10,000 training digits for val alone. `protocol="paper"` trains on all 60,000 and
    recolours 10,000 of them for val.
    """
    check_share(rho)
    found = digits(split, seed=seed, protocol=protocol, root=root)
    b = assign(found.y, rho if split == "train" else 0.1, found.generator)
    return Labelled(
        Deferred(lambda: colour(found.images(), b), len(b)),
        y=found.y,
        b=b,
        classes=10,
        bias_classes=10,
        aligned=list(range(10)),
        transform=Transform(mean=(0.5,), std=(0.5,)),
        names=digit_and("colour"),
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
