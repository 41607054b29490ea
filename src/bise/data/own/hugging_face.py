"""Folders of Hugging Face's `datasets`, read column by column as a table is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bise.base.errors import BadInput
from bise.base.names import SQUASH
from bise.data.core.numbering import check_targets, held_out, number_labels, split_numbers
from bise.data.core.room import Room
from bise.data.core.strings import Strings
from bise.data.core.transforms import Transform
from bise.data.own.coding import Coding, known_labels
from bise.data.own.columns import check_kind, missing_column, texts
from bise.data.own.encoded import EncodedOf
from bise.data.own.features import Encoder
from bise.data.own.folders import one_split
from bise.data.own.hub_files import opened, unreadable
from bise.data.own.parquet_files import cells
from bise.data.own.tables import (
    Numbered,
    RowsOf,
    SentencesOf,
    Table,
    TableData,
    check_sized,
    coding_of,
    pictures_as_asked,
    rows_of,
    unread,
    used_columns,
)
from bise.data.own.uses import ALL, PASSED_OVER, READ, check_arguments, check_splits, chosen


def hugging_face(folder: str | Path, *, split: str = "train", **columns: Any) -> TableData:
    """One split of a folder of `datasets.save_to_disk` as (x, y, b).

    Args:
        folder: The folder of a Dataset or DatasetDict, whose splits are used.
        split: "train", "val" or "test".
        **columns: target=, bias=, and image=, text= or features= name columns; all others are as for
            `bise.data.table`.

    Returns:
        A data set whose `.names` say what its labels are called.

    Raises:
        BadInput: The folder can't be read, a column isn't there, or the split is empty.

    Example:
        >>> train = bise.data.hugging_face("reviews", target="liked", bias="about", text="text", tokenizer="vocab.txt")
        ... # doctest: +SKIP
    """
    return one_split(read_hugging_face(folder, **columns), folder, split)


def read_hugging_face(
    folder: str | Path,
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
    size: tuple[int, int] | int | None = None,
    fit: str | None = None,
    channels: int = 3,
    transform: Transform | None = None,
    tokenizer: Any = None,
    length: int = 128,
    labels_only: bool = False,
    like: TableData | Coding | None = None,
) -> Table:
    """A folder of `datasets.save_to_disk`, columns as in `read_table`; the splits of a DatasetDict are its splits."""
    folder = Path(folder)
    biases, used = used_columns(target, bias, split_column)
    check_arguments(folder, used, holdout, split_column, image, text, features, ignore)
    check_sized(image, size, labels_only)
    named = [name for name in (*used, image, text, *ignore, *(features or ())) if name]
    whole, part, room = opened(folder, named if (image or text) and (split_column or holdout) else None)
    for name in filter(None, (*used, image, text, *ignore, *(features or ()))):
        if name not in whole.column_names and name != ALL:
            raise missing_column(folder, name, whole.column_names)
    free = [name for name in whole.column_names if name not in {*used, image, text, *ignore}]
    if part is not None and (split_column is not None or holdout is not None):
        raise BadInput(f"{folder} has splits of its own; leave split_column and holdout out")
    if split_column is not None:
        part = split_numbers(_column(whole, split_column, folder, room), f"{folder}, column {split_column!r}")
    elif part is None:
        part = held_out(len(whole), holdout, seed)
        others = [] if holdout is not None else [name for name in free if name not in (features or ())]
        unasked = not image and not text and like is None
        check_splits(folder, _words(whole, others, folder, room), READ if unasked else PASSED_OVER)
    coding = coding_of(like)
    classes, *groups = known_labels(coding, target, biases)
    targets = _labels(whole, target, folder, classes, room)
    check_targets(*targets, f"{folder}, column {target!r}")
    found = {name: _labels(whole, name, folder, known, room) for name, known in zip(biases, groups, strict=True)}
    encoder: Encoder | None = None
    inputs: Any = unread
    if not labels_only and image is not None and size is not None:
        held = _Cells(_undecoded(whole, image, folder), folder)
        inputs = pictures_as_asked(EncodedOf(held, size, channels, str(folder), Path(), fit or SQUASH), len(whole), fit)
    elif not labels_only and text is not None:
        inputs = SentencesOf(_column(whole, text, folder, room), tokenizer, length)
    elif not labels_only:
        inputs, encoder = _features(whole, free, features, coding, part == 0, folder, room)
    change = None if labels_only or image is None else transform or Transform()
    return Table.of(target, targets, found, part=part, inputs=inputs, transform=change, encoder=encoder)


def _column(whole: Any, name: str, folder: Path, room: Room) -> Strings:
    out = Strings()
    what = f"{folder}, column {name!r}"
    check_kind(whole.features.arrow_schema.field(name).type, what)
    try:
        for batch in whole.select_columns([name]).with_format("arrow").iter(1 << 14):
            batch.validate(full=True)  # Arrow files are mapped as they are; lengths in them may lead anywhere
            out.extend(texts(cells(batch.column(name)), what, room))
    except BadInput:
        raise
    except Exception as error:
        raise unreadable(folder, error) from error
    return out


def _features(
    whole: Any,
    free: Sequence[str],
    features: Sequence[str] | None,
    coding: Coding | None,
    train: Tensor,
    folder: Path,
    room: Room,
) -> tuple[RowsOf, Encoder]:
    """Rows of numbers from the chosen columns, or from those that `coding` has, and how they were made."""
    encoder = None if coding is None else coding.features(folder)
    if encoder is not None:
        names = [column.name for column in encoder.columns if column.name in whole.column_names]
        return rows_of({name: _column(whole, name, folder, room) for name in names}, encoder, train, folder)
    names = list(free if features is None or ALL in features else features)
    held = {name: _column(whole, name, folder, room) for name in names}
    return rows_of({name: held[name] for name in chosen(folder, held, free, features)}, None, train, folder)


def _words(whole: Any, names: Sequence[str], folder: Path, room: Room) -> dict[str, Strings]:
    """The columns of text, which alone may say splits; of others the names are enough."""
    kinds = {name: whole.features.arrow_schema.field(name).type for name in names}
    return {
        name: _column(whole, name, folder, room) if "string" in str(kind) else Strings() for name, kind in kinds.items()
    }


def _labels(whole: Any, name: str, folder: Path, known: Sequence[str] | None, room: Room) -> Numbered:
    """Numbers and names; a ClassLabel keeps its own, where −1 and null are missing."""
    own = getattr(whole.features[name], "names", None)
    column = _column(whole, name, folder, room)
    if not isinstance(own, list):
        return number_labels(column, f"{folder}, column {name!r}", known)
    numbers = torch.tensor([int(value) if value else -1 for value in column])
    if known is None or list(known) == own:
        return numbers, tuple(own)
    named = (own[number] if number >= 0 else "" for number in numbers.tolist())
    return number_labels(named, f"{folder}, column {name!r}", known)


def _undecoded(whole: Any, name: str, folder: Path) -> Any:
    import datasets

    if not isinstance(whole.features[name], datasets.Image):
        raise BadInput(f"{folder}, column {name!r} is {whole.features[name]}, not of the type Image")
    return whole.select_columns([name]).cast_column(name, datasets.Image(decode=False)).with_format("arrow")


@dataclass(frozen=True)
class _Cells:
    """The cells of a column, each validated as it is asked for."""

    whole: Any
    folder: Path

    def __getitem__(self, row: int) -> Any:
        try:
            cell = self.whole[row].column(0)
            cell.validate(full=True)
            return cell[0].as_py()
        except Exception as error:  # what the file holds is Arrow's to judge
            raise unreadable(self.folder, error) from error
