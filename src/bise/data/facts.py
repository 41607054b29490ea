"""What a run's summary tells of its training data."""

from __future__ import annotations

import math
from typing import Any

import torch

from bise.data.core.cells import Cells
from bise.data.core.contract import PseudoLabelled
from bise.data.own.tables import TableData

MOST_NAMED = 2500
"""Cells whose names the summary lists."""
FEW = 10
"""A conflicting cell with fewer training samples than this is named as small."""


def facts_of(train: Cells, data: Any) -> dict[str, Any]:
    """What the summary keeps of the training data: sizes, names, ρ, and how many conflicting samples there are."""
    conflicting = (train.conflicting.any(1) & train.known).nonzero().flatten()
    counts = torch.bincount(train.index[conflicting], minlength=len(train.counts))
    small = ((counts > 0) & (counts < FEW)).nonzero().flatten()
    filled = int((counts > 0).sum())
    # each class that has samples has one cell in which every bias is aligned
    possible = len(torch.unique(train.y[train.known])) * (math.prod(train.bias_classes) - 1)
    found = {
        "train": len(train),
        "rho": list(train.rho),
        "groups": train.groups,
        "aligned": train.aligned_bias.tolist(),
        "conflicting": len(conflicting),
        "without_bias": train.unknown,
        "empty_cells": int((train.counts == 0).sum()),
        "small_cells": {
            "fewer_than": FEW,
            "count": len(small),
            "of": filled,
            "none": possible - filled,
            "smallest": {
                train.name_of(int(i)): int(counts[i])
                for i in sorted(small.tolist(), key=lambda cell: int(counts[cell]))[:5]
            },
        },
    }
    if len(train.counts) <= MOST_NAMED:  # also cells that train lacks: another split may have them
        found["cells"] = {train.name_of(cell): train.labels_of(cell) for cell in range(len(train.counts))}
    if train.called is not None:
        found |= {"target": train.called.target, "biases": train.called.biases, "class_names": train.called.classes}
        found["bias_names"] = train.called.bias_classes
    if isinstance(data, TableData):
        found |= data.coding.as_facts()
    if isinstance(data, PseudoLabelled):
        found["pseudo"] = dict(data.quality)
    return found
