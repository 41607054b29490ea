"""One split of a folder of pictures, or of Hugging Face's `datasets`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bise.base.errors import BadInput
from bise.data.own.folders import read_hugging_face, read_image_folder
from bise.data.own.tables import Table, TableData


def image_folder(
    folder: str | Path, bias_csv: str | Path | None = None, *, split: str = "train", **how: Any
) -> TableData:
    """One split of a folder of pictures as (x, y, b): `folder/split/class/file` or `folder/class/file`.

    Args:
        folder: The folder.
        bias_csv: A csv with a column `file` and the biases. A file is named there by its path below `folder`, or by
            its name alone where no other file has it. A picture without a row has no bias label (b = −1).
        split: "train", "val" or "test".
        **how: size=, which pictures need; bias= names columns of the csv, all others if left out; file_column=,
            holdout=, seed=, channels=, transform=, and like=, a training set by which labels are numbered.

    Returns:
        A data set whose x are uint8 pictures, transformed in batches.

    Raises:
        BadInput: Pictures or the csv can't be read, the size is missing, or the split is empty.

    Example:
        >>> train = bise.data.image_folder("faces", "faces.csv", size=224)  # doctest: +SKIP
    """
    return _one_split(read_image_folder(folder, bias_csv, **how), folder, split)


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
    return _one_split(read_hugging_face(folder, **columns), folder, split)


def _one_split(table: Table, folder: str | Path, split: str) -> TableData:
    data = table.split(split)
    if data is None:
        raise BadInput(f"{folder} has no sample of split {split!r}; set holdout= to make one")
    return data
