"""One's own csv or parquet file: targets, biases and splits from its columns, inputs from pictures, text or numbers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from bise.data.columns import Columns, missing_column, read_columns
from bise.data.contract import Labelled
from bise.data.features import Texts, encode_features
from bise.data.pictures import PictureFiles
from bise.data.strings import Strings
from bise.data.transforms import Transform
from bise.errors import BadInput, BiseWarning

SPLITS = ("train", "val", "test")
_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training", "0"), 0),
    **dict.fromkeys(("val", "valid", "validation", "dev", "1"), 1),
    **dict.fromkeys(("test", "testing", "2"), 2),
}
MOST_LABELS = 1000
_WHOLE = re.compile(r"[+-]?\d{1,18}(\.0*)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class TableData(Labelled):
    """One split of a table; its labels have names, and b = −1 stands for a row without a bias label."""

    target: str
    biases: tuple[str, ...]
    class_names: tuple[str, ...]
    bias_names: tuple[tuple[str, ...], ...]
    feature_names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """The labels of every row, numbered alike in all splits, and how a split's inputs are made."""

    target: str
    biases: tuple[str, ...]
    y: Tensor
    """[N]"""
    b: Tensor
    """[N, K], −1 where a row has no bias label."""
    part: Tensor
    """[N]: 0 for train, 1 for val, 2 for test."""
    class_names: tuple[str, ...]
    bias_names: tuple[tuple[str, ...], ...]
    inputs: Callable[[Tensor], Any]
    """From the numbers of rows to a data set of their x."""
    transform: Transform | None = None
    feature_names: tuple[str, ...] = ()

    def split(self, name: str) -> TableData | None:
        """The rows of "train", "val" or "test" as (x, y, b); None where there are none."""
        rows = (self.part == _split_number(name)).nonzero().flatten()
        if not len(rows):
            return None
        b = self.b[rows]
        data = TableData(
            self.inputs(rows),
            y=self.y[rows],
            b=None if not self.biases else b[:, 0] if len(self.biases) == 1 else b,
            classes=len(self.class_names),
            bias_classes=[len(names) for names in self.bias_names] if self.biases else None,
            transform=self.transform,
        )
        data.target, data.biases = self.target, self.biases
        data.class_names, data.bias_names = self.class_names, self.bias_names
        data.feature_names = self.feature_names
        return data


def table(path: str | Path, *, split: str = "train", **columns: Any) -> TableData:
    """One split of a csv or parquet file as (x, y, b); the other arguments are those of `read_table`."""
    data = read_table(path, **columns).split(split)
    if data is None:
        raise BadInput(f"{path} has no row of split {split!r}; name its column with split_column=, or set holdout=")
    return data


def read_table(
    path: str | Path,
    *,
    target: str,
    bias: str | Sequence[str] = (),
    split_column: str | None = None,
    holdout: tuple[float, float] | None = None,
    seed: int = 0,
    image: str | None = None,
    text: str | None = None,
    features: Sequence[str] | None = None,
    root: str | Path | None = None,
    size: tuple[int, int] | int | None = None,
    channels: int = 3,
    transform: Transform | None = None,
    tokenizer: Any = None,
    length: int = 128,
    separator: str | None = None,
    labels_only: bool = False,
) -> Table:
    """A csv or parquet file, one row a sample.

    x comes from the `image` column (paths, relative to `root` or else to the file's folder, resized to `size`), the
    `text` column (with `tokenizer` and `length`), or the `features` (left out: every column that has no other use).
    Rows belong to the split that `split_column` says; without one, `holdout=(val, test)` takes these shares by
    `seed`, and without both every row is train. `labels_only` leaves the inputs unread.
    """
    path = Path(path)
    biases = (bias,) if isinstance(bias, str) else tuple(bias)
    _check_arguments(path, target, biases, split_column, holdout, image, text, features, separator)
    if image is not None and size is None and not labels_only:
        raise BadInput("pictures need a size; give size=(height, width), or one number for a square")
    used = [target, *biases, *([split_column] if split_column else [])]
    own = [image or text or ""] if image or text else list(features or ())
    wanted = used if labels_only else None if not own else [*used, *own]
    columns = read_columns(path, wanted, present=[*used, *own], separator=separator)
    y, class_names = _targets(path, columns, target)
    encoded = [_bias(path, columns, name) for name in biases]
    b = torch.stack([codes for codes, _ in encoded], 1) if encoded else torch.empty(len(y), 0, dtype=torch.long)
    part = _parts(path, columns, split_column, holdout, seed)
    names: tuple[str, ...] = ()
    inputs: Callable[[Tensor], Any]
    if labels_only:
        inputs = unread
    elif image is not None:
        files = columns.values[image]
        _check_filled(path, files, image)
        folder = path.parent if root is None else Path(root)
        inputs = PicturesOf(files, folder, size if size is not None else 1, channels)
        transform = transform or Transform()
    elif text is not None:
        inputs = SentencesOf(columns.values[text], tokenizer, length)
    else:
        x, names = encode_features(_feature_columns(path, columns, used, features), part == 0)
        inputs = RowsOf(x)
    return Table(
        target=target,
        biases=biases,
        y=y,
        b=b,
        part=part,
        class_names=class_names,
        bias_names=tuple(found for _, found in encoded),
        inputs=inputs,
        transform=transform if image is not None and not labels_only else None,
        feature_names=names,
    )


@dataclass(frozen=True)
class PicturesOf:
    """Makes the data set of some rows' pictures."""

    files: Strings
    root: Path
    size: tuple[int, int] | int
    channels: int

    def __call__(self, rows: Tensor) -> PictureFiles:
        return PictureFiles(self.files.take(rows.tolist()), size=self.size, channels=self.channels, root=self.root)


@dataclass(frozen=True)
class SentencesOf:
    """Makes the data set of some rows' sentences."""

    texts: Strings
    tokenizer: Any
    length: int

    def __call__(self, rows: Tensor) -> Texts:
        return Texts(self.texts.take(rows.tolist()), tokenizer=self.tokenizer, length=self.length)


@dataclass(frozen=True)
class RowsOf:
    """Makes the data set of some rows' features."""

    x: Tensor

    def __call__(self, rows: Tensor) -> TensorDataset:
        return TensorDataset(self.x[rows])


def unread(rows: Tensor) -> Any:
    """Stands for inputs that nobody will ask for."""
    return range(len(rows))


def number_labels(values: Iterable[str], what: str) -> tuple[Tensor, tuple[str, ...]]:
    """[N] label numbers by sorted distinct value, −1 where a value is empty, and the names by number.

    Whole numbers are sorted as such, and 1, 01 and 1.0 are one label; anything else is sorted as text.
    """
    codes: dict[str, int] = {}
    raw = torch.from_numpy(np.fromiter((codes.setdefault(v, len(codes)) for v in values), np.int64))
    names = {text: text.strip() for text in codes}
    filled = {name for name in names.values() if name}
    ordered: list[str]
    if filled and all(_WHOLE.fullmatch(name) for name in filled):
        names = {text: str(int(name.partition(".")[0])) if name else "" for text, name in names.items()}
        ordered = sorted({name for name in names.values() if name}, key=int)
    elif filled and all(_NUMBER.fullmatch(name) for name in filled):
        odd = min(name for name in filled if not _WHOLE.fullmatch(name))
        raise BadInput(f"{what} holds {odd}, which is no whole number; labels are names or whole numbers")
    else:
        ordered = sorted(filled)
    if len(ordered) > MOST_LABELS:
        raise BadInput(
            f"{what} has {len(ordered):,} different values ({', '.join(map(repr, ordered[:3]))}, …), more than"
            f" {MOST_LABELS:,}; it is probably the wrong column"
        )
    number = {name: i for i, name in enumerate(ordered)} | {"": -1}
    lookup = torch.tensor([number[names[text]] for text in codes], dtype=torch.long)
    return lookup[raw] if len(raw) else raw, tuple(ordered)


def _targets(path: Path, columns: Columns, name: str) -> tuple[Tensor, tuple[str, ...]]:
    y, names = number_labels(columns.values[name], f"{path}, column {name!r}")
    check_targets(y, names, f"{path}, column {name!r}")
    return y, names


def check_targets(y: Tensor, names: Sequence[str], what: str) -> None:
    """Refuse a target that is missing somewhere, or that has one class only."""
    empty = (y < 0).nonzero().flatten()
    if len(empty):
        rows = ", ".join(str(int(row) + 1) for row in empty[:5]) + (", …" if len(empty) > 5 else "")
        raise BadInput(f"{what} is empty in {len(empty)} of {len(y)} rows (rows {rows}); fill them or leave them out")
    if len(names) < 2:
        raise BadInput(f"{what} holds one class only ({names[0]!r}); a target needs at least two")


def _bias(path: Path, columns: Columns, name: str) -> tuple[Tensor, tuple[str, ...]]:
    b, names = number_labels(columns.values[name], f"{path}, column {name!r}")
    if not names:
        raise BadInput(f"{path}, column {name!r} is empty in every row; name another bias, or let pseudo_bias make one")
    return b, names


def _parts(path: Path, columns: Columns, column: str | None, holdout: tuple[float, float] | None, seed: int) -> Tensor:
    if column is None:
        return held_out(columns.rows, holdout, seed)
    return split_numbers(columns.values[column], f"{path}, column {column!r}")


def split_numbers(values: Iterable[str], what: str) -> Tensor:
    """[N]: 0 for train, 1 for val, 2 for test, by the words that are in use for them."""
    codes: dict[str, int] = {}
    raw = torch.from_numpy(np.fromiter((codes.setdefault(v, len(codes)) for v in values), np.int64))
    lookup = [split_word(text) for text in codes]
    if None in lookup:
        odd = [text.strip() for text in codes if split_word(text) is None]
        shown = ", ".join(repr(text) for text in odd[:5]) + (", …" if len(odd) > 5 else "")
        raise BadInput(f"{what} holds {shown}; a split is train, val or test (or 0, 1, 2)")
    return torch.tensor(lookup, dtype=torch.long)[raw]


def split_word(text: str) -> int | None:
    """The number of the split that a word stands for, None where it is none."""
    return _SPLIT_WORDS.get(text.strip().lower().removesuffix(".0"))


def held_out(rows: int, holdout: tuple[float, float] | None, seed: int) -> Tensor:
    """[N]: every row train, or shares of them val and test, drawn by `seed`."""
    part = torch.zeros(rows, dtype=torch.long)
    if holdout is None:
        return part
    val, test = holdout
    if min(val, test) < 0 or val + test >= 1:
        raise BadInput(f"holdout={holdout} leaves no row to train on; give two shares that sum to less than 1")
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    first, second = round(rows * val), round(rows * test)
    part[order[:first]] = 1
    part[order[first : first + second]] = 2
    return part


def _split_number(name: str) -> int:
    if name not in SPLITS:
        raise BadInput(f'split={name!r} is unknown; use "train", "val" or "test"')
    return SPLITS.index(name)


def _feature_columns(
    path: Path, columns: Columns, used: Sequence[str], features: Sequence[str] | None
) -> dict[str, Strings]:
    names = features or [name for name in columns.names if name not in used]
    if features is None and "" in names:
        names = [name for name in names if name]
        warnings.warn(
            f"{path} has a column without a name, probably row numbers; it is left out of the features",
            BiseWarning,
            stacklevel=4,
        )
    for name in names:
        if name not in columns.values:
            raise missing_column(path, name, columns.names)
    return {name: columns.values[name] for name in names}


def _check_arguments(
    path: Path,
    target: str,
    biases: Sequence[str],
    split_column: str | None,
    holdout: tuple[float, float] | None,
    image: str | None,
    text: str | None,
    features: Sequence[str] | None,
    separator: str | None,
) -> None:
    one_input(image, text, features)
    if split_column is not None and holdout is not None:
        raise BadInput("splits come from split_column or from holdout; give one of them only")
    if separator is not None and len(separator) != 1:
        raise BadInput(f"separator={separator!r} is not one character")
    named = [target, *biases, *([split_column] if split_column else [])]
    twice = next((name for i, name in enumerate(named) if name in named[:i]), None)
    if twice is not None:
        raise BadInput(f"{path}: column {twice!r} is named for two purposes (target, bias, split); name each once")
    if features and target in features:
        raise BadInput(f"{path}: the target {target!r} is among the features; the model would read its answer")


def one_input(image: str | None, text: str | None, features: Sequence[str] | None) -> None:
    """Refuse more than one kind of input."""
    if sum(bool(given) for given in (image, text, features)) > 1:
        raise BadInput("x comes from image, text or features; name one of them only")


def _check_filled(path: Path, files: Strings, column: str) -> None:
    empty = [i + 1 for i, name in enumerate(files) if not name.strip()]
    if empty:
        raise BadInput(
            f"{path}, column {column!r} names no file in {len(empty)} of {len(files)} rows (row {empty[0]} the first);"
            " leave these rows out"
        )
