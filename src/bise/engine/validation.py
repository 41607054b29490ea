"""How a network does on a labelled set, in the few figures that select an epoch."""

from __future__ import annotations

import copy
from typing import Any

import torch

from bise.data.cells import Cells
from bise.data.contract import Progress, labels
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.errors import BadInput
from bise.gates import Subnetwork


class Validation:
    """Accuracy over samples, mean over groups and worst group of whatever network it is called with.

    Refuses a set with classes that the training set lacks. Read as the training inputs are, `beside` it.
    """

    def __init__(
        self,
        val: Any,
        train: Cells,
        beside: Inputs,
        progress: Progress | None = None,
        precision: str = "fp32",
    ) -> None:
        cells = labels(val, progress=progress)
        train.check_covers(cells)
        # an unbiased set shows no alignment of its own
        self.cells = cells.realigned(train.aligned_bias)
        if not cells.known.any():
            raise BadInput("no sample of val has all its bias labels, so it can't select by group; label some")
        self.inputs = Inputs(val, beside.device, workers=beside.workers)
        self.precision = precision
        names = self.cells.alignment_names() if cells.groups == "alignment" else self.cells.names()
        order = list(dict.fromkeys(names.values()))
        self.group_of = torch.tensor([order.index(name) for name in names.values()])
        """[non-empty cells]: the group of each."""

    def on(self, inputs: Inputs) -> Validation:
        """The same samples and labels with other inputs."""
        other = copy.copy(self)
        other.inputs = inputs
        return other

    def __call__(self, sub: Subnetwork, progress: Progress | None = None) -> dict[str, float]:
        found = infer(sub, self.inputs, progress=progress, label="validating", precision=self.precision)
        correct = (found.logits.argmax(1) == self.cells.y).double()
        counts, known = self.cells.counts, self.cells.known
        hits = torch.bincount(self.cells.index[known], weights=correct[known], minlength=len(counts))
        cells = (hits / counts)[counts > 0]
        sizes = torch.bincount(self.group_of).double()
        groups = torch.bincount(self.group_of, weights=cells) / sizes
        return {
            "accuracy": float(correct.mean()),
            "unbiased": float(groups.mean()),
            "worst_group": float(groups.min()),
        }
