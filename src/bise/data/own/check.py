"""What a data set's labels say about it: its cells, and whether a bias can be extracted away on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import torch

from bise.base.errors import BadInput
from bise.data.core.cells import Cells
from bise.data.core.contract import Labelled, labels, tensors_of
from bise.data.core.naming import numbered
from bise.data.core.tokens import Counts, sentences_of
from bise.data.own.tables import TableData

FEW = 20
"""Conflicting samples in a cell below which balanced draws repeat the same few pictures."""

MUCH = 0.01
"""The share of a split's rows that may be another's too, beyond what chance explains, before it is said."""

SHOWN = 20
"""Empty cells that are listed by name: with several biases there may be millions."""


@dataclass(frozen=True, kw_only=True)
class SplitCheck:
    """The labels of one split."""

    samples: int
    without_bias: int
    """Rows without a bias label (b = −1): they count for the target, not for the bias, nor for what follows."""
    target: str
    biases: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    """Of the labels of the target and of each bias."""
    cells: tuple[tuple[tuple[str, ...], int], ...]
    """((y, b_1, …, b_K) by name, samples) of the cells that aren't empty."""
    empty: int
    empty_cells: tuple[tuple[str, ...], ...]
    """The first few of the empty ones by name."""
    rho: tuple[float, ...]
    """The share of aligned samples, for each bias, by the training set's alignment."""
    conflicting: tuple[int, ...]
    imbalance: float | None
    """The largest cell over the smallest that isn't empty."""
    texts: Counts | None = None
    """How many texts are empty, cut off or unknown, where texts were read."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """What was found: `obstacles` are why extraction can't work, `warnings` why it may disappoint."""

    splits: dict[str, SplitCheck]
    obstacles: tuple[str, ...]
    warnings: tuple[str, ...]
    unreadable: dict[str, str] = field(default_factory=dict)
    """{file: reason}, where files were opened."""
    opened: int | None = None

    @property
    def works(self) -> bool:
        return not self.obstacles

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"works": self.works}


def check(
    splits: Mapping[str, Any], *, unreadable: Mapping[str, str] | None = None, opened: int | None = None
) -> Check:
    """Look at the labels of {"train": …, "val": …, "test": …}; a split that isn't there is None or left out."""
    there = {name: data for name, data in splits.items() if data is not None}
    obstacles: list[str] = []
    notes: list[str] = []
    if unreadable:
        obstacles.append(f"{len(unreadable)} of {opened} files can't be read: replace them or leave their rows out")
    train = there.get("train")
    if train is None:
        obstacles.append("there is no training split")
    known = None if train is None else _known(train)
    aligned = None
    if known is not None:
        aligned = known[0]
        _trainable(aligned, obstacles, notes)
    elif train is not None:
        obstacles.append("no row of train has a bias label")
    for name in ("val", "test"):
        if name not in there:
            lost = "the last mask is taken instead of the best" if name == "val" else "nothing is audited"
            notes.append(f"there is no {name} split: {lost}; mark rows as {name}, or hold some out with holdout=…")
        elif train is not None:
            _covered(train, there[name], name, obstacles)
            judged = _known(there[name])
            if aligned is not None and judged is not None:
                notes += aligned.missing_from(judged[0], name)
    notes += _shared(there)
    return Check(
        splits={name: _split(data, aligned) for name, data in there.items()},
        obstacles=tuple(obstacles),
        warnings=tuple(notes),
        unreadable=dict(unreadable or {}),
        opened=opened,
    )


def _known(data: Any) -> tuple[Cells, int] | None:
    """The cells of the samples that have every bias label, and how many haven't; None where none has."""
    if not isinstance(data, Labelled):
        return labels(data), 0
    if data.b is None:
        raise BadInput(
            "there is no bias to check; name its column with bias=…, or, for a folder of pictures, the csv that has it"
            " with bias_csv=…"
        )
    b = data.b.unsqueeze(1) if data.b.dim() == 1 else data.b
    known = (b >= 0).all(1)
    if not known.any():
        return None
    cells = Cells.of(
        data.y[known],
        b[known],
        classes=data.classes,
        bias_classes=data.bias_classes,
        aligned=data.aligned,
        groups=data.groups,
        called=data.names,
    )
    return cells, int((~known).sum())


def _trainable(cells: Cells, obstacles: list[str], notes: list[str]) -> None:
    if len(torch.unique(cells.y)) < 2:
        obstacles.append(f"train holds one class only ({cells.label(0, int(cells.y[0]))})")
        return
    notes += cells.unopposed()
    if cells.biases > 1:  # with one, the default measures over the whole batch
        notes += cells.one_sided()
    for k, column in enumerate(cells.columns[1:]):
        conflicting = ~cells.aligned[:, k]
        if not conflicting.any():
            obstacles.append(f"no sample of train conflicts with {column} (ρ = 1): nothing tells target from bias")
            continue
        size = cells.bias_classes[k]
        table = torch.bincount(cells.y * size + cells.b[:, k], minlength=cells.classes * size).view(cells.classes, size)
        few = [
            (y, b) for y, b in ((table > 0) & (table < FEW)).nonzero().tolist() if b != int(cells.aligned_bias[k, y])
        ]
        if few:
            y, b = min(few, key=lambda cell: int(table[cell]))
            notes.append(
                f"{len(few):,} conflicting cell{'s' * (len(few) > 1)} of {column} with fewer than {FEW} samples"
                f" ({cells.columns[0]} = {cells.label(0, y)}, {column} = {cells.label(k + 1, b)} has"
                f" {int(table[y, b])}): balanced draws repeat these few"
            )


def _covered(train: Any, other: Any, name: str, obstacles: list[str]) -> None:
    if not isinstance(train, Labelled) or not isinstance(other, Labelled):
        return
    if _known(other) is None:
        lost = "can't select a mask" if name == "val" else "has no groups to audit"
        obstacles.append(f"no row of {name} has a bias label, so it {lost}: label some, or leave it out")
    lacking = sorted(set(other.y.tolist()) - set(train.y.tolist()))
    if lacking:
        shown = lacking[0] if train.names is None else train.names.classes[lacking[0]]
        obstacles.append(f"{name} holds class {shown}, which train lacks")


def _shared(splits: Mapping[str, Any]) -> list[str]:
    """A sentence for each two splits of a table that have far more rows in common than such rows repeat by chance."""
    rows = {name: counted for name, data in splits.items() if (counted := _rows(data))}
    found = []
    for one, other in combinations(rows, 2):
        common = sum(rows[other][row] for row in rows[other].keys() & rows[one].keys())
        total = rows[other].total()
        # with few features rows are alike anyway: as often between splits as within the first
        chance = sum(count for count in rows[one].values() if count > 1) / rows[one].total()
        if common / total > chance + MUCH:
            found.append(
                f"{common:,} of the {total:,} rows of {other} are in {one} too, so that {other} says less about samples"
                " not seen before; leave them out of one"
            )
    return found


def _rows(data: Any) -> Counter[int]:
    """How often each row of a table, features and labels, occurs, by its hash; none where features weren't made."""
    tensors = tensors_of(data.dataset) if isinstance(data, TableData) and data.encoder is not None else None
    if tensors is None or data.b is None:
        return Counter()
    whole = torch.cat([tensors[0], data.y.unsqueeze(1), data.b.view(len(data.b), -1)], 1).numpy()
    return Counter(hash(row.tobytes()) for row in whole)


def _split(data: Any, train: Cells | None) -> SplitCheck:
    found = _known(data)
    sentences = sentences_of(data)
    texts = None if sentences is None else sentences.counts
    if found is None:
        target, *biases = numbered(1) if data.names is None else data.names.columns
        return SplitCheck(
            samples=len(data), without_bias=len(data), target=target, biases=tuple(biases),
            names=(), cells=(), empty=0, empty_cells=(), rho=(), conflicting=(), imbalance=None, texts=texts,
        )  # fmt: skip
    cells, without = found
    if train is not None and train.aligned_bias.shape == cells.aligned_bias.shape:
        cells = cells.realigned(train.aligned_bias)
    sizes = (cells.classes, *cells.bias_classes)
    counts = cells.counts
    filled = counts[counts > 0]
    empty = (counts == 0).nonzero().flatten()

    def named(cell: int) -> tuple[str, ...]:
        return tuple(cells.label(k, v) for k, v in enumerate(cells.labels_of(cell)))

    return SplitCheck(
        samples=len(data),
        without_bias=without,
        target=cells.columns[0],
        biases=cells.columns[1:],
        names=tuple(tuple(cells.label(k, v) for v in range(size)) for k, size in enumerate(sizes)),
        cells=tuple((named(i), int(counts[i])) for i in counts.nonzero().flatten().tolist()),
        empty=len(empty),
        empty_cells=tuple(named(i) for i in empty[:SHOWN].tolist()),
        rho=cells.rho,
        conflicting=tuple((~cells.aligned).sum(0).tolist()),
        imbalance=float(filled.max() / filled.min()),
        texts=texts,
    )
