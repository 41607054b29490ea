"""The cells that the labels form: which are empty, which samples are aligned, what the paper's ρ is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bise.base.errors import BadInput
from bise.base.markup import tag
from bise.base.notebook import MOST_ROWS, table
from bise.data.core.naming import LabelNames, numbered

MOST_CELLS = 10_000_000

TABLED = 20
"""Labels of a target or bias up to which the cells are a table of target by bias."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """Labels y [N] and b [N, K], and all that follows from them alone.

    A b of −1 is not known: such a sample counts for the task and has no cell.
    """

    y: Tensor
    b: Tensor
    classes: int
    bias_classes: tuple[int, ...]
    aligned_bias: Tensor
    """[K, classes]: the aligned b of each y, −1 where y has no sample."""
    alignment_given: bool
    groups: str
    called: LabelNames | None = None
    """What labels are called; None where they are numbers only."""

    @staticmethod
    def of(
        y: Tensor,
        b: Tensor,
        *,
        classes: int | None = None,
        bias_classes: Sequence[int] | None = None,
        aligned: Mapping[int, Any] | Sequence[Any] | None = None,
        groups: str = "cells",
        called: LabelNames | None = None,
    ) -> Cells:
        """Check the labels and find the aligned bias of each target, by mapping or by largest P(b|y) / P(b)."""
        if y.dim() != 1:
            raise BadInput(f"y has shape {tuple(y.shape)}; it takes one int a sample")
        b = b.unsqueeze(1) if b.dim() == 1 else b
        if y.numel() == 0:
            raise BadInput("the data set is empty; it needs at least two classes with samples")
        if b.dim() != 2 or len(b) != len(y):
            raise BadInput(f"b has shape {tuple(b.shape)} for {len(y)} samples; give [N] or [N, biases]")
        classes = _count(y, classes, "y", "classes")
        given = list(bias_classes) if bias_classes is not None else [None] * b.shape[1]
        if len(given) != b.shape[1]:
            raise BadInput(f"bias_classes has {len(given)} entries for {b.shape[1]} biases; give one for each")
        sizes = tuple(_count(b[:, k], n, f"b[{k}]", f"bias_classes[{k}]", -1) for k, n in enumerate(given))
        if called is not None:
            called.check_sizes(classes, sizes)
        total = classes * math.prod(sizes)
        if total > MOST_CELLS:
            raise BadInput(
                f"labels up to {classes - 1} for y and {[size - 1 for size in sizes]} for b make {total:,} cells, more"
                f" than {MOST_CELLS:,}; number the labels from 0 without gaps"
            )
        rows = [
            _lift(y, b[:, k], classes, size) if aligned is None else _mapping(aligned, k, b.shape[1], y, classes, size)
            for k, size in enumerate(sizes)
        ]
        return Cells(
            y=y,
            b=b,
            classes=classes,
            bias_classes=sizes,
            aligned_bias=torch.stack(rows),
            alignment_given=aligned is not None,
            groups=groups,
            called=called,
        )

    def __len__(self) -> int:
        return len(self.y)

    def __str__(self) -> str:
        """Sizes and ρ; `repr` shows the labels themselves."""
        filled, total = int((self.counts > 0).sum()), len(self.counts)
        lines = [f"{len(self):,} samples in {filled} of {total} cells of {' and '.join(self.columns)}"]
        for k, which in enumerate(self.columns[1:]):
            lines.append(f"  {which}: ρ = {self.rho[k]:.3f}, {int(self.conflicting[:, k].sum()):,} conflicting")
        lines += [f"  {self.unknown:,} without a bias label"] if self.unknown else []
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """How many samples of each target and bias; of very many self the largest."""
        rows: list[tuple[Any, ...]]
        title = str(self)
        if self.biases == 1 and max(self.classes, *self.bias_classes) <= TABLED:
            head = (f"{self.columns[0]} \\ {self.columns[1]}", *(self.label(1, b) for b in range(self.bias_classes[0])))
            counts = self.counts.view(self.classes, -1).tolist()
            rows = [(self.label(0, y), *(f"{n:,}" for n in row)) for y, row in enumerate(counts)]
            return str(tag("div", table(title, head, rows)))
        largest = sorted(self.names(), key=lambda cell: -int(self.counts[cell]))
        rows = [(self.name_of(cell), f"{int(self.counts[cell]):,}") for cell in largest[:MOST_ROWS]]
        if len(largest) > MOST_ROWS:
            rows.append((f"… and {len(largest) - MOST_ROWS} smaller self", ""))
        return str(tag("div", table(title, ("cell", "samples"), rows)))

    @property
    def biases(self) -> int:
        return len(self.bias_classes)

    @cached_property
    def known(self) -> Tensor:
        """[N] bool: samples whose biases are all known."""
        return (self.b >= 0).all(1)

    @cached_property
    def unknown(self) -> int:
        """How many samples lack a bias label."""
        return int((~self.known).sum())

    @cached_property
    def index(self) -> Tensor:
        """[N]: the cell of each sample, row-major over (y, b_1, …, b_K); −1 where a bias is not known."""
        index = self.y.clone()
        for k, size in enumerate(self.bias_classes):
            index = index * size + self.b[:, k]
        return torch.where(self.known, index, -1)

    @cached_property
    def counts(self) -> Tensor:
        """[cells]: samples in each cell, empty ones included."""
        total = self.classes
        for size in self.bias_classes:
            total *= size
        return torch.bincount(self.index[self.known], minlength=total)

    @cached_property
    def aligned(self) -> Tensor:
        """[N, K] bool: whether the sample carries the aligned b of its y."""
        return (self.b == self.aligned_bias[:, self.y].T) & (self.b >= 0)

    @cached_property
    def conflicting(self) -> Tensor:
        """[N, K] bool: whether its b is known and another one."""
        return ~self.aligned & (self.b >= 0)

    @cached_property
    def alignment_index(self) -> Tensor:
        """[N]: the combination of aligned (0) and conflicting (1) over the biases, 0 … 2^K − 1; −1 if not known."""
        powers = 2 ** torch.arange(self.biases - 1, -1, -1)
        return torch.where(self.known, (self.conflicting.long() * powers).sum(1), -1)

    @cached_property
    def rho(self) -> tuple[float, ...]:
        """The share of aligned samples among those whose bias is known, for each bias."""
        return tuple((self.aligned.sum(0).double() / (self.b >= 0).sum(0).clamp_min(1)).tolist())

    @property
    def empty(self) -> list[tuple[int, ...]]:
        """The cells (y, b_1, …, b_K) without a sample."""
        return [self.labels_of(int(i)) for i in (self.counts == 0).nonzero().flatten()]

    def labels_of(self, cell: int) -> tuple[int, ...]:
        """(y, b_1, …, b_K) of a cell."""
        out: list[int] = []
        for size in reversed(self.bias_classes):
            cell, last = divmod(cell, size)
            out.append(last)
        return (cell, *reversed(out))

    @property
    def columns(self) -> tuple[str, ...]:
        """What the target and each bias are called."""
        return numbered(self.biases) if self.called is None else self.called.columns

    def label(self, column: int, value: int) -> str:
        """The name of a label of the target (column 0) or of a bias (1 … K); its number where it has none."""
        return str(value) if self.called is None else self.called.labels[column][value]

    def name_of(self, cell: int) -> str:
        """Such as "y=1 b=0", or with names "income=>50K sex=Female"."""
        values = self.labels_of(cell)
        if self.called is None and self.biases > 1:
            return f"y={values[0]} b={values[1:]}"
        return " ".join(f"{name}={self.label(k, values[k])}" for k, name in enumerate(self.columns))

    def names(self) -> dict[int, str]:
        """Cell -> its name, for the cells that have samples."""
        return {int(i): self.name_of(int(i)) for i in self.counts.nonzero().flatten()}

    def alignment_names(self) -> dict[int, str]:
        """Cell -> the name of its alignment group, such as "aligned, conflicting"."""
        out = {}
        for cell in self.names():
            y, *b = self.labels_of(cell)
            words = ["aligned" if self.aligned_bias[k, y] == v else "conflicting" for k, v in enumerate(b)]
            out[cell] = ", ".join(words)
        return out

    def realigned(self, aligned_bias: Tensor) -> Cells:
        """The same labels with the alignment of another data set, usually the training set's."""
        return replace(self, aligned_bias=aligned_bias, alignment_given=True)

    def check_trainable(self, what: str = "train") -> None:
        """Refuse labels from which no bias can be learned away."""
        if len(torch.unique(self.y)) < 2:
            only = f"{self.columns[0]}={self.label(0, int(self.y[0]))}"
            raise BadInput(f"{what} holds one class only ({only}); it needs at least two")
        if not self.known.any():
            raise BadInput(f"no sample of {what} has all its bias labels; label some, or let bise.pseudo_bias do it")
        for k, which in enumerate(self.columns[1:]):
            conflicting = self.conflicting[:, k]
            if not conflicting.any():
                raise BadInput(
                    f"{what} has no conflicting sample (ρ = 1 for {which}): nothing tells target from bias;"
                    " add samples whose bias differs from the usual one of their class"
                )

    def one_sided(self) -> list[str]:
        """A sentence for each bias of which all conflicting samples share one value, so that it tells nothing there."""
        found = []
        for k, which in enumerate(self.columns[1:]):
            seen = torch.unique(self.b[self.conflicting[:, k], k])
            if len(seen) == 1:
                count, value = int(self.conflicting[:, k].sum()), self.label(k + 1, int(seen[0]))
                found.append(
                    f"all {count} conflicting samples share {which}={value}, so the mutual information over them is"
                    ' zero; use mi="batch" to give that term something to measure'
                )
        return found

    def unopposed(self) -> list[str]:
        """A sentence for each bias that some class has no conflicting sample of."""
        found = []
        seen = torch.bincount(self.y, minlength=self.classes) > 0
        for k, which in enumerate(self.columns[1:]):
            opposed = torch.bincount(self.y[self.conflicting[:, k]], minlength=self.classes) > 0
            lacking = (seen & ~opposed).nonzero().flatten().tolist()
            if lacking and opposed.any():  # with none at all it is refused
                shown = ", ".join(self.label(0, y) for y in lacking[:3]) + (" …" if len(lacking) > 3 else "")
                found.append(
                    f"no training sample of {self.columns[0]} = {shown} conflicts with {which}, so nothing tells the"
                    " two apart there; add some"
                )
        return found

    def check_covers(self, other: Cells, what: str = "val") -> None:
        """Refuse another data set with classes that this one has never seen, with other biases or other numbers."""
        if other.biases != self.biases:
            raise BadInput(f"{what} has {other.biases} biases and train has {self.biases}; they must agree")
        if self.called is not None and other.called is not None:
            self.called.check_same(other.called, what)
        missing = sorted(set(torch.unique(other.y).tolist()) - set(torch.unique(self.y).tolist()))
        if missing:
            name = other.label(0, missing[0])
            raise BadInput(f"{what} holds class {name}, which train lacks; drop it from {what} or add it to train")

    def missing_from(self, other: Cells, what: str = "val") -> list[str]:
        """A sentence for what val or test lacks: classes and biases of this set, and samples that conflict with one."""
        lost = "no mask is judged by" if what == "val" else "no figure is about"
        found = []
        lacking = sorted(set(torch.unique(self.y).tolist()) - set(torch.unique(other.y).tolist()))
        if lacking:
            shown = ", ".join(self.label(0, y) for y in lacking[:3]) + (" …" if len(lacking) > 3 else "")
            found.append(f"{what} lacks classes of train ({shown}), so {lost} these; add samples of them")
        for k, which in enumerate(self.columns[1 : 1 + other.biases]):
            seen, there = (torch.unique(cells.b[cells.b[:, k] >= 0, k]).tolist() for cells in (self, other))
            if lacking := sorted(set(seen) - set(there)):
                shown = ", ".join(self.label(k + 1, b) for b in lacking[:3]) + (" …" if len(lacking) > 3 else "")
                found.append(f"{what} has no sample of {which} = {shown}, so {lost} these; add samples of them")
        if other.aligned_bias.shape == self.aligned_bias.shape:
            conflicting = other.realigned(self.aligned_bias).conflicting
            found += [
                f"{what} has no sample that conflicts with {which}, so {lost} such, and the shortcut looks right there;"
                " add some"
                for k, which in enumerate(self.columns[1:])
                if not conflicting[:, k].any()
            ]
        return found


def _count(values: Tensor, given: int | None, what: str, argument: str, least: int = 0) -> int:
    low, high = int(values.min()), int(values.max())
    if low < least:
        also = "" if least == 0 else ", or −1 where it is not known"
        raise BadInput(f"{what} holds the label {low}; labels are ints from 0{also}")
    if high < 0 and given is None:
        raise BadInput(f"{what} is −1, not known, for every sample; label some, or let bise.pseudo_bias do it")
    if given is None:
        return high + 1
    if high >= given:
        raise BadInput(
            f"{what} holds the label {high}, out of range for {argument}={given}; labels are 0 to {given - 1}"
        )
    return int(given)


def _lift(y: Tensor, b: Tensor, classes: int, size: int) -> Tensor:
    """[classes]: argmax over b of P(b|y) / P(b); the first b wins a tie, −1 where y has no sample."""
    y, b = y[b >= 0], b[b >= 0]
    table = torch.bincount(y * size + b, minlength=classes * size).view(classes, size).double()
    lift = table / table.sum(1, keepdim=True).clamp_min(1) / table.sum(0, keepdim=True).clamp_min(1)
    best = lift.argmax(1)
    best[table.sum(1) == 0] = -1
    return best


def _mapping(
    aligned: Mapping[int, Any] | Sequence[Any], k: int, biases: int, y: Tensor, classes: int, size: int
) -> Tensor:
    pairs = aligned.items() if isinstance(aligned, Mapping) else enumerate(aligned)
    row = torch.full((classes,), -1)
    for target, value in pairs:
        if not all(map(_is_number, value if isinstance(value, (tuple, list)) else (value,))):
            raise BadInput(
                f"aligned maps y={target} to what is no number of a bias's value; give {{y: b}} for each class, or for"
                " those of the training set its cells, bise.data.labels(train)"
            )
        b = value[k] if isinstance(value, (tuple, list)) else value
        if isinstance(value, (tuple, list)) and len(value) != biases:
            raise BadInput(f"aligned maps y={target} to {value}; give one b for each of the {biases} biases")
        if not isinstance(value, (tuple, list)) and biases > 1:
            raise BadInput(f"aligned maps y={target} to {value}; give a tuple, one b for each of the {biases} biases")
        if not 0 <= int(target) < classes or not 0 <= int(b) < size:
            raise BadInput(f"aligned maps y={target} to b={b}, out of range for {classes} classes and {size} biases")
        row[int(target)] = int(b)
    missing = [int(v) for v in torch.unique(y) if row[v] < 0]
    if missing:
        raise BadInput(f"aligned has no entry for y={missing[0]}; map every class to its aligned b")
    return row


def _is_number(value: Any) -> bool:
    try:
        int(value)
    except (TypeError, ValueError, RuntimeError):  # the last is of tensors with more than one value
        return False
    return True
