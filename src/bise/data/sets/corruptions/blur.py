"""Blurs: Gaussian, defocus, glass, motion and zoom."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bise.data.sets.corruptions.filters import along_both, gaussian_matrix, grid, moved, streaked, zoom_matrix
from bise.data.sets.draws import Draws


def gaussian_blur(x: Tensor, severity: int, draws: Draws) -> Tensor:
    return along_both(x, gaussian_matrix(x.shape[-1], (0.4, 0.6, 0.7, 0.8, 1.0)[severity - 1]))


def defocus_blur(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """A disk of pixels, itself slightly blurred; the picture is mirrored beyond its border, without the edge pixel."""
    radius, softness = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))[severity - 1]
    kernel = disk(radius, softness).to(x)
    return F.conv2d(F.pad(x, [2] * 4, mode="reflect").flatten(0, 1)[:, None], kernel[None, None]).view_as(x)


def disk(radius: float, softness: float) -> Tensor:
    """[5, 5]: the pixels within `radius` < 2 of the middle, blurred by a 3 × 3 Gaussian."""
    away = torch.arange(-2, 3).double()
    inside = (away[:, None] ** 2 + away**2 <= radius**2).double()
    taps = torch.exp(-0.5 * (torch.arange(-1, 2).double() / softness) ** 2)
    taps = taps / taps.sum()
    return F.conv2d(inside[None, None] / inside.sum(), taps[:, None] * taps[None, None, None], padding=1)[0, 0]


def glass_blur(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """Each pixel but the first two rows and columns is taken from itself or a neighbour above or to the left.

    The source means to swap pixels, but its swap of two views only copies; and since it goes backwards and reaches
    only up and left, it always reads pixels that are still untouched.
    """
    sigma, rounds = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))[severity - 1]
    blur = gaussian_matrix(x.shape[-1], sigma)
    soft = along_both((x.double() * 255).round(), blur)  # in doubles, as cutting off to bytes is sensitive
    x = (torch.floor(soft + 1e-3) / 255).to(x.dtype)
    rows, columns = grid(x)
    inner = (rows >= 2) & (columns >= 2)
    for turn in range(rounds):
        shift = (draws.uniform(turn, 2, *x.shape[-2:]) < 0.5) & inner
        x = moved(x, rows - shift[:, 0].long(), columns - shift[:, 1].long())
    return along_both(x, blur)


def motion_blur(x: Tensor, severity: int, draws: Draws) -> Tensor:
    radius, sigma = ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5))[severity - 1]
    out = streaked(x, radius=radius, sigma=sigma, angle=draws.between(0, -45, 45))
    return torch.round(out * 255) / 255  # ImageMagick rounds where the others cut off


def zoom_blur(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """The mean of the picture and of zooms into it by 1, 1.01, 1.02, …"""
    factors = np.arange(1, (1.06, 1.11, 1.16, 1.21, 1.26)[severity - 1], 0.01).tolist()
    out = x.clone()
    for factor in factors:
        out += along_both(x, zoom_matrix(x.shape[-1], factor))
    return out / (len(factors) + 1)
