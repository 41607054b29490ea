"""Drops of water: edges of a liquid layer, distances from them, and an embossed shine; OpenCV's steps on batches."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

WATER = (175, 238, 238)
LOW, HIGH = 50, 150
"""Gradients from which an edge may go on, and from which it starts."""
FAR = 20.0
"""Distances are cut off here, in pixels."""
EMBOSS = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))
# moves of the 5 × 5 chamfer distance and their lengths, as OpenCV has them
MOVES = ((0, 1, 1.0), (1, 1, 1.4), (1, 2, 2.1969))
TAN_22_5 = 0.41421356


def water(x: Tensor, liquid: Tensor, strength: float) -> Tensor:
    """Pictures [n, 3, H, W] with drops where liquid [n, H, W] isn't 0, lit from one side."""
    liquid = torch.floor(liquid * 255) % 256  # where the liquid is above 1, the source's bytes wrap around
    away = torch.floor(_mean(distances(edges(liquid))) + 1e-4)
    shine = _correlated(equalised(away), torch.tensor(EMBOSS)).clamp(0, 255)
    drops = liquid * torch.round(_mean(shine))
    drops = drops / drops.amax((1, 2), keepdim=True).clamp_min(1e-6) * strength
    return x + drops[:, None] * torch.tensor(WATER, dtype=x.dtype, device=x.device).view(1, 3, 1, 1) / 255


def edges(picture: Tensor) -> Tensor:
    """[n, H, W] bool: Canny's edges of bytes, with the sum of both gradients for their size."""
    along = _correlated(picture, torch.tensor(((-1, 0, 1), (-2, 0, 2), (-1, 0, 1))), mode="replicate")
    down = _correlated(picture, torch.tensor(((-1, -2, -1), (0, 0, 0), (1, 2, 1))), mode="replicate")
    size = along.abs() + down.abs()
    around = {(i, j): _shifted(size, i, j, 0.0) for i in (-1, 0, 1) for j in (-1, 0, 1)}
    flat, steep = down.abs() < TAN_22_5 * along.abs(), down.abs() > (TAN_22_5 + 2) * along.abs()
    falling = (along * down) < 0
    # a ridge is larger than what lies before it across the edge, and at least as large as what lies behind
    across = (size > around[0, -1]) & (size >= around[0, 1])
    upright = (size > around[-1, 0]) & (size >= around[1, 0])
    rising = (size > around[-1, -1]) & (size > around[1, 1])
    sinking = (size > around[-1, 1]) & (size > around[1, -1])
    ridge = torch.where(flat, across, torch.where(steep, upright, torch.where(falling, sinking, rising)))
    ridge = ridge & (size > LOW)
    found = ridge & (size > HIGH)
    while True:  # edges go on along ridges
        wider = (F.max_pool2d(found[:, None].float(), 3, stride=1, padding=1)[:, 0] > 0) & ridge
        if torch.equal(wider, found):
            return found
        found = wider


def distances(edge: Tensor) -> Tensor:
    """[n, H, W]: the chamfer distance to the nearest edge, at most FAR."""
    away = FAR * (~edge).float()
    moves = {(i * a, j * b, length) for a0, b0, length in MOVES for a, b in ((a0, b0), (b0, a0)) for i, j in _SIGNS}
    while True:
        nearer = away
        for i, j, length in moves:
            nearer = torch.minimum(nearer, _shifted(nearer, i, j, FAR) + length)
        if torch.equal(nearer, away):
            return away
        away = nearer


def equalised(picture: Tensor) -> Tensor:
    """[n, H, W] of bytes with the histogram of each spread evenly over 0 … 255; one grey stays as it is."""
    level = picture.long().flatten(1)
    counts = torch.zeros(len(level), 256, dtype=picture.dtype, device=picture.device).scatter_add_(
        1, level, torch.ones_like(picture.flatten(1))
    )
    total = level.shape[1]
    least = level.amin(1, keepdim=True)
    lowest = counts.gather(1, least)
    table = torch.round((counts.cumsum(1) - lowest) * (255 / (total - lowest).clamp_min(1))).clamp(0, 255)
    table = torch.where(lowest == total, torch.arange(256, device=picture.device).float(), table)
    return table.gather(1, level).view_as(picture)


_SIGNS = ((1, 1), (1, -1), (-1, 1), (-1, -1))


def _shifted(x: Tensor, down: int, right: int, outside: float) -> Tensor:
    """[n, H, W] whose pixel (i, j) is x at (i + down, j + right)."""
    height, width = x.shape[1:]
    return F.pad(x, [2] * 4, value=outside)[:, 2 + down : 2 + down + height, 2 + right : 2 + right + width]


def _correlated(x: Tensor, kernel: Tensor, mode: str = "reflect") -> Tensor:
    return F.conv2d(F.pad(x[:, None], [1] * 4, mode=mode), kernel.to(x)[None, None])[:, 0]


def _mean(x: Tensor) -> Tensor:
    return _correlated(x, torch.full((3, 3), 1 / 9))
