"""Folders of pictures, one folder a class, and folders that Hugging Face's `datasets` saved, as tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bise.base.errors import BadInput, caution
from bise.data.core.numbering import check_targets, held_out, number_labels, split_numbers, split_word
from bise.data.core.pictures import ENDINGS
from bise.data.core.room import Room
from bise.data.core.strings import Strings
from bise.data.core.transforms import Transform
from bise.data.own.arrow_files import check_folder
from bise.data.own.coding import Coding, known_labels
from bise.data.own.columns import check_kind, missing_column, read_columns, texts
from bise.data.own.encoded import EncodedOf
from bise.data.own.features import Encoder
from bise.data.own.parquet_files import cells
from bise.data.own.tables import (
    Numbered,
    PicturesOf,
    RowsOf,
    SentencesOf,
    Table,
    TableData,
    check_arguments,
    check_sized,
    rows_of,
    unread,
)


def read_image_folder(
    folder: str | Path,
    bias_csv: str | Path | None = None,
    *,
    bias: str | Sequence[str] | None = None,
    file_column: str = "file",
    holdout: tuple[float, float] | None = None,
    seed: int = 0,
    size: tuple[int, int] | int | None = None,
    channels: int = 3,
    transform: Transform | None = None,
    labels_only: bool = False,
    like: TableData | Coding | None = None,
) -> Table:
    """Pictures as `folder/split/class/file` or `folder/class/file`, and a csv with a column `file` and the biases.

    A file is named there by its path below `folder`, or by its name alone where no other file has it. A picture
    without a row has no bias label (b = −1). `bias` left out takes every other column of the csv. With `like`,
    labels are numbered as in that training set.
    """
    folder = Path(folder)
    if size is None and not labels_only:
        raise BadInput("pictures need a size; give size=(height, width), or one number for a square")
    files, classes, parts = _listed(folder)
    if any(part is not None for part in parts):
        if holdout is not None:
            raise BadInput(f"{folder} has folders for its splits already; leave holdout out")
        part = torch.tensor([int(part or 0) for part in parts])
    else:
        part = held_out(len(files), holdout, seed)
    coding = like.coding if isinstance(like, TableData) else like
    targets = number_labels(classes, str(folder), None if coding is None else coding.names.classes)
    check_targets(*targets, str(folder))
    biases: dict[str, Numbered] = {}
    if bias_csv is not None:
        biases = _biases(Path(bias_csv), files, file_column, bias, coding)
    elif bias:
        raise BadInput(f"{folder} holds no biases; name the csv that does with bias_csv=…")
    return Table.of(
        "class",
        targets,
        biases,
        part=part,
        inputs=unread if labels_only or size is None else PicturesOf(Strings(files), folder, size, channels),
        transform=None if labels_only else transform or Transform(),
    )


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
    size: tuple[int, int] | int | None = None,
    channels: int = 3,
    transform: Transform | None = None,
    tokenizer: Any = None,
    length: int = 128,
    labels_only: bool = False,
    like: TableData | Coding | None = None,
) -> Table:
    """A folder of `datasets.save_to_disk`, columns as in `read_table`; the splits of a DatasetDict are its splits."""
    folder = Path(folder)
    biases = (bias,) if isinstance(bias, str) else tuple(bias)
    check_arguments(folder, target, biases, split_column, holdout, image, text, features)
    check_sized(image, size, labels_only)
    room = check_folder(folder)
    whole, part = _loaded(folder)
    for name in filter(None, (target, *biases, split_column, image, text, *(features or ()))):
        if name not in whole.column_names:
            raise missing_column(folder, name, whole.column_names)
    if part is None and split_column is not None:
        part = split_numbers(_column(whole, split_column, folder, room), f"{folder}, column {split_column!r}")
    elif part is None:
        part = held_out(len(whole), holdout, seed)
    elif split_column is not None or holdout is not None:
        raise BadInput(f"{folder} has splits of its own; leave split_column and holdout out")
    coding = like.coding if isinstance(like, TableData) else like
    classes, *groups = known_labels(coding, target, biases)
    targets = _labels(whole, target, folder, classes, room)
    check_targets(*targets, f"{folder}, column {target!r}")
    found = {name: _labels(whole, name, folder, known, room) for name, known in zip(biases, groups, strict=True)}
    encoder: Encoder | None = None
    inputs: Any = unread
    if not labels_only and image is not None and size is not None:
        cells = _Cells(_undecoded(whole, image, folder), folder)
        inputs = EncodedOf(cells, size, channels, str(folder), Path())
    elif not labels_only and text is not None:
        inputs = SentencesOf(_column(whole, text, folder, room), tokenizer, length)
    elif not labels_only:
        chosen = features or [name for name in whole.column_names if name not in {target, *biases, split_column}]
        inputs, encoder = _features(whole, chosen, coding, part == 0, folder, room)
    return Table.of(
        target,
        targets,
        found,
        part=part,
        inputs=inputs,
        transform=None if labels_only or image is None else transform or Transform(),
        encoder=encoder,
    )


def is_hugging_face(folder: Path) -> bool:
    """Whether `datasets` saved this folder."""
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def _listed(folder: Path) -> tuple[list[str], list[str], list[int | None]]:
    """Of every picture: its path below `folder`, its class, and the number of its split, None without splits."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is no folder; name one that holds a folder for each class")
    try:
        return _walked(folder)
    except OSError as error:
        raise BadInput(
            f"{error.filename or folder} can't be read ({error.strerror}); change who may read it"
        ) from error


def _walked(folder: Path) -> tuple[list[str], list[str], list[int | None]]:
    tops = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    tops = [top for top in tops if any(top.iterdir())]
    splits = [top for top in tops if split_word(top.name) is not None and _has_folders(top)]
    split = bool(tops) and len(splits) == len(tops)
    if not split and any(not top.name.isdecimal() for top in splits):  # 0, 1 and 2 are classes beside other ones
        odd = next(top.name for top in tops if top not in splits)
        raise BadInput(
            f"{folder} holds splits ({', '.join(top.name for top in splits)}) and {odd!r} beside them, which is none;"
            " move that elsewhere"
        )
    files: list[str] = []
    classes: list[str] = []
    parts: list[int | None] = []
    other: Counter[str] = Counter()
    for top in tops:
        for where in sorted(p for p in top.iterdir() if p.is_dir()) if split else [top]:
            for parent, _, names in sorted(os.walk(where, onerror=_raise)):
                for name in sorted(name for name in names if not name.startswith(".")):
                    if not name.lower().endswith(ENDINGS):
                        other[Path(name).suffix or name] += 1
                        continue
                    files.append(str((Path(parent) / name).relative_to(folder)))
                    classes.append(where.name)
                    parts.append(split_word(top.name) if split else None)
    if other:
        shown = ", ".join(f"{count} × {ending}" for ending, count in other.most_common(5))
        caution(f"{folder}: files that are no pictures by their ending are left out ({shown})", stacklevel=4)
    if not files:
        raise BadInput(f"{folder} holds no picture; it takes folder/class/file or folder/split/class/file")
    return files, classes, parts


def _raise(error: OSError) -> None:
    raise error


def _has_folders(folder: Path) -> bool:
    return any(p.is_dir() for p in folder.iterdir())


def _biases(
    path: Path, files: Sequence[str], file_column: str, bias: str | Sequence[str] | None, coding: Coding | None
) -> dict[str, Numbered]:
    asked = (bias,) if isinstance(bias, str) else tuple(bias or ())
    found = read_columns(path, [file_column, *asked] if asked else None, present=[file_column])
    names = asked or tuple(name for name in found.names if name and name != file_column)
    if not names:
        raise BadInput(f"{path} has no column beside {file_column!r}; it needs one for each bias")
    row_of: dict[int, int] = {}
    by_path = {Path(name).as_posix(): i for i, name in enumerate(files)}
    by_name: dict[str, int] = {}
    for i, name in enumerate(files):
        base = Path(name).name
        by_name[base] = -1 if base in by_name else i
    for row, name in enumerate(found.values[file_column]):
        key = Path(name.strip()).as_posix()
        file = by_path.get(key, by_name.get(key))
        if file is None or file < 0:
            why = "is no picture of the folder; write its path below that, or leave the row out"
            why = why if file is None else "is the name of several pictures; write its path"
            raise BadInput(f"{path}, row {row + 1}: {name.strip()!r} {why}")
        if file in row_of:
            raise BadInput(f"{path}, row {row + 1}: {name.strip()!r} has a second row; keep one")
        row_of[file] = row
    biases: dict[str, Numbered] = {}
    _, *groups = known_labels(coding, None, names)
    for name, known in zip(names, groups, strict=True):
        column = found.values[name]
        cells = (column[row_of[i]] if i in row_of else "" for i in range(len(files)))
        biases[name] = number_labels(cells, f"{path}, column {name!r}", known)
        if not biases[name][1]:
            raise BadInput(f"{path}, column {name!r} is empty in every row; name another bias")
    return biases


def _loaded(folder: Path) -> tuple[Any, Tensor | None]:
    """The rows of all splits, and the split of each where the folder has splits."""
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise BadInput("the package datasets is not installed; pip install datasets") from error
    try:
        loaded = datasets.load_from_disk(str(folder))
        if not isinstance(loaded, datasets.DatasetDict):
            return loaded, None
        numbers = split_numbers(loaded, f"{folder}, splits")
        whole = datasets.concatenate_datasets(list(loaded.values()))
    except BadInput:
        raise
    except Exception as error:  # a broken folder makes datasets and pyarrow raise many things
        raise _unreadable(folder, error) from error
    sizes = torch.tensor([len(part) for part in loaded.values()])
    return whole, numbers.repeat_interleave(sizes)


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
        raise _unreadable(folder, error) from error
    return out


def _unreadable(folder: Path, error: Exception) -> BadInput:
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return BadInput(f"{folder} can't be read as a folder of datasets.save_to_disk ({reason})")


def _features(
    whole: Any, names: Sequence[str], coding: Coding | None, train: Tensor, folder: Path, room: Room
) -> tuple[RowsOf, Encoder]:
    """Rows of numbers from these columns, or from those that `coding` has, and how they were made."""
    encoder = None if coding is None else coding.features(folder)
    if encoder is not None:
        names = [column.name for column in encoder.columns if column.name in whole.column_names]
    return rows_of({name: _column(whole, name, folder, room) for name in names}, encoder, train, folder)


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
            raise _unreadable(self.folder, error) from error
