"""How many weights an architecture has, and how many scores are learned for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bise.jobs.recipes import Recipe, architecture
from bise.network.placement import PAPER, place

INPUTS = {"SimpleConvNet": 28, "MLP": 28, "ResNet-18": 32}
"""Sides of the pictures that show where an architecture's gates go."""


def count(recipe: Recipe) -> dict[str, Any]:
    """{weights, matrices, scores}: all parameters; those with two dimensions or more; gates."""
    model = architecture(recipe=recipe.name).eval()
    example: Tensor | dict[str, Tensor]
    if recipe.architecture == "BERT":
        example = {key: torch.ones(2, 8, dtype=torch.long) for key in ("input_ids", "attention_mask")}
    else:
        side = INPUTS[recipe.architecture]
        example = torch.zeros(2, 3, side, side)
    sizes = [parameter.numel() for parameter in model.parameters()]
    return {
        "seconds": 0.0,
        "architecture": recipe.architecture,
        "parameters": sum(sizes),
        "matrices": sum(p.numel() for p in model.parameters() if p.dim() > 1),
        "scores": place(model, example, patterns=PAPER).units,
    }
