"""What the cross-entropy asks for beyond the right class: margins on conflicting samples, and smoothed targets."""

from __future__ import annotations

import torch
from torch import Tensor

from bise.config import ExtractConfig
from bise.data.cells import Cells
from bise.data.sampling import Sampler
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.gates import Subnetwork
from bise.objective import log_priors

LOOKED_AT, BY_HEART = 1000, 0.95
"""A model that classifies so large a share of so many evenly drawn training samples knows them by heart; …"""
MARGIN, SMOOTHING = 0.4, 0.2
"""… then these are taken: on BiasedMNIST's validation sets margins of 0.25 and 0.5 beside a smoothing of 0.2 were the
best of those tried, the one sparser, the other more accurate at the highest ρ."""


def chosen_targets(
    config: ExtractConfig, sub: Subnetwork, inputs: Inputs, cells: Cells, strata: Tensor, precision: str
) -> dict[str, float]:
    """Margin and smoothing, as configured or as they suit a model that knows its training set by heart.

    Where it was looked at, `right` is the share of evenly drawn training samples that it has right, its gates open.
    Smoothed targets reward closing units as such, so groups have to count alike; else only the largest would.
    """
    margin, smoothing = config.margin, config.smoothing
    if config.sampler == "natural" and config.weights == "none":
        margin, smoothing = margin or 0.0, smoothing or 0.0
    out: dict[str, float] = {}
    if margin is None or smoothing is None:
        generator = torch.Generator().manual_seed(config.seed)
        index = Sampler(len(cells), strata).draw(1, LOOKED_AT, generator)
        logits = infer(sub, inputs, index=index, precision=precision).logits
        out["right"] = right = float((logits.argmax(1).cpu() == cells.y[index]).float().mean())
        margin = margin if margin is not None else MARGIN * (right >= BY_HEART)
        smoothing = smoothing if smoothing is not None else SMOOTHING * (right >= BY_HEART)
    return out | {"margin": margin, "smoothing": smoothing}


def margins(cells: Cells, margin: float, classes: int, device: torch.device) -> list[Tensor]:
    """What logits are raised by for each b of each bias; nothing at all without a margin."""
    if not margin:
        return []
    return [margin * prior.to(device) for prior in log_priors(cells.y, cells.b, classes, cells.bias_classes)]
