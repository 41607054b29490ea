"""One's own csv or parquet file: targets, biases and splits from its columns, inputs from pictures, text or numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from bise.base.errors import BadInput, named
from bise.base.names import SQUASH
from bise.data.core.coders import coder_of
from bise.data.core.contract import Labelled
from bise.data.core.naming import LabelNames
from bise.data.core.numbering import check_targets, held_out, number_labels, split_number, split_numbers
from bise.data.core.pictures import PictureFiles, Pictures, tell_squashed
from bise.data.core.strings import Strings
from bise.data.core.tokens import Sentences
from bise.data.core.transforms import Transform
from bise.data.own.coding import Coding, known_labels
from bise.data.own.columns import Columns, missing_column, read_columns
from bise.data.own.encoded import EncodedOf, parquet_pictures
from bise.data.own.features import Encoder
from bise.data.own.uses import ALL, PASSED_OVER, READ, check_arguments, check_splits, chosen

LOOKED_AT = 20
"""Pictures, about, whose sides are looked at."""
Numbered = tuple[Tensor, tuple[str, ...]]
"""The numbers [N] of a column's labels, and their names."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Origin:
    """Rows [N] of a csv or parquet file, counted from 0."""

    path: Path
    separator: str | None
    rows: Tensor


class TableData(Labelled):
    """One split of a table; its labels have names, and b = −1 stands for a row without a bias label."""

    names: LabelNames
    encoder: Encoder | None = None
    """How its features were made, and those of new rows are."""
    origin: Origin | None = None
    """Where its rows are, for who looks at columns that nobody named."""

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.names.classes

    @property
    def bias_names(self) -> tuple[tuple[str, ...], ...]:
        return self.names.bias_classes

    @property
    def feature_names(self) -> tuple[str, ...]:
        return () if self.encoder is None else self.encoder.names

    @property
    def coding(self) -> Coding:
        """By which other files are read alike."""
        return Coding(names=self.names, encoder=self.encoder)


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """The labels of every row, numbered alike in all splits, and how a split's inputs are made."""

    names: LabelNames
    y: Tensor
    """[N]"""
    b: Tensor
    """[N, K], −1 where a row has no bias label."""
    part: Tensor
    """[N]: 0 for train, 1 for val, 2 for test."""
    inputs: Callable[[Tensor], Any]
    """From the numbers of rows to a data set of their x."""
    transform: Transform | None = None
    encoder: Encoder | None = None
    path: Path | None = None
    separator: str | None = None

    @staticmethod
    def of(
        target: str,
        targets: Numbered,
        biases: Mapping[str, Numbered],
        *,
        part: Tensor,
        inputs: Callable[[Tensor], Any],
        transform: Transform | None = None,
        encoder: Encoder | None = None,
    ) -> Table:
        """From the columns' numbers [N] and the names of these, biases as {column: …}."""
        y, classes = targets
        columns = [codes for codes, _ in biases.values()]
        return Table(
            names=LabelNames(
                target=target,
                biases=tuple(biases),
                classes=classes,
                bias_classes=tuple(names for _, names in biases.values()),
            ),
            y=y,
            b=torch.stack(columns, 1) if columns else torch.empty(len(y), 0, dtype=torch.long),
            part=part,
            inputs=inputs,
            transform=transform,
            encoder=encoder,
        )

    def split(self, name: str) -> TableData | None:
        """The rows of "train", "val" or "test" as (x, y, b); None where there are none."""
        rows = (self.part == split_number(name)).nonzero().flatten()
        if not len(rows):
            return None
        b = self.b[rows]
        data = TableData(
            self.inputs(rows),
            y=self.y[rows],
            b=None if b.shape[1] == 0 else b[:, 0] if b.shape[1] == 1 else b,
            transform=self.transform,
            names=self.names,
        )
        data.encoder = self.encoder
        data.origin = None if self.path is None else Origin(path=self.path, separator=self.separator, rows=rows)
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
    ignore: Sequence[str] = (),
    root: str | Path | None = None,
    size: tuple[int, int] | int | None = None,
    fit: str | None = None,
    channels: int = 3,
    transform: Transform | None = None,
    tokenizer: Any = None,
    length: int = 128,
    separator: str | None = None,
    labels_only: bool = False,
    like: TableData | Coding | None = None,
) -> Table:
    """A csv or parquet file, one row a sample.

    x comes from the `image` column (paths, relative to `root` or else to the file's folder, resized to `size`; in
    parquet also the files' bytes, which are held in memory), the `text` column (with `tokenizer` and `length`), or the
    `features` (left out, or "*" among them: every column that has no other use, but for ids). Rows belong to the split
    that `split_column` says; without one, `holdout=(val, test)` takes these shares by `seed`, and without both every
    row is train. `labels_only` leaves inputs unread. With `like`, labels and features are made as in that training set.
    """
    path = Path(path)
    biases, used = used_columns(target, bias, split_column)
    check_arguments(path, used, holdout, split_column, image, text, features, ignore, separator)
    check_sized(image, size, labels_only)
    encoded = None if labels_only or image is None else parquet_pictures(path, image)
    named = [image or text or ""] if image or text else [name for name in features or () if name != ALL]
    every = not labels_only and encoded is None and (not named or ALL in (features or ()))
    wanted = None if every else used if labels_only or encoded is not None else [*used, *named]
    columns = read_columns(path, wanted, present=[*used, *named, *ignore], separator=separator)
    free = [name for name in columns.names if name not in {*used, *named, *ignore}]
    coding = coding_of(like)
    classes, *groups = known_labels(coding, target, biases)
    targets = _targets(path, columns, target, classes)
    found = {name: _bias(path, columns, name, known) for name, known in zip(biases, groups, strict=True)}
    if split_column is None and holdout is None:
        read = not image and not text and like is None and (features is None or "*" in features)
        _check_unsplit(path, free, columns, separator, READ if read else PASSED_OVER)
    part = _parts(path, columns, split_column, holdout, seed)
    encoder: Encoder | None = None
    inputs: Callable[[Tensor], Any] = unread
    if not labels_only and image is not None:
        inputs = _pictures(path, columns, image, encoded, root, 1 if size is None else size, channels, fit)
    elif not labels_only and text is not None:
        inputs = SentencesOf(columns.values[text], tokenizer, length)
    elif not labels_only:
        encoder = None if coding is None else coding.features(path)
        names = features if encoder is None else [column.name for column in encoder.columns]
        inputs, encoder = rows_of(_feature_columns(path, columns, free, names), encoder, part == 0, path)
    change = None if labels_only or image is None else transform or Transform()
    made = Table.of(target, targets, found, part=part, inputs=inputs, transform=change, encoder=encoder)
    return replace(made, path=path, separator=separator)


def coding_of(like: TableData | Coding | None) -> Coding | None:
    return like.coding if isinstance(like, TableData) else like


def used_columns(target: str, bias: str | Sequence[str], split: str | None) -> tuple[tuple[str, ...], list[str]]:
    """(biases, all columns that have a use of their own)."""
    biases = (bias,) if isinstance(bias, str) else tuple(bias)
    return biases, [target, *biases, *([split] if split else [])]


@dataclass(frozen=True)
class PicturesOf:
    """Makes the data set of some rows' pictures."""

    files: Strings
    root: Path
    size: tuple[int, int] | int
    channels: int
    fit: str

    def __call__(self, rows: Tensor) -> PictureFiles:
        how: dict[str, Any] = {"size": self.size, "channels": self.channels, "fit": self.fit, "root": self.root}
        return PictureFiles(self.files.take(rows.tolist()), **how)


@dataclass(frozen=True)
class SentencesOf:
    """Makes the data set of some rows' sentences."""

    texts: Strings
    tokenizer: Any
    length: int

    def __call__(self, rows: Tensor) -> Sentences:
        return Sentences(self.texts.take(rows.tolist()), coder_of(self.tokenizer, self.length))


@dataclass(frozen=True)
class RowsOf:
    """Makes the data set of some rows' features."""

    x: Tensor

    def __call__(self, rows: Tensor) -> TensorDataset:
        return TensorDataset(self.x[rows])


def rows_of(
    columns: Mapping[str, Strings], encoder: Encoder | None, train: Tensor, what: object
) -> tuple[RowsOf, Encoder]:
    """Features by the encoder of other training data, or else by one from the rows in `train` [N] (bool)."""
    with named(what):
        made = encoder or Encoder.fit(columns, train)
        inputs = RowsOf(made(columns))
    if encoder is not None:
        made.tell_silent(columns, what)
    return inputs, made


def unread(rows: Tensor) -> Any:
    """Stands for inputs that nobody will ask for."""
    return range(len(rows))


def _targets(path: Path, columns: Columns, name: str, known: Sequence[str] | None) -> Numbered:
    y, names = number_labels(columns.values[name], f"{path}, column {name!r}", known)
    check_targets(y, names, f"{path}, column {name!r}")
    return y, names


def _bias(path: Path, columns: Columns, name: str, known: Sequence[str] | None) -> Numbered:
    b, names = number_labels(columns.values[name], f"{path}, column {name!r}", known)
    if not names:
        raise BadInput(f"{path}, column {name!r} is empty in every row; name another bias, or let pseudo_bias make one")
    return b, names


def _parts(path: Path, columns: Columns, column: str | None, holdout: tuple[float, float] | None, seed: int) -> Tensor:
    if column is None:
        return held_out(columns.rows, holdout, seed)
    return split_numbers(columns.values[column], f"{path}, column {column!r}")


def _feature_columns(
    path: Path, columns: Columns, free: Sequence[str], features: Sequence[str] | None
) -> dict[str, Strings]:
    names = chosen(path, columns.values, free, features)
    for name in names:
        if name not in columns.values:
            raise missing_column(path, name, columns.names)
    return {name: columns.values[name] for name in names}


def _check_unsplit(path: Path, names: Sequence[str], columns: Columns, separator: str | None, otherwise: str) -> None:
    """Refuse a table without a named split in which a column without a use says it; unread ones are looked at too."""
    found = columns.of(names)
    unread = [name for name in names if name not in found]
    if path.suffix.lower() not in (".parquet", ".pq"):
        found |= read_columns(path, unread, separator=separator).values if unread else {}
        unread = []
    for name in unread:
        with suppress(BadInput):  # it holds pictures or lists, and no words
            found |= read_columns(path, [name]).values
    check_splits(path, found, otherwise)


def check_sized(image: str | None, size: tuple[int, int] | int | None, labels_only: bool) -> None:
    if image is not None and size is None and not labels_only:
        raise BadInput("pictures need a size; give size=(height, width), or one number for a square")


def _pictures(
    path: Path,
    columns: Columns,
    name: str,
    encoded: Any,
    root: str | Path | None,
    size: tuple[int, int] | int,
    channels: int,
    fit: str | None,
) -> Callable[[Tensor], Any]:
    """Pictures of a column: the bytes that parquet holds, or else files by their paths below `root`."""
    folder = path.parent if root is None else Path(root)
    if encoded is not None:
        return pictures_as_asked(
            EncodedOf(encoded, size, channels, str(path), folder, fit or SQUASH), columns.rows, fit
        )
    _check_filled(path, columns.values[name], name)
    made = PicturesOf(columns.values[name], folder, size, channels, fit or SQUASH)
    return pictures_as_asked(made, columns.rows, fit)


def pictures_as_asked(made: Callable[[Tensor], Pictures], rows: int, fit: str | None) -> Callable[[Tensor], Pictures]:
    """`made`, after a word about pictures that it squashes unless `fit` asks for that; a few of `rows` tell."""
    if fit is None:
        tell_squashed(made(torch.arange(0, rows, max(1, rows // LOOKED_AT))))
    return made


def _check_filled(path: Path, files: Strings, column: str) -> None:
    empty = [i + 1 for i, name in enumerate(files) if not name.strip()]
    if empty:
        raise BadInput(
            f"{path}, column {column!r} names no file in {len(empty)} of {len(files)} rows (row {empty[0]} the first);"
            " leave these rows out"
        )
