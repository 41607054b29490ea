"""Folders of pictures, one folder a class, as tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bise.base.errors import BadInput, caution
from bise.base.names import SQUASH
from bise.data.core.numbering import check_targets, held_out, number_labels, split_word
from bise.data.core.pictures import ENDINGS
from bise.data.core.strings import Strings
from bise.data.core.transforms import Transform
from bise.data.own.coding import Coding, known_labels
from bise.data.own.columns import read_columns
from bise.data.own.tables import Numbered, PicturesOf, Table, TableData, pictures_as_asked, unread
from bise.data.own.uses import BIAS, check_splits


def image_folder(
    folder: str | Path, bias_csv: str | Path | None = None, *, split: str = "train", **how: Any
) -> TableData:
    """One split of a folder of pictures as (x, y, b): `folder/split/class/file` or `folder/class/file`.

    Args:
        folder: The folder.
        bias_csv: A csv with a column `file` and the biases. A file is named there by its path below `folder`, or by
            its name alone where no other file has it. A picture without a row has no bias label (b = −1).
        split: "train", "val" or "test".
        **how: size=, which pictures need; fit=, which crops or pads them; bias= names columns of the csv, all others
            if left out; file_column=, holdout=, seed=, channels=, transform=, and like=, a training set by which
            labels are numbered.

    Returns:
        A data set whose x are uint8 pictures, transformed in batches.

    Raises:
        BadInput: Pictures or the csv can't be read, the size is missing, or the split is empty.

    Example:
        >>> train = bise.data.image_folder("faces", "faces.csv", size=224)  # doctest: +SKIP
    """
    return one_split(read_image_folder(folder, bias_csv, **how), folder, split)


def read_image_folder(
    folder: str | Path,
    bias_csv: str | Path | None = None,
    *,
    bias: str | Sequence[str] | None = None,
    file_column: str = "file",
    holdout: tuple[float, float] | None = None,
    seed: int = 0,
    size: tuple[int, int] | int | None = None,
    fit: str | None = None,
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
    pictures = None
    if size is not None:
        made = PicturesOf(Strings(files), folder, size, channels, fit or SQUASH)
        pictures = pictures_as_asked(made, len(files), fit)
    return Table.of(
        "class",
        targets,
        biases,
        part=part,
        inputs=unread if labels_only or pictures is None else pictures,
        transform=None if labels_only else transform or Transform(),
    )


def one_split(table: Table, folder: str | Path, split: str) -> TableData:
    data = table.split(split)
    if data is None:
        raise BadInput(f"{folder} has no sample of split {split!r}; set holdout= to make one")
    return data


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
    if not asked:
        check_splits(path, found.of(names), BIAS)
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
