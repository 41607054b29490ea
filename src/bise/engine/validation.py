"""How a network does on a labelled set, in the few figures that select an epoch."""

from __future__ import annotations

import copy
from typing import Any, Protocol

import torch
from torch import Tensor

from bise.base.errors import BadInput, NonFinite, caution, named
from bise.data.core.cells import Cells
from bise.data.core.contract import Progress, labels
from bise.data.core.identity import identity_of
from bise.engine.inference import passes
from bise.engine.inputs import Inputs
from bise.network.outputs import not_finite
from bise.network.subnetwork import Subnetwork


def identity(train: Any, cells: Cells, val: Any, validation: Validation | None) -> tuple[Any, ...]:
    """Which data a job is about, for the key of its checkpoint: inputs and labels of either set."""
    own = () if validation is None else (validation.cells.y, validation.cells.b)
    found = {"train": identity_of(train), "val": identity_of(val)}
    for name, known in found.items():
        if known is not None and known.random:
            caution(
                f"samples of {name} are other ones each time they are asked for, so a checkpoint would not notice"
                " that inputs changed; draw from the global generators of torch, numpy or Python, which can be seeded",
                stacklevel=4,
            )
    return *(None if known is None else known.sha256 for known in found.values()), cells.y, cells.b, *own


class Judge(Protocol):
    """Something that gives the figures by which a training selects its epoch."""

    inputs: Inputs
    """What it reads, whose random numbers belong to the state of a training."""

    def __call__(self, sub: Subnetwork, progress: Progress | None = None) -> dict[str, float]: ...


class Validation:
    """Accuracy over samples, mean over groups and worst group of whatever network it is called with.

    Refuses a set with classes that the training set lacks, and logits that are no numbers. Read as the training inputs
    are, `beside` it.
    """

    def __init__(
        self,
        val: Any,
        train: Cells,
        beside: Inputs,
        progress: Progress | None = None,
        precision: str = "fp32",
        budget: int = 8 << 30,
    ) -> None:
        with named("val"):
            cells = labels(val, progress=progress)
        train.check_covers(cells)
        # an unbiased set shows no alignment of its own
        self.cells = cells.realigned(train.aligned_bias)
        if not cells.known.any():
            raise BadInput("no sample of val has all its bias labels, so it can't select by group; label some")
        with named("val"):
            self.inputs = Inputs(val, beside.device, budget=budget, workers=beside.workers)
        self.precision = precision
        self.y = cells.y.to(self.inputs.device)
        self.cell = torch.where(cells.known, cells.index, len(cells.counts)).to(self.inputs.device)
        """[N]: the cell of each sample; one past the last where its bias is not known."""
        names = self.cells.alignment_names() if cells.groups == "alignment" else self.cells.names()
        order = list(dict.fromkeys(names.values()))
        self.group_of = torch.tensor([order.index(name) for name in names.values()])
        """[non-empty cells]: the group of each."""
        self.classes = len(torch.unique(cells.y))
        """Those that have samples."""

    def on(self, inputs: Inputs) -> Validation:
        """The same samples and labels with other inputs."""
        other = copy.copy(self)
        other.inputs = inputs
        return other

    def __call__(self, sub: Subnetwork, progress: Progress | None = None) -> dict[str, float]:
        """The figures, and `constant` where one class is the answer to every sample of a set that has several."""
        counts = self.cells.counts
        hits = torch.zeros(len(counts) + 1, dtype=torch.float64, device=self.inputs.device)
        order = torch.arange(len(self.cells))
        good = torch.ones(len(order), dtype=torch.bool, device=self.inputs.device)
        answers = torch.empty(len(order), dtype=torch.long, device=self.inputs.device)
        run = passes(sub, self.inputs, order, precision=self.precision, progress=progress, label="validating")
        with named("val"):
            for start, logits, _ in run:  # no logits are kept, and a GPU isn't waited for
                rows = slice(start, start + len(logits))
                good[rows] = logits.isfinite().all(1)
                answers[rows] = logits.argmax(1)
                hits.index_add_(0, self.cell[rows], (answers[rows] == self.y[rows]).double())
        if (found := not_finite(good, split="val")) is not None:
            raise NonFinite(f"{found[0]}, or lower lr", samples=found[1], split="val")
        constant = self.classes > 1 and bool((answers == answers[0]).all())
        return self._figures(hits.cpu()) | ({"constant": True} if constant else {})

    def figures(self, right: Tensor) -> dict[str, float]:
        """The same figures where it is known of each sample [N] whether it was classified right."""
        return self._figures(torch.bincount(self.cell.cpu(), right.cpu().double(), len(self.cells.counts) + 1))

    def _figures(self, hits: Tensor) -> dict[str, float]:
        """From the right answers in each cell, and in none."""
        counts = self.cells.counts
        cells = (hits[:-1] / counts)[counts > 0]
        sizes = torch.bincount(self.group_of).double()
        groups = torch.bincount(self.group_of, weights=cells) / sizes
        return {
            "accuracy": float(hits.sum() / len(self.cells)),
            "unbiased": float(groups.mean()),
            "worst_group": float(groups.min()),
        }
