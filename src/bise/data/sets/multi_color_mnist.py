"""Multi-Color MNIST (Li et al. 2022): white digits on a left and a right background colour; both go with the class."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from bise.base.checking import check_share
from bise.base.errors import BadInput
from bise.data.core.contract import Deferred, Labelled
from bise.data.core.naming import digit_and
from bise.data.core.transforms import Transform
from bise.data.sets.mnist import digits

LEFT = (
    (0.9837, 0.3125, 0.1686), (0.9905, 0.9156, 0.3515), (0.6730, 0.4611, 0.5798), (0.7833, 0.8316, 0.6013),
    (0.0880, 0.7780, 0.9818), (0.3214, 0.9611, 0.4465), (0.0246, 0.2357, 0.7587), (0.5552, 0.1016, 0.7618),
    (0.2077, 0.3929, 0.0187), (0.8337, 0.2024, 0.2669),
)  # fmt: skip
"""Colours of the left half by number; the right half has their complements, 1 − colour."""
SPREAD = {1: 0.05, 2: 0.02, 3: 0.01, 4: 0.005, 5: 0.002}
"""Standard deviation of the colour noise by severity."""
CHUNK = 5_000


def multi_color_mnist(
    split: str,
    *,
    rho: float | tuple[float, float] = (0.99, 0.95),
    seed: int = 0,
    protocol: str = "held-out",
    severity: int = 4,
    root: str | Path | None = None,
) -> Labelled:
    """The train, val or test split [N, 3, 28, 28], kept as bytes; b is (left colour, right colour).

    `rho` is the share of aligned samples on the left and on the right, or one number for both; val and test have
    0.1. `protocol="held-out"` hands pictures out in [0, 1] and keeps 10,000 training digits for val alone.
    `protocol="paper"` trains on all 60,000 and divides by 255 twice, as the sources do, on which the published
    figures depend; the source has no val, so ours recolours 10,000 training digits. `protocol="authors"` is the same.
    """
    protocol = "paper" if protocol == "authors" else protocol
    if severity not in SPREAD:
        raise BadInput(f"severity={severity} is unknown; give 1 (most noise) to 5")
    shares = _pair(rho)
    found = digits(split, seed=seed, protocol=protocol, root=root)
    b = assign(found.y, *(shares if split == "train" else (0.1, 0.1)))
    return Labelled(
        Deferred(lambda: colour(found.images(), b, SPREAD[severity], found.generator), len(b)),
        y=found.y,
        b=b,
        classes=10,
        bias_classes=(10, 10),
        aligned=[(digit, digit) for digit in range(10)],
        groups="alignment",
        transform=Transform(mean=(0.0,), std=(255.0 if protocol == "paper" else 1.0,)),
        names=digit_and("left colour", "right colour"),
    )


def assign(y: Tensor, left: float, right: float) -> Tensor:
    """[N, 2] colours: each digit's samples, in order, are cut at the rounded cumulative shares of the 100 pairs.

    The two sides are independent given y, so a pair's share is a product. Rounding the cumulative shares instead of
    each one keeps the counts within one sample of what they should be, however rare the pair.
    """
    b = torch.empty(len(y), 2, dtype=torch.long)
    for digit in range(10):
        index = (y == digit).nonzero().flatten()
        sides = []
        for rho in (left, right):
            side = torch.full((10,), (1 - rho) / 9, dtype=torch.float64)
            side[digit] = rho
            sides.append(side)
        ends = ((sides[0][:, None] * sides[1]).flatten().cumsum(0) * len(index)).round().long()
        ends[-1] = len(index)
        pair = torch.searchsorted(ends, torch.arange(len(index)), right=True)
        b[index] = torch.stack([pair // 10, pair % 10], 1)
    return b


def colour(images: Tensor, b: Tensor, spread: float, generator: torch.Generator) -> Tensor:
    """uint8 [N, 3, 28, 28]: each half's colour, with one draw of noise, added to all but the fully white pixels."""
    left = torch.tensor(LEFT, dtype=torch.float32)
    shades = torch.stack([left[b[:, 0]], 1 - left[b[:, 1]]], 1)  # [N, 2, 3]
    noise = torch.randn(shades.shape, generator=generator, dtype=torch.float32)
    shades = (shades + spread * noise).clamp(0, 1) * 255
    out = torch.empty(len(images), 3, *images.shape[1:], dtype=torch.uint8)
    half = images.shape[2] // 2
    for start in range(0, len(images), CHUNK):  # as floats, all of it at once would take 0.6 GB
        part = slice(start, start + CHUNK)
        grey = images[part, None].float()
        ground = shades[part, :, :, None, None].expand(-1, -1, -1, images.shape[1], half)
        ground = torch.cat([ground[:, 0], ground[:, 1]], 3)
        out[part] = torch.where(grey == 255, grey, (grey + ground).clamp(0, 255)).to(torch.uint8)
    return out


def _pair(rho: float | tuple[float, float]) -> tuple[float, float]:
    pair = tuple(rho) if isinstance(rho, (tuple, list)) else (rho, rho)
    if len(pair) != 2:
        raise BadInput(f"rho={rho} has {len(pair)} entries; give two, left and right, or one number for both")
    for share in pair:
        check_share(share)
    return pair[0], pair[1]
