"""`bise.find`: groups that a model may be treating unequally, where nobody has said what its bias is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput
from bise.base.extras import sklearn
from bise.data.core.content import Content
from bise.data.core.contract import Labelled, Progress, labels, unloaded
from bise.data.core.identity import data_sha256
from bise.data.core.naming import LabelNames
from bise.engine.checks import check_model, check_outputs
from bise.jobs.finding_sources import Raw, Seen, found_by, seen_of
from bise.measure.spread import Spread, Tally, agreement, spreads

KEPT = 10
"""Candidates that are handed out."""
ALIKE = 0.8
"""Adjusted mutual information from which on two candidates are taken for the same groups."""
COMPARED = 5000
"""Samples, at most, that groupings are compared by."""
ANSWERS_AT = 2
"""The place, from 0, that candidates which repeat the model's answers have at best: they differ by construction."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """Groups that may be the bias, and how the model's accuracy differs between them."""

    name: str
    source: str
    """ "layer", "reading", "answers", "pseudo" or "column"."""
    about: str
    """How these groups came about, in a sentence."""
    groups: tuple[str, ...]
    """Their names."""
    b: Tensor
    """[N]: the group of each training sample, −1 where it isn't known."""
    sizes: tuple[tuple[int, ...], ...]
    """Training samples of each class in each group."""
    spread: Spread | None
    """How much accuracy differs, on samples that the groups were not fitted on; None where nothing can be compared."""
    echo: float
    """Adjusted mutual information with the model's answers: near 1, the difference is one by construction."""
    goes_with: Mapping[str, float]
    """Adjusted mutual information with the target and with each column, the largest first."""
    also: tuple[str, ...] = ()
    """Other sources that came to nearly the same groups."""
    _labels: Callable[[Any], Tensor]

    def label(self, data: Any) -> Labelled:
        """`data` with the groups as its b: that of `bise.find`, or other samples, which the model is run on."""
        data = unloaded(data)
        y = labels(data, need_bias=False).y
        names = named_classes(data, max(int(y.max()) + 1, len(self.sizes)))
        return with_bias(data, y, self._labels(data), self.name, self.groups, names)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: all but the labels of single samples."""
        spread = self.spread
        return {
            "name": self.name,
            "source": self.source,
            "about": self.about,
            "groups": list(self.groups),
            "sizes": [list(row) for row in self.sizes],
            "spread": None if spread is None else spread.value,
            "difference": None if spread is None else spread.difference,
            "interval": None if spread is None else list(spread.interval),
            "where": None if spread is None else list(spread.where),
            "rates": None if spread is None else list(spread.rates),
            "shown": spread is not None and spread.shown,
            "echo": self.echo,
            "goes_with": dict(self.goes_with),
            "also": list(self.also),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Found(Sequence[Candidate]):
    """Candidates, the likeliest first; none of them is proof of a bias."""

    candidates: tuple[Candidate, ...]
    measured_on: str
    """ "val", or the part of train that no groups were fitted on."""
    measured: int
    """Samples there."""
    accuracy: float
    """The model's, on these."""
    looked_at: int
    """Groupings that were measured, by which intervals are corrected."""
    left_out: tuple[str, ...]
    """What gave no candidate, each with the reason."""
    classes: tuple[str, ...]
    logits: Mapping[str, Tensor]
    """{split: [N, C]}"""

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, index: Any) -> Any:
        return self.candidates[index]

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.candidates)

    def as_dict(self) -> dict[str, Any]:
        return {
            "measured_on": self.measured_on,
            "measured": self.measured,
            "accuracy": self.accuracy,
            "looked_at": self.looked_at,
            "left_out": list(self.left_out),
            "classes": list(self.classes),
            "candidates": [one.as_dict() for one in self],
        }

    def __str__(self) -> str:
        """A line for each candidate."""
        lines = [f"{len(self)} candidates of {self.looked_at}, on {self.measured:,} samples of {self.measured_on}"]
        for number, one in enumerate(self):
            if one.spread is None:
                lines.append(f"  [{number}] {one.name}: nothing to compare")
                continue
            low, high = one.spread.interval
            told = "" if one.spread.shown else ", which may be chance"
            lines.append(
                f"  [{number}] {one.name}: {len(one.groups)} groups; up to {100 * one.spread.difference:.0f} points"
                f" [{100 * low:.0f}, {100 * high:.0f}] within a class{told}"
            )
        return "\n".join(lines)


def find(
    model: nn.Module,
    data: Any,
    *,
    val: Any = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
    make_model: Callable[[], nn.Module] | None = None,
    bottleneck: str | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Found:
    """Candidates for a bias that nobody has named; the model is not changed, and no bias label is used.

    Args:
        model: Any trained classifier, as `bise.audit` takes it.
        data: The training set, which yields (x, y) or (x, y, b); its b, if any, is only compared with.
        val: Samples that the model hasn't learned from; differences are measured there. Without it, on a part of
            `data`, of which a model may have learned every answer by heart.
        columns: {name: one cell a sample of `data`} beyond those of a table's own file.
        make_model: Returns a fresh model; then a model of one epoch is a source too (`bise.pseudo_bias`).
        bottleneck: The layer whose input z is a source, by its name; None finds it.
        seed: Draws the samples that groups are fitted on.
        workers: Processes that read data that are not in memory; None is up to four for picture files.
        progress: Called with (label, done, total); `bise.Bars()` shows bars.

    Returns:
        `Found`: a sequence of candidates, the likeliest first. `found[0].label(data)` is `data` with these groups as b.

    Raises:
        BadInput: Data or model can't be worked with, or scikit-learn is not installed.

    Example:
        >>> found = bise.find(model, train, val=val)
        >>> guessed = found[0].label(train)
        >>> guessed.b.shape == train.y.shape
        True
    """
    sklearn("cluster")  # said before any work
    check_model(model)
    train, given = without_bias(data, progress)
    held, _ = (None, None) if val is None else without_bias(val, progress)
    for name, cells in (columns or {}).items():
        if len(cells) != len(train):
            raise BadInput(f"columns: {name!r} has {len(cells)} cells for {len(train)} samples; give one for each")
    present = train.y.unique()
    if len(present) < 2:
        raise BadInput(
            f"data hold one class only ({int(present[0])}), and groups are compared within classes; give all classes"
        )
    seen = seen_of(model, train, held, bottleneck=bottleneck, seed=seed, workers=workers, progress=progress)
    for split, data_ in (("train", train), ("val", held)):
        if data_ is not None:
            check_outputs(seen.logits[split], labels(data_, need_bias=False), split=split)
    raws, left_out = found_by(seen, columns=columns or {}, make_model=make_model, progress=progress)
    return chosen(seen, raws, left_out, given)


def chosen(seen: Seen, raws: Sequence[Raw], left_out: list[str], given: Mapping[str, Tensor]) -> Found:
    """Measure every candidate, put them in their order, and drop those that say the same again."""
    rows, split = seen.measured
    y, answers = seen.y[split][rows], seen.answers(split)[rows]
    tallies = [Tally.count(y, answers == y, raw.labels[split][rows]) for raw in raws]
    found = list(zip(raws, spreads(tallies), strict=True))
    for raw, spread in found:
        if spread is None:
            left_out.append(f"{raw.name}: no class has two groups with enough samples to compare")
    some = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:COMPARED]
    echoes = {raw.name: agreement(raw.labels[split][rows][some], answers[some]) for raw in raws}
    able = [(raw, spread) for raw, spread in found if spread is not None]
    kept: list[tuple[Raw, Spread, list[str]]] = []
    for raw, spread in _ordered(able, echoes):
        mine = raw.labels[split][rows][some]
        same = next((also for one, _, also in kept if agreement(one.labels[split][rows][some], mine) > ALIKE), None)
        if same is not None:
            same.append(raw.name)
        else:
            kept.append((raw, spread, []))
    told = seen.columns_to_tell(given)
    return Found(
        candidates=tuple(
            _candidate(seen, raw, spread, also, echoes[raw.name], told) for raw, spread, also in kept[:KEPT]
        ),
        measured_on=split if split == "val" else "train, apart from those that groups were fitted on",
        measured=len(rows),
        accuracy=float((answers == y).double().mean()),
        looked_at=len(able),
        left_out=tuple(left_out + [f"{raw.name}: beyond the first {KEPT}" for raw, *_ in kept[KEPT:]]),
        classes=seen.classes,
        logits=seen.logits,
    )


def _ordered(able: Sequence[tuple[Raw, Spread]], echoes: Mapping[str, float]) -> list[tuple[Raw, Spread]]:
    """By how much accuracy differs; columns that the law names first, what chance may explain last.

    In so far as groups repeat the model's answers, accuracy differs by construction, so a difference counts for as much
    as it doesn't. What is nearly the answers has no rank of its own: it comes behind the first two others, the earliest
    layer first, since that knows least of the answer.
    """
    own = [pair for pair in able if echoes[pair[0].name] <= ALIKE]
    worth = {raw.name: spread.value * (1 - echoes[raw.name]) for raw, spread in own}
    own.sort(key=lambda pair: (not pair[1].shown, not pair[0].named, -worth[pair[0].name]))
    repeats = [pair for pair in able if echoes[pair[0].name] > ALIKE]
    repeats.sort(key=lambda pair: pair[0].source == "answers")
    shown = sum(spread.shown for _, spread in own)
    at = min(ANSWERS_AT, shown)
    return own[:at] + repeats + own[at:]


def _candidate(
    seen: Seen, raw: Raw, spread: Spread, also: Sequence[str], echo: float, told: Mapping[str, Tensor]
) -> Candidate:
    b, y = raw.labels["train"], seen.y["train"]
    sizes = torch.zeros(len(seen.classes), len(raw.groups), dtype=torch.long)
    sizes.index_put_((y[b >= 0], b[b >= 0]), torch.ones(int((b >= 0).sum()), dtype=torch.long), accumulate=True)
    some = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))[:COMPARED]
    shared = {name: agreement(b[some], codes[some]) for name, codes in told.items() if name != raw.column}
    return Candidate(
        name=raw.name,
        source=raw.source,
        about=raw.about,
        groups=raw.groups,
        b=b,
        sizes=tuple(tuple(row) for row in sizes.tolist()),
        spread=spread,
        echo=echo,
        goes_with=dict(sorted(shared.items(), key=lambda item: -item[1])),
        also=tuple(also),
        _labels=lambda data: seen.labels_of(raw, data),
    )


def without_bias(data: Any, progress: Progress | None = None) -> tuple[Labelled, dict[str, Tensor]]:
    """(the data set with y alone, {bias: b [N]} of what it would have told)."""
    data = unloaded(data)
    cells = labels(data, need_bias=False, progress=progress)
    own = data if isinstance(data, Labelled) else None
    told = cells.b if own is None or own.b is not None else None
    if own is None:
        given = {} if told is None or told.unique().numel() < 2 else {"b": told[:, 0]}
        return Labelled(data, y=cells.y, classes=cells.classes), given
    hidden = copy.copy(own)
    hidden.b, hidden.bias_classes, hidden.aligned, hidden.groups = None, None, None, "cells"
    if own.names is not None:
        hidden.names = replace(own.names, biases=(), bias_classes=())
    if told is None:
        return hidden, {}
    return hidden, {f"{name} (its own b)": told[:, k] for k, name in enumerate(cells.columns[1:])}


def with_bias(data: Any, y: Tensor, b: Tensor, bias: str, groups: Sequence[str], classes: Sequence[str]) -> Labelled:
    """`data` with these groups as its only b, whatever it had."""
    own = data if isinstance(data, Labelled) else Labelled(data, y=y)
    target = "y" if own.names is None else own.names.target
    given = copy.copy(own)
    given.b, given.bias_classes, given.aligned, given.groups = b, (len(groups),), None, "cells"
    given.classes = len(classes)
    given.names = LabelNames(target=target, biases=(bias,), classes=tuple(classes), bias_classes=(tuple(groups),))
    return given


def named_classes(data: Any, count: int) -> tuple[str, ...]:
    """What the classes are called, or their numbers."""
    names = getattr(data, "names", None)
    if isinstance(names, LabelNames) and len(names.classes) >= count:
        return names.classes
    return tuple(str(number) for number in range(max(count, getattr(data, "classes", None) or 0)))


def fingerprints(hidden: Labelled, *, inputs: bool = True) -> dict[str, str | None]:
    """By which labels that were kept know the data set that they are of: its targets, and its inputs if asked."""
    return {"y": Content()(hidden.y).hex()} | ({"x": data_sha256(hidden)} if inputs else {})
