"""Features with their labels, as a last layer is fitted on them: cell weights, folds, scores, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bise.base.errors import BadInput
from bise.data.core.cells import Cells


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Samples of one split, or of several: z [N, d], the logits [N, C] that they have now, and their cells."""

    name: str
    cells: Cells
    z: Tensor
    logits: Tensor

    @property
    def y(self) -> Tensor:
        return self.cells.y

    @property
    def classes(self) -> int:
        return self.logits.shape[1]

    def shares(self, among: Tensor | None = None) -> Tensor:
        """[N] weights with sum 1 that give each non-empty cell the same share; 0 where a bias is not known.

        Only samples `among` these [N] get one, where that is given.
        """
        included = self.cells.known if among is None else self.cells.known & among
        _, inverse, sizes = torch.unique(self.cells.index[included], return_inverse=True, return_counts=True)
        shares = torch.zeros(len(self.y), dtype=torch.float64)
        shares[included] = (1 / (sizes.double() * len(sizes)))[inverse]
        return shares

    def counts(self) -> dict[str, int]:
        """{cell: samples}."""
        return {name: int(self.cells.counts[cell]) for cell, name in self.cells.names().items()}

    def right(self, logits: Tensor) -> Tensor:
        """[N] bool: which samples these logits classify right."""
        return logits.argmax(1).cpu() == self.y

    def score(self, logits: Tensor) -> tuple[float, float]:
        """(accuracy, cross-entropy) of logits, each the mean over the cells."""
        share = self.shares()
        errors = -logits.double().cpu().log_softmax(1).gather(1, self.y[:, None])[:, 0]
        return float(share @ self.right(logits).double()), float(share @ errors)

    def logits_of(self, weight: Tensor, bias: Tensor) -> Tensor:
        """W z + c in float64 [N, C] on the CPU; one output s makes (0, s)."""
        pieces = [z.to(weight.device).double() @ weight.T + bias for z in self.z.split(1 << 16)]
        logits = torch.cat(pieces).cpu()
        return torch.cat([torch.zeros_like(logits), logits], 1) if logits.shape[1] == 1 else logits

    def notes(self) -> list[str]:
        """A sentence where samples don't count."""
        if not self.cells.unknown:
            return []
        return [
            f"{self.cells.unknown} of {len(self.y)} samples of {self.name} lack a bias label and belong to no cell, so"
            " the last layer is fitted without them"
        ]

    def check_finite(self) -> None:
        """Refuse features that are no numbers: from these nothing could be fitted."""
        bad = [~rows.isfinite().all(1) for rows in self.z.split(1 << 16)]
        wrong = torch.cat(bad).nonzero().flatten()
        if len(wrong):
            raise BadInput(
                f"the bottleneck holds NaN or infinity for {len(wrong)} of {len(self.z)} samples of {self.name} (the"
                f" first is sample {int(wrong[0])}); check the model's weights and the inputs' scale"
            )

    def check_fits(self) -> None:
        """Refuse too few samples, and classes without any: the fitted layer would never answer these."""
        y = self.y[self.cells.known]
        if len(y) < self.classes:
            raise BadInput(
                f"{self.name} has {len(y)} samples with bias labels for {self.classes} classes; give at least one of"
                " each class, or fit on other samples"
            )
        if missing := (torch.bincount(y, minlength=self.classes) == 0).nonzero().flatten().tolist():
            raise BadInput(
                f"{self.name} has no sample of class {self._label(missing[0])}, which a last layer fitted on it would"
                " never answer; add some, or fit on other samples"
            )

    def check_left(self, among: Tensor, folds: int) -> None:
        """Refuse a class whose only sample is held out by a fold."""
        left = torch.bincount(self.y[self.cells.known & among], minlength=self.classes)
        if lacking := (left == 0).nonzero().flatten().tolist():
            raise BadInput(
                f"{self.name} has one sample of class {self._label(lacking[0])}, and cross-validation over {folds}"
                " folds needs two of each class; add some, or fit on other samples"
            )

    def _label(self, y: int) -> str:
        return self.cells.label(0, y) if y < self.cells.classes else str(y)


def pooled(parts: Sequence[Part]) -> Part:
    """Several splits as one, in their order."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0].cells
    cells = Cells.of(
        torch.cat([part.y for part in parts]),
        torch.cat([part.cells.b for part in parts]),
        classes=max(part.cells.classes for part in parts),
        bias_classes=[max(sizes) for sizes in zip(*(part.cells.bias_classes for part in parts), strict=True)],
        called=first.called,
    )
    return Part(
        name=" and ".join(part.name for part in parts),
        cells=cells,
        z=torch.cat([part.z.to(parts[0].z.device) for part in parts]),
        logits=torch.cat([part.logits for part in parts]),
    )


def fold_of(cells: Cells, folds: int, seed: int) -> Tensor:
    """[N]: a fold for each sample, dealt out along the cells, so that each fold has its part of every cell.

    Cells of a class follow on one another, so that the samples of a class are never all in one fold.
    """
    shuffled = torch.randperm(len(cells), generator=torch.Generator().manual_seed(seed))
    order = shuffled[cells.index[shuffled].argsort(stable=True)]
    fold = torch.empty(len(cells), dtype=torch.long)
    fold[order] = torch.arange(len(cells)) % folds
    return fold
