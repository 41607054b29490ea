"""Noise on each value: Gaussian, shot, impulse and speckle."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bise.data.sets.draws import Draws


def gaussian_noise(x: Tensor, severity: int, draws: Draws) -> Tensor:
    scale = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
    return x + scale * draws.normal(0, *x.shape[1:])


def shot_noise(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """Photons are counted: Poisson of x times the photons that white stands for."""
    white = (500, 250, 100, 75, 50)[severity - 1]
    return poisson(x, white, draws.uniform(0, *x.shape[1:])) / white


def impulse_noise(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """Salt and pepper, on each of the three colours by itself."""
    amount = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
    u = draws.uniform(0, *x.shape[1:])
    return torch.where(u < amount / 2, 0.0, torch.where(u < amount, 1.0, x))


def speckle_noise(x: Tensor, severity: int, draws: Draws) -> Tensor:
    scale = (0.06, 0.1, 0.12, 0.16, 0.2)[severity - 1]
    return x + x * scale * draws.normal(0, *x.shape[1:])


def poisson(x: Tensor, white: float, u: Tensor) -> Tensor:
    """Counts with mean x · white by inverting the distribution function at u; x takes the 256 values k / 255."""
    most = int(white + 8 * math.sqrt(white) + 10)
    rate = torch.arange(256, dtype=torch.float64)[:, None] / 255 * white
    count = torch.arange(most, dtype=torch.float64)
    log_p = torch.xlogy(count, rate) - rate - torch.lgamma(count + 1)
    cumulative = log_p.exp().cumsum(1).clamp(max=1)
    cumulative[:, -1] = 1
    # one sorted list for all 256 rates: row k lies in (k, k + 1]
    level = (x * 255).round().long()
    table = (cumulative + torch.arange(256)[:, None]).flatten().to(x.device)
    found = torch.searchsorted(table, level.double() + u.double())
    return (found - level * most).to(x.dtype)
