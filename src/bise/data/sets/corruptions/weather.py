"""Weather: snow, frost, fog and spatters of mud."""

from __future__ import annotations

import torch
from torch import Tensor

from bise.data.sets.corruptions.filters import along_both, bumps, gaussian_matrix, streaked, zoom_matrix
from bise.data.sets.corruptions.water import water
from bise.data.sets.draws import Draws

# What the first five of the source's six frost photographs look like (its random pick never reaches the sixth; the
# second and third are the same): the 1, 10, 50, 90 and 99 % quantiles of red, green and blue, and which share of the
# variance is as wide as a picture, a few pixels wide, and different from pixel to pixel.
FROST = (
    (((31, 46, 74, 114, 150), (116, 128, 148, 171, 189), (134, 145, 166, 186, 202)), (0.65, 0.05, 0.30)),
    (((139, 172, 204, 225, 241), (141, 176, 209, 230, 245), (148, 184, 218, 239, 250)), (0.38, 0.15, 0.47)),
    (((139, 172, 204, 225, 241), (141, 176, 209, 230, 245), (148, 184, 218, 239, 250)), (0.38, 0.15, 0.47)),
    (((69, 103, 138, 171, 223), (82, 118, 153, 186, 239), (91, 129, 166, 201, 255)), (0.30, 0.05, 0.65)),
    (((34, 59, 108, 173, 234), (45, 70, 119, 182, 238), (57, 83, 131, 191, 243)), (0.33, 0.18, 0.49)),
)
NORMAL_QUANTILES = (-2.326, -1.282, 0.0, 1.282, 2.326)
MUD = (63, 42, 20)


def snow(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """Flakes, which are zoomed noise above a threshold, blown along a line, and the picture made paler."""
    mean, spread, zoom, threshold, radius, sigma, keep = (
        (0.1, 0.2, 1.0, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1.0, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    )[severity - 1]
    size = x.shape[-1]
    flakes = along_both(mean + spread * draws.normal(0, 1, size, size), zoom_matrix(size, zoom))
    flakes = torch.floor(torch.where(flakes < threshold, 0, flakes).clamp(0, 1) * 255)
    flakes = torch.round(streaked(flakes, radius=radius, sigma=sigma, angle=draws.between(1, -135, -45))) / 255
    grey = (x * torch.tensor([0.299, 0.587, 0.114], dtype=x.dtype, device=x.device).view(1, 3, 1, 1)).sum(
        1, keepdim=True
    )
    x = keep * x + (1 - keep) * torch.maximum(x, grey * 1.5 + 0.5)
    return x + flakes + flakes.flip(2, 3)


def frost(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """A departure: the source lays crops of five photographs over the picture, ours are drawn to look like them."""
    keep, cover = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))[severity - 1]
    return keep * x + cover * frosting(x.shape[-1], draws)


def frosting(size: int, draws: Draws) -> Tensor:
    """[n, 3, size, size] in [0, 1]: noise of three widths, bent to the colours of one of the five photographs."""
    kind = (draws.uniform(0) * len(FROST)).long()
    wide, narrow = bumps(size, 6, 6).to(kind.device).float(), bumps(size, 1, 1).to(kind.device).float()
    parts = (
        wide @ draws.normal(1, wide.shape[1], wide.shape[1]) @ wide.T,
        narrow @ draws.normal(2, narrow.shape[1], narrow.shape[1]) @ narrow.T,
        draws.normal(3, size, size),
    )
    shares = torch.tensor([shares for _, shares in FROST], dtype=torch.float32, device=kind.device)[kind].sqrt()
    field = sum(shares[:, k, None, None] * part for k, part in enumerate(parts))
    assert isinstance(field, Tensor)
    levels = torch.tensor([levels for levels, _ in FROST], device=kind.device)[kind].float()
    knots = torch.tensor(NORMAL_QUANTILES, dtype=torch.float32, device=kind.device)
    low = (torch.bucketize(field, knots) - 1).clamp(0, len(NORMAL_QUANTILES) - 2)
    rest = (field - knots[low]) / (knots[low + 1] - knots[low])
    ends = [levels.gather(2, (low + k).flatten(1)[:, None].expand(-1, 3, -1)) for k in (0, 1)]
    texture = ends[0] + (ends[1] - ends[0]) * rest.flatten(1)[:, None]
    return texture.clamp(0, 255).view(-1, 3, size, size) / 255


def fog(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """Clouds laid over the picture, which is then darkened so that its lightest value stays."""
    thickness, decay = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))[severity - 1]
    lightest = x.amax((1, 2, 3), keepdim=True)
    return (x + thickness * clouds(x.shape[-1], decay, draws)) * lightest / (lightest + thickness)


def clouds(size: int, decay: float, draws: Draws) -> Tensor:
    """[n, 1, size, size] from 0 to 1: the diamond-square fractal on a torus; `size` is a power of two."""
    field = torch.zeros(len(draws), size, size, dtype=torch.float32, device=draws.index.device)
    step, wobble, stream = size, 100.0, 0

    def filled(neighbours: Tensor) -> Tensor:
        nonlocal stream
        stream += 1
        # the source multiplies by the wobble twice, so that it decays by the square
        return neighbours / 4 + wobble * draws.between(stream, -wobble, wobble, *neighbours.shape[1:])

    while step >= 2:
        half = step // 2
        corners = field[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        middles = filled(pairs + pairs.roll(-1, 2))
        field[:, half::step, half::step] = middles
        field[:, ::step, half::step] = filled(middles + middles.roll(1, 1) + corners + corners.roll(-1, 2))
        field[:, half::step, ::step] = filled(middles + middles.roll(1, 2) + corners + corners.roll(-1, 1))
        step, wobble = half, wobble / decay
    field = field - field.amin((1, 2), keepdim=True)
    return (field / field.amax((1, 2), keepdim=True))[:, None]


def spatter(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """Drops of water up to severity 3, of mud from 4 on."""
    mean, spread, sigma, threshold, strength, muddy = (
        (0.62, 0.1, 0.7, 0.7, 0.5, False),
        (0.65, 0.1, 0.8, 0.7, 0.5, False),
        (0.65, 0.3, 1.0, 0.69, 0.5, False),
        (0.65, 0.1, 0.7, 0.69, 0.6, True),
        (0.65, 0.1, 0.5, 0.68, 0.6, True),
    )[severity - 1]
    size = x.shape[-1]
    liquid = along_both(mean + spread * draws.normal(0, size, size), gaussian_matrix(size, sigma))
    liquid = torch.where(liquid < threshold, 0.0, liquid)
    if not muddy:
        return water(x, liquid, strength)
    drops = along_both((liquid > threshold).float(), gaussian_matrix(size, strength))[:, None]
    drops = torch.where(drops < 0.8, 0.0, drops)
    mud = torch.tensor(MUD, dtype=x.dtype, device=x.device).view(1, 3, 1, 1) / 255
    return x * (1 - drops) + mud * drops
