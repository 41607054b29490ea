"""How a network does on a labelled set, in the few figures that select an epoch."""

from __future__ import annotations

from bise.data.cells import Cells
from bise.data.contract import Progress
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.gates import Subnetwork
from bise.measure.groups import group_accuracy


class Validation:
    """Accuracy over samples, mean over groups and worst group of whatever network it is called with."""

    def __init__(self, inputs: Inputs, cells: Cells, selection: str) -> None:
        self.inputs, self.cells, self.selection = inputs, cells, selection
        self.groups = cells.alignment_names() if cells.groups == "alignment" else None

    def __call__(self, sub: Subnetwork, progress: Progress | None = None) -> dict[str, float]:
        logits = infer(sub, self.inputs, progress=progress, label="validating").logits
        correct = logits.argmax(1) == self.cells.y
        groups = group_accuracy(correct, self.cells.index, self.cells.names(), self.groups)
        return {"accuracy": groups.accuracy, "unbiased": groups.unbiased, "worst_group": groups.worst_group}
