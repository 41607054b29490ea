"""JPEG compression of whole batches, without a file: what Pillow's encoder and decoder make of a 32 × 32 picture."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from bise.data.sets.draws import Draws

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

# factors of the DCT by Loeffler, Ligtenberg and Moschytz (1989): sums of cosines
CONSTANTS = (
    0.541196100, 0.765366865, 1.847759065, 1.175875602, 0.899976223, 2.562915447,
    1.961570560, 0.390180644, 0.298631336, 2.053119869, 3.072711026, 1.501321110,
)  # fmt: skip


def jpeg_compression(x: Tensor, severity: int, draws: Draws) -> Tensor:
    return compressed(x, (80, 65, 58, 50, 40)[severity - 1])


def compressed(x: Tensor, quality: int) -> Tensor:
    """[n, 3, H, W] in [0, 1] through JPEG with chroma at half resolution; H and W are multiples of 16."""
    rgb = (x * 255).round().double()
    y = _weighted(rgb, (0.299, 0.587, 0.114))
    # a tie goes down here, up elsewhere
    cb = _weighted(rgb, (-0.16874, -0.33126, 0.5), tie=-1) + 128
    cr = _weighted(rgb, (0.5, -0.41869, -0.08131), tie=-1) + 128
    y = _coded(y, _table(LUMINANCE, quality))
    colour = torch.stack([_enlarged(_coded(_halved(c), _table(CHROMINANCE, quality))) - 128 for c in (cb, cr)], 1)
    shifts = [_weighted(colour, weights) for weights in ((0.0, 1.402), (-0.34414, -0.71414), (1.772, 0.0))]
    return ((y[:, None] + torch.stack(shifts, 1)).clamp(0, 255) / 255).to(x.dtype)


def _weighted(x: Tensor, weights: tuple[float, ...], tie: int = 0) -> Tensor:
    """[n, H, W]: the weighted sum of channels, rounded, with weights of 16 bits as in libjpeg."""
    fixed = [math.copysign(math.floor(abs(w) * 65536 + 0.5), w) for w in weights]
    total = sum(f * channel for f, channel in zip(fixed, x.unbind(1), strict=True))
    assert isinstance(total, Tensor)
    return torch.floor((total + 32768 + tie) / 65536)


def _table(base: tuple[tuple[int, ...], ...], quality: int) -> Tensor:
    """[8, 8]: the quantisation table of libjpeg's quality from 1 to 100."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    return ((torch.tensor(base) * scale + 50) // 100).clamp(1, 255).float()


def _coded(plane: Tensor, table: Tensor) -> Tensor:
    """[n, H, W] with the DCT of each 8 × 8 block rounded to multiples of the table; whole numbers all the way."""
    n, height, width = plane.shape
    table, dct = table.to(plane.device).double(), _dct().to(plane.device)
    blocks = (plane.double() - 128).view(n, height // 8, 8, width // 8, 8).transpose(2, 3)
    # forwards rows come first, backwards columns; each pass ends in a shift to the right that rounds
    frequencies = _shifted(dct @ _shifted(blocks @ dct.T, 11), 15)
    steps = frequencies.sign() * torch.floor(frequencies.abs() / (8 * table) + 0.5)
    out = _shifted(_shifted(dct.T @ (steps * table), 11) @ dct, 18)
    return (out.transpose(2, 3).reshape(n, height, width) + 128).clamp(0, 255).to(plane.dtype)


def _shifted(x: Tensor, bits: int) -> Tensor:
    return torch.floor(x / (1 << bits) + 0.5)


def _dct() -> Tensor:
    """[8, 8] of whole numbers: √8 · 2¹³ times the DCT, as the "slow integer" method of libjpeg adds it up.

    It multiplies by constants of 13 bits and rounds only after each pass, so that a pass is one matrix.
    """
    c = [round(8192 * v) for v in CONSTANTS]
    rows = torch.zeros(8, 8, dtype=torch.float64)
    ends = torch.eye(4, dtype=torch.float64)
    sums, differences = torch.cat([ends, ends.flip(1)], 1), torch.cat([ends, -ends.flip(1)], 1)
    rows[0] = 8192 * sums.sum(0)
    rows[4] = 8192 * (sums[0] - sums[1] - sums[2] + sums[3])
    inner, outer = sums[1] - sums[2], sums[0] - sums[3]
    rows[2] = c[0] * (inner + outer) + c[1] * outer
    rows[6] = c[0] * (inner + outer) - c[2] * inner
    t7, t6, t5, t4 = differences
    every = c[3] * (t4 + t5 + t6 + t7)
    z1, z2, z3, z4 = -c[4] * (t4 + t7), -c[5] * (t5 + t6), every - c[6] * (t4 + t6), every - c[7] * (t5 + t7)
    rows[7], rows[5] = c[8] * t4 + z1 + z3, c[9] * t5 + z2 + z4
    rows[3], rows[1] = c[10] * t6 + z2 + z3, c[11] * t7 + z1 + z4
    return rows


def _halved(plane: Tensor) -> Tensor:
    """Means of 2 × 2, where libjpeg rounds sums of 4 up by 1 and by 2 in turn along a row."""
    total = F.avg_pool2d(plane[:, None], 2)[:, 0] * 4
    bias = 1.0 + torch.arange(total.shape[-1], dtype=total.dtype, device=plane.device) % 2
    return torch.floor((total + bias) / 4)


def _enlarged(plane: Tensor) -> Tensor:
    """libjpeg's "fancy" doubling: 3/4 of the nearer pixel and 1/4 of the next one, both ways."""
    wide = F.pad(plane[:, None], [1] * 4, mode="replicate")[:, 0]
    near = wide[:, 1:-1]
    rows = torch.stack([3 * near + wide[:, :-2], 3 * near + wide[:, 2:]], 2).flatten(1, 2)
    near = rows[..., 1:-1]
    left, right = (3 * near + rows[..., :-2] + 8) / 16, (3 * near + rows[..., 2:] + 7) / 16
    return torch.floor(torch.stack([left, right], -1).flatten(2))
