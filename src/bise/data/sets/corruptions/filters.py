"""Linear filters as small matrices: what acts along rows and columns of a picture is `matrix @ x @ matrix.T`."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def along_both(x: Tensor, matrix: Tensor) -> Tensor:
    """[…, H, W] with the same matrix applied to rows and columns."""
    matrix = matrix.to(x)
    return matrix @ x @ matrix.T


def gaussian_matrix(size: int, sigma: float, *, truncate: float = 4.0, reflect: bool = False) -> Tensor:
    """[size, size]: a Gaussian cut off at `truncate` σ; beyond the border the edge pixel, or the mirrored picture."""
    radius = int(truncate * sigma + 0.5)
    offsets = torch.arange(-radius, radius + 1)
    weights = torch.exp(-0.5 * (offsets.double() / max(sigma, 1e-12)) ** 2)
    source = torch.arange(size)[:, None] + offsets
    if reflect:  # the edge pixel is mirrored too: b a | a b c
        source = source % (2 * size)
        source = torch.minimum(source, 2 * size - 1 - source)
    return _scattered(source.clamp(0, size - 1), (weights / weights.sum()).expand(size, -1), size)


def zoom_matrix(size: int, factor: float) -> Tensor:
    """[size, size]: the middle ceil(size / factor) pixels stretched linearly, end on end, and trimmed to `size`."""
    inner = math.ceil(size / factor)
    start = (size - inner) // 2
    outer = round(inner * factor)
    trim = (outer - size) // 2
    place = (torch.arange(size).double() + trim) * (inner - 1) / (outer - 1)
    low = place.floor().long().clamp(max=inner - 2)
    rest = place - low
    source = torch.stack([low, low + 1], 1) + start
    return _scattered(source, torch.stack([1 - rest, rest], 1), size)


def box_matrix(before: int, after: int) -> Tensor:
    """[after, before]: the mean of the pixels whose centres fall in each new pixel, as Pillow's BOX filter does it."""
    scale = before / after
    support = max(scale, 1.0) / 2
    rows = torch.zeros(after, before, dtype=torch.float64)
    for i in range(after):
        centre = (i + 0.5) * scale
        low, high = max(0, int(centre - support + 0.5)), min(before, int(centre + support + 0.5))
        rows[i, low:high] = 1 / (high - low)
    return rows


def bumps(size: int, spacing: int, sigma: float) -> Tensor:
    """[size, points]: Gaussian bumps every `spacing` pixels; white noise on them has unit variance everywhere."""
    reach = math.ceil(3 * sigma / spacing) * spacing
    centres = torch.arange(-reach, size + reach, spacing)
    rows = torch.exp(-0.5 * ((torch.arange(size)[:, None] - centres).double() / sigma) ** 2)
    return rows / rows.norm(dim=1, keepdim=True)


def moved(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """[n, C, H, W] whose pixel comes from (rows, columns) [n, H, W], whole numbers; outside lies the edge pixel."""
    n, channels, height, width = x.shape
    place = rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)
    index = place.view(n, 1, -1).expand(-1, channels, -1)
    return x.flatten(2).gather(2, index).view_as(x)


def grid(x: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column numbers [H, 1] and [1, W] of a picture."""
    height, width = x.shape[-2:]
    return torch.arange(height, device=x.device)[:, None], torch.arange(width, device=x.device)[None]


def streaked(x: Tensor, *, radius: float, sigma: float, angle: Tensor) -> Tensor:
    """Motion blur: a half Gaussian along a ray at `angle` [n] degrees, on whole pixels, as ImageMagick draws it."""
    taps = torch.arange(2 * math.ceil(radius) + 1)
    weights = torch.exp(-0.5 * (taps.double() / sigma) ** 2)
    weights = weights / weights.sum()
    radians = torch.deg2rad(angle).view(-1, 1, 1)
    rows, columns = grid(x)
    out = torch.zeros_like(x)
    for tap, weight in zip(taps.tolist(), weights.tolist(), strict=True):
        if weight < 1e-6:  # thousandths of a grey level
            break
        down = torch.ceil(tap * torch.sin(radians) - 0.5).long()
        right = torch.ceil(tap * torch.cos(radians) - 0.5).long()
        out += weight * moved(x, (rows + down).expand(-1, *x.shape[-2:]), (columns + right).expand(-1, *x.shape[-2:]))
    return out


def _scattered(source: Tensor, weights: Tensor, size: int) -> Tensor:
    """[rows, size] with weights [rows, k] added at columns source [rows, k]."""
    return torch.zeros(len(source), size, dtype=torch.float64).scatter_add_(1, source, weights)
