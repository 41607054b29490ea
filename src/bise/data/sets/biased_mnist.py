"""BiasedMNIST (Bahng et al. 2020): white digits on a background whose colour goes with the class."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bise.base.checking import check_choice, check_share
from bise.data.core.arguments import SEARCH
from bise.data.core.contract import Deferred, Labelled
from bise.data.core.naming import digit_and
from bise.data.core.transforms import Transform
from bise.data.sets.mnist import digits

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
    recolours 10,000 of them for val. `protocol="authors"` does as the authors' code: beside train, all 60,000 digits,
    it has a split "search", 50,000 of them coloured anew, for the masks.
    """
    check_share(rho)
    if protocol == "authors":
        return _authors(split, rho, seed, root)
    found = digits(split, seed=seed, protocol=protocol, root=root)
    b = assign(found.y, rho if split == "train" else 0.1, found.generator)
    return _labelled(found.images, found.y, b)


def _labelled(images: Callable[[], Tensor], y: Tensor, b: Tensor) -> Labelled:
    return Labelled(
        Deferred(lambda: colour(images(), b), len(b)),
        y=y,
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


DRAWINGS = ("train", SEARCH, "val", "test")
"""The authors' drawings of colours, in their order."""


def _authors(split: str, rho: float, seed: int, root: str | Path | None) -> Labelled:
    """One of four drawings from one generator: all digits, 50,000 coloured anew, 10,000 and the test digits evenly.

    The colours are those of the authors' code for a seed; which digits are the 50,000 and the 10,000 isn't.
    """
    check_choice("split", split, DRAWINGS)
    found = digits("test" if split == "test" else "train", seed=seed, protocol="paper", root=root)
    whole = found if split != "test" else digits("train", seed=seed, protocol="paper", root=root)
    random = np.random.RandomState(seed)
    for drawing in DRAWINGS[: DRAWINGS.index(split) + 1]:
        y = found.y if drawing == "test" else whole.y
        b = drawn(y, rho if drawing in ("train", SEARCH) else 0.1, random)
    shuffled = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(whole.y), generator=shuffled) for _ in range(2)]
    held = len(whole.y) // 6
    kept = {SEARCH: orders[0][:-held], "val": orders[1][-held:]}.get(split)
    if kept is None:
        return _labelled(found.images, y, b)
    kept = kept.sort().values
    return _labelled(lambda: found.images()[kept], y[kept], b[kept])


def drawn(y: Tensor, rho: float, random: np.random.RandomState) -> Tensor:
    """[N] colours: as `assign`, by a generator of NumPy's that goes on as the authors' does from drawing to drawing."""
    b = torch.empty_like(y)
    for digit in range(10):
        index = (y == digit).nonzero().flatten().numpy()
        random.shuffle(index)
        others = [(digit + step) % 10 for step in range(1, 10)]
        own = int(len(index) * rho)
        random.shuffle(others)
        b[torch.from_numpy(index[:own])] = digit
        rest = torch.from_numpy(index[own:])
        for chunk, other in zip(rest.split(max(1, -(-len(rest) // 9))), others, strict=False):
            b[chunk] = other
    random.shuffle(np.arange(len(y)))  # the order of the samples, which is drawn anew in each epoch
    return b


def colour(images: Tensor, b: Tensor) -> Tensor:
    """Every pixel that isn't 0 white, every other one the colour b, as uint8 [N, 3, 28, 28]."""
    ground = torch.tensor(PALETTE, dtype=torch.uint8)[b][:, :, None, None]
    return torch.where(images[:, None] > 0, 255, ground)
