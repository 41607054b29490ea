"""How a network does on a labelled set, in the few figures that select an epoch."""

from __future__ import annotations

from typing import Any

import torch

from bise.data.cells import Cells
from bise.data.contract import Progress, labels
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.gates import Subnetwork
from bise.measure.groups import group_accuracy


class Validation:
    """Accuracy over samples, mean over groups and worst group of whatever network it is called with.

    Refuses a set with classes that the training set lacks.
    """

    def __init__(self, val: Any, train: Cells, device: torch.device, progress: Progress | None = None) -> None:
        cells = labels(val, progress=progress)
        train.check_covers(cells)
        # an unbiased set shows no alignment of its own
        self.cells = cells.realigned(train.aligned_bias)
        self.inputs = Inputs(val, device)
        self.groups = self.cells.alignment_names() if cells.groups == "alignment" else None

    def __call__(self, sub: Subnetwork, progress: Progress | None = None) -> dict[str, float]:
        logits = infer(sub, self.inputs, progress=progress, label="validating").logits
        correct = logits.argmax(1) == self.cells.y
        groups = group_accuracy(correct, self.cells.index, self.cells.names(), self.groups)
        return {"accuracy": groups.accuracy, "unbiased": groups.unbiased, "worst_group": groups.worst_group}
