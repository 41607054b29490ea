"""JPEG compression of whole batches, without a file: what Pillow's encoder and decoder make of a 32 × 32 picture."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from bise.data.draws import Draws

# tables K.1 and K.2 of the JPEG standard (ITU-T T.81), which libjpeg scales by quality
LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61), (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56), (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77), (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101), (72, 92, 95, 98, 112, 100, 103, 99),
)  # fmt: skip
CHROMINANCE = (
    (17, 18, 24, 47, 99, 99, 99, 99), (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99), (47, 66, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99), (99, 99, 99, 99, 99, 99, 99, 99),
    (99, 99, 99, 99, 99, 99, 99, 99), (99, 99, 99, 99, 99, 99, 99, 99),
)  # fmt: skip


def jpeg_compression(x: Tensor, severity: int, draws: Draws) -> Tensor:
    return compressed(x, (80, 65, 58, 50, 40)[severity - 1])


def compressed(x: Tensor, quality: int) -> Tensor:
    """[n, 3, H, W] in [0, 1] through JPEG with chroma at half resolution; H and W are multiples of 16."""
    red, green, blue = (x * 255).round().unbind(1)
    y = _nearest(0.299 * red + 0.587 * green + 0.114 * blue)
    cb = _nearest(-0.168735892 * red - 0.331264108 * green + 0.5 * blue + 128)
    cr = _nearest(0.5 * red - 0.418687589 * green - 0.081312411 * blue + 128)
    y = _coded(y, _table(LUMINANCE, quality))
    cb, cr = (_enlarged(_coded(_halved(c), _table(CHROMINANCE, quality))) - 128 for c in (cb, cr))
    rgb = (
        y + _nearest(1.402 * cr),
        y + _nearest(-0.344136286 * cb - 0.714136286 * cr),
        y + _nearest(1.772 * cb),
    )
    return torch.stack(rgb, 1).clamp(0, 255) / 255


def _nearest(x: Tensor) -> Tensor:
    return torch.floor(x + 0.5)


def _table(base: tuple[tuple[int, ...], ...], quality: int) -> Tensor:
    """[8, 8]: the quantisation table of libjpeg's quality from 1 to 100."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    return ((torch.tensor(base) * scale + 50) // 100).clamp(1, 255).float()


def _coded(plane: Tensor, table: Tensor) -> Tensor:
    """[n, H, W] with the DCT of each 8 × 8 block rounded to multiples of the table."""
    n, height, width = plane.shape
    table = table.to(plane.device)
    frequency, place = torch.arange(8)[:, None], torch.arange(8)[None]
    dct = torch.cos(math.pi * (2 * place + 1) * frequency / 16) * math.sqrt(2 / 8)
    dct[0] /= math.sqrt(2)
    dct = dct.to(plane.device)
    blocks = (plane - 128).view(n, height // 8, 8, width // 8, 8).transpose(2, 3)
    steps = (dct @ blocks @ dct.T) / table
    steps = steps.sign() * torch.floor(steps.abs() + 0.5)
    out = dct.T @ (steps * table) @ dct
    return (_nearest(out.transpose(2, 3).reshape(n, height, width)) + 128).clamp(0, 255)


def _halved(plane: Tensor) -> Tensor:
    """Means of 2 × 2, where libjpeg rounds sums of 4 up by 1 and by 2 in turn along a row."""
    total = F.avg_pool2d(plane[:, None], 2)[:, 0] * 4
    bias = 1.0 + torch.arange(total.shape[-1], device=plane.device) % 2
    return torch.floor((total + bias) / 4)


def _enlarged(plane: Tensor) -> Tensor:
    """libjpeg's "fancy" doubling: 3/4 of the nearer pixel and 1/4 of the next one, both ways."""
    wide = F.pad(plane[:, None], [1] * 4, mode="replicate")[:, 0]
    near = wide[:, 1:-1]
    rows = torch.stack([3 * near + wide[:, :-2], 3 * near + wide[:, 2:]], 2).flatten(1, 2)
    near = rows[..., 1:-1]
    left, right = (3 * near + rows[..., :-2] + 8) / 16, (3 * near + rows[..., 2:] + 7) / 16
    return torch.floor(torch.stack([left, right], -1).flatten(2))
