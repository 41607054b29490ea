"""Which data a run is about, as a hash: a run goes on only with what it began with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset

from bise.base.errors import caution
from bise.base.names import SQUASH
from bise.data.core.content import Content, attributes
from bise.data.core.contract import Labelled, input_of, stored, tensors_of
from bise.data.core.drawing import Drawn, drawn
from bise.data.core.pictures import PictureFiles, Pictures
from bise.data.core.tokens import Sentences
from bise.data.core.transforms import Transform

SCHEME = "2:"
"""Begins each hash; another definition of what is hashed gets another number."""
LOOKED_AT = 1000
"""Pictures whose sizes are looked at, evenly over all of them."""
RANDOM = "labels, and the arrays and transforms that it holds: inputs are random"
COMPARED = 8
"""Samples that two splits are compared by, about."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The hash of a data set, and what of it was hashed: its content, or less where that can't be had."""

    sha256: str
    of: str
    random: bool = False
    """Whether its inputs are other ones each time they are asked for, so that no hash of them is in it."""


def identity_of(dataset: Any) -> Identity | None:
    """Labels, inputs and transforms by what they hold; None where there is no data set.

    Tensors, arrays, lists, pandas' columns, Pillow's pictures and texts go by their content, picture files by their
    names and sizes. A data set that is code goes by samples drawn evenly over it, and by the tensors, arrays,
    lists of numbers and transforms that it holds.
    """
    if dataset is None:
        return None
    content = _DataContent()
    try:
        known = content.data(dataset)
        return Identity(sha256=f"{SCHEME}{known.hex()}", of=" and ".join(sorted(content.partly)) or "content")
    except _IsCode:
        found = _drawn(dataset)
    content.asked = True  # what loads itself with the first sample is there from now on
    random = found.sha256 is None
    labels = None
    if random and not isinstance(dataset, Labelled):  # whose labels its content tells
        labels = drawn(dataset, lambda index: dataset[index][1:]).sha256
    whole = content.all("drawn", len(dataset), found.sha256, labels, _Known(content.data(dataset))).hex()
    some = f"fingerprint of {found.count} of {len(dataset)} samples"
    return Identity(sha256=f"{SCHEME}{whole}", of=RANDOM if random else some, random=random)


def _drawn(dataset: Any) -> Drawn:
    """Samples as they are stored where the transform's numbers tell the rest, or else as they are handed out."""
    inner, transform = stored(dataset)
    if isinstance(dataset, Labelled) and _is_told(transform):
        return drawn(inner, lambda index: input_of(inner[index]))
    return drawn(dataset, lambda index: dataset[index])


def data_sha256(dataset: Any) -> str | None:
    """The hash alone."""
    found = identity_of(dataset)
    return None if found is None else found.sha256


def identities(splits: Mapping[str, Any]) -> dict[str, Identity | None]:
    """{split: what its data are known by}."""
    return {name: identity_of(data) for name, data in splits.items()}


def hashes(known: Mapping[str, Identity | None]) -> dict[str, str | None]:
    """As a run's configuration notes them."""
    return {name: None if one is None else one.sha256 for name, one in known.items()}


def known_by(known: Mapping[str, Identity | None]) -> dict[str, Any]:
    """As a run's summary tells of them, among its facts about the data."""
    return {"identity": {name: one.of for name, one in known.items() if one is not None}}


def is_older(sha256: Any) -> bool:
    """Whether an earlier version made this hash, so that today's says nothing about it."""
    return sha256 is not None and not str(sha256).startswith(SCHEME)


def same_samples(one: Any, other: Any) -> bool:
    """Whether two data sets hold the very same samples, whatever is done to them afterwards.

    A few samples tell whether it is worth while to look at all.
    """
    if one is other:
        return True
    if one is None or other is None or len(one) != len(other):
        return False
    first, second = (stored(data)[0] for data in (one, other))
    some = range(0, len(one), max(1, len(one) // COMPARED))
    try:
        if not all(_equal(first[i], second[i]) for i in some):
            return False
    except Exception:  # what can't be read, whoever needs it says so
        return False
    mine, others = ([data.y, data.b] if isinstance(data, Labelled) else None for data in (one, other))
    return Content()(mine) == Content()(others) and data_sha256(first) == data_sha256(second)


def warn_of_same(splits: Mapping[str, Any], pairs: Sequence[tuple[str, str]]) -> None:
    """Say where two splits are the very same data: figures on the later one prove nothing."""
    for one, other in pairs:
        if splits[other] is not None and same_samples(splits[one], splits[other]):
            caution(
                f"{one} and {other} are the very same data, so what is measured on {other} says nothing about samples"
                " that were not seen before; give each split samples of its own",
                stacklevel=3,
            )


def _equal(one: Any, other: Any) -> bool:
    """Whether two samples, nested or not, hold the same values."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(np.array_equal(one, other))


class _DataContent(Content):
    """The content of data sets, as far as it is known without asking for samples."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = False
        """Whether samples were asked for, as a data set that is code takes."""
        self.partly: set[str] = set()
        """What else than content is hashed."""

    def data(self, dataset: Any) -> bytes:
        """Of a data set, which other objects hold too."""
        if _plainly(dataset, Labelled):
            self._check(_is_told(dataset.transform))
            said = dataset.classes, dataset.bias_classes, dataset.aligned, dataset.groups, dataset.transform
            return self.all("labelled", dataset.y, dataset.b, *said, _Known(self.data(dataset.dataset)))
        if (tensors := tensors_of(dataset)) is not None:
            return self.all("tensors", *tensors)
        if _plainly(dataset, Subset):
            return self.all("subset", np.asarray(dataset.indices), _Known(self.data(dataset.dataset)))
        if _plainly(dataset, ConcatDataset):
            return self.all("one after another", *(_Known(self.data(part)) for part in dataset.datasets))
        if _plainly(dataset, StackDataset):
            beside = dataset.datasets
            named = beside.items() if isinstance(beside, Mapping) else enumerate(beside)
            return self.all("side by side", *((name, _Known(self.data(part))) for name, part in named))
        if isinstance(dataset, Sentences):
            coder = dataset.coder
            # what cuts the texts is known by a key, or else by what it makes of them
            cut = coder.key if coder.key is not None else (dataset.tokens.flat, dataset.tokens.lengths)
            return self.all("sentences", dataset.texts, coder.length, coder.pad, cut)
        if _plainly(dataset, Pictures):
            return self._pictures(dataset)
        if isinstance(dataset, (list, tuple, np.ndarray, Tensor, Mapping, str, range)):
            return self(dataset)
        if type(dataset).__module__.partition(".")[0] in ("pandas", "polars"):
            return self(dataset)
        self._check(False)
        return self.all(type(dataset).__qualname__, self._parts(dataset))

    def _check(self, told: bool) -> None:
        """Stop at what its parts don't tell of, if no sample was asked for yet."""
        if not told and not self.asked:
            raise _IsCode

    def _object(self, value: Any) -> bytes:
        if isinstance(value, _Known):
            return value.digest
        return self.data(value) if isinstance(value, Dataset) else super()._object(value)

    def _parts(self, dataset: Any) -> dict[str, Any]:
        """What a data set that is code holds and its samples come from, and nothing that asking for some may change.

        Numbers may count what was asked for, and dicts and lists with gaps may remember it.
        """
        return {
            name: part
            for name, part in attributes(dataset).items()
            if isinstance(part, (Tensor, np.ndarray, Dataset))
            or (
                not name.startswith("_") and (callable(part) or (isinstance(part, (list, tuple)) and _is_numeric(part)))
            )
        }

    def _pictures(self, dataset: Pictures) -> bytes:
        """Their names and sizes; those in memory by their content."""
        seen = range(0, len(dataset), max(1, len(dataset) // LOOKED_AT))
        sources = [dataset.source(index)[0] for index in seen]
        files = sum(isinstance(source, Path) for source in sources)
        some = "" if len(seen) == len(dataset) else f" of {len(seen)} of {len(dataset)} pictures"
        if files or some:
            self.partly.add((f"names, and sizes{some}" if some else "names and sizes") if files else f"content{some}")
        names = dataset.paths if isinstance(dataset, PictureFiles) else None
        held = [_size(source) if isinstance(source, Path) else source for source in sources]
        shape = (dataset.size, dataset.channels, dataset.crop, *(() if dataset.fit == SQUASH else (dataset.fit,)))
        return self.all("pictures", len(dataset), *shape, names, held)


class _IsCode(Exception):
    """Some of a data set is known by asking for samples alone."""


class _Known:
    """A hash that stands for what it is one of."""

    def __init__(self, digest: bytes) -> None:
        self.digest = digest


def _plainly(dataset: Any, kind: Any) -> bool:
    """Whether it is of a kind whose samples are known: a class of one's own may do anything on access."""
    return isinstance(dataset, kind) and type(dataset).__getitem__ is kind.__getitem__


def _is_told(transform: Any) -> bool:
    """Whether a transform's numbers are all that there is to it."""
    return transform is None or type(transform) is Transform


def _is_numeric(value: Any) -> bool:
    """Whether a list holds numbers, tensors and arrays only, nested or not."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(_is_numeric, value))
    return isinstance(value, (int, float, np.generic, np.ndarray, Tensor))


def _size(path: Path) -> int:
    """Bytes of a file; whoever reads one that isn't there says so."""
    try:
        return path.stat().st_size
    except OSError:
        return -1
