"""Colour, resolution and shape: brightness, contrast, saturation, pixelation, elastic distortion."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from bise.data.sets.corruptions.filters import along_both, box_matrix, gaussian_matrix, grid
from bise.data.sets.draws import Draws


def original(x: Tensor, severity: int, draws: Draws) -> Tensor:
    return x


def brightness(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """The V of HSV raised: colours keep hue and saturation; black has none, and turns grey."""
    value = x.amax(1, keepdim=True)
    raised = (value + (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]).clamp(max=1)
    return torch.where(value > 0, x / value.clamp_min(1e-6), 1.0) * raised


def saturate(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """The S of HSV scaled and raised; grey has hue 0 there, so that it turns reddish where S is raised."""
    scale, shift = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))[severity - 1]
    value, low = x.amax(1, keepdim=True), x.amin(1, keepdim=True)
    spread = value - low
    saturation = (spread / value.clamp_min(1e-6) * scale + shift).clamp(0, 1)
    # a channel is V · (1 − S · depth), with depth from 0 (the strongest) to 1 (the weakest)
    red = torch.tensor([0.0, 1.0, 1.0], dtype=x.dtype, device=x.device).view(1, 3, 1, 1)
    depth = torch.where(spread > 0, (value - x) / spread.clamp_min(1e-6), red)
    return value * (1 - saturation * depth)


def contrast(x: Tensor, severity: int, draws: Draws) -> Tensor:
    scale = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    mean = x.mean((2, 3), keepdim=True)
    return (x - mean) * scale + mean


def pixelate(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """Down and up again with Pillow's BOX filter, which rounds to bytes after each pass, columns before rows."""
    size = x.shape[-1]
    small = int(size * (0.95, 0.9, 0.85, 0.75, 0.65)[severity - 1])
    out = x.double() * 255
    for matrix in (box_matrix(size, small).to(x.device), box_matrix(small, size).to(x.device)):
        out = torch.floor(out @ matrix.T + 0.5 + 1e-6)
        out = torch.floor(matrix @ out + 0.5 + 1e-6)
    return (out / 255).to(x.dtype)


def elastic_transform(x: Tensor, severity: int, draws: Draws) -> Tensor:
    """A random affine map that moves three points, then smooth random displacements; two interpolations."""
    alpha, sigma, reach = ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))[
        severity - 1
    ]
    size = x.shape[-1]
    matrix = affine(size, draws.between(0, -reach * size, reach * size, 3, 2))
    rows, columns = grid(x)
    places = torch.stack([columns.expand(size, size), rows.expand(size, size), torch.ones_like(rows + columns)])
    source = (matrix @ places.flatten(1).double()).view(-1, 2, size, size).float()
    x = sampled(x, source[:, 1], source[:, 0], edge_twice=False)
    smooth = gaussian_matrix(size, sigma * size, truncate=3, reflect=True)
    push = along_both(draws.between(1, -1, 1, 2, size, size), smooth) * alpha * size
    return sampled(x, rows + push[:, 0], columns + push[:, 1], edge_twice=True)


def affine(size: int, moves: Tensor) -> Tensor:
    """[n, 2, 3] of float64: the source (x, y) of each place, where three points go to themselves plus `moves`."""
    middle, arm = size // 2, size // 3
    corners = [[middle + arm, middle + arm], [middle + arm, middle - arm], [middle - arm, middle - arm]]
    before = torch.tensor(corners, dtype=torch.float64, device=moves.device)
    after = torch.cat([before + moves.double(), torch.ones_like(moves[..., :1]).double()], -1)
    return torch.linalg.solve(after, before.expand(len(moves), -1, -1)).transpose(1, 2)


def sampled(x: Tensor, rows: Tensor, columns: Tensor, *, edge_twice: bool) -> Tensor:
    """Bilinear values at (rows, columns) [n, H, W]; mirrored beyond the border, the edge pixel once or twice."""
    size = x.shape[-1]
    if edge_twice:
        places = (torch.stack([columns, rows], -1) * 2 + 1) / size - 1
    else:
        places = torch.stack([columns, rows], -1) * 2 / (size - 1) - 1
    return F.grid_sample(x, places, mode="bilinear", padding_mode="reflection", align_corners=not edge_twice)
