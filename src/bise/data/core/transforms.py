"""From stored bytes to what a network takes, a whole batch at a time on its device: augment, scale, normalise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

DRAWS = 3
"""Random numbers that augmenting one picture takes."""


@dataclass(frozen=True, kw_only=True)
class Transform:
    """Pictures [n, C, H, W] of uint8 as float32: (x/255 − mean) / std by channel; augmented where draws are given.

    Draws are made apart from the pictures, so that data held on the device and data streamed to it are augmented
    alike.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    crop: int = 0
    """Random crops of the picture's own size, after padding with this many black pixels on each side."""
    flip: bool = False
    """Mirror left and right, half of the time."""

    @property
    def augments(self) -> bool:
        return self.crop > 0 or self.flip

    def draw(self, count: int, generator: torch.Generator) -> Tensor | None:
        """[count, 3] uniform random numbers for `count` pictures, or None where nothing is augmented."""
        return torch.rand(count, DRAWS, generator=generator, dtype=torch.float32) if self.augments else None

    def __call__(self, x: Tensor, draws: Tensor | None = None) -> Tensor:
        if draws is not None:
            x = self._augmented(x, draws.to(x.device))
        x = x.to(torch.float32, copy=True).div_(255)
        for channels, mean, std in self._by_channel(x):
            channels.sub_(mean).div_(std)
        return x

    def _by_channel(self, x: Tensor) -> Iterator[tuple[Tensor, float, float]]:
        """Numbers rather than tensors: a tensor made on the host would stop a GPU to be copied."""
        if len(set(self.mean)) == len(set(self.std)) == 1:
            yield x, self.mean[0], self.std[0]
        else:
            yield from zip(x.unbind(1), self.mean, self.std, strict=True)

    def _augmented(self, x: Tensor, draws: Tensor) -> Tensor:
        """Each picture cropped and mirrored by its own three numbers: top, left, mirror."""
        n, channels, height, width = x.shape
        offset = (draws[:, :2] * (2 * self.crop + 1)).long()
        rows = offset[:, :1] + torch.arange(height, device=x.device)
        columns = torch.arange(width, device=x.device).expand(n, -1)
        if self.flip:
            columns = torch.where(draws[:, 2:] < 0.5, columns.flip(1), columns)
        columns = columns + offset[:, 1:]
        padded = F.pad(x, [self.crop] * 4) if self.crop else x
        sample = torch.arange(n, device=x.device).view(n, 1, 1, 1)
        channel = torch.arange(channels, device=x.device).view(1, channels, 1, 1)
        return padded[sample, channel, rows.view(n, 1, height, 1), columns.view(n, 1, 1, width)]


JITTER_DRAWS = 5
"""Random numbers that jittering one picture takes."""


def jittered(x: Tensor, draws: Tensor, amount: float) -> Tensor:
    """Pictures [n, C, H, W] of floats, each turned, stretched, slanted and shifted by its own five numbers.

    At an amount of 1 by up to 15 degrees, 15 %, a tenth, and a fourteenth of the picture; beyond its edge a picture
    goes on as it ends.
    """
    turn, stretch, slant, down, right = (amount * (2 * draws.to(x.device) - 1)).unbind(1)
    angle, scale = turn * (math.pi / 12), 1 + 0.15 * stretch
    cos, sin = scale * angle.cos(), scale * angle.sin()
    rows = torch.stack([cos, 0.1 * slant - sin, right / 7, sin, cos, down / 7], 1).view(-1, 2, 3)
    grid = F.affine_grid(rows.to(x.dtype), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, padding_mode="border", align_corners=False)
