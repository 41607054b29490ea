"""Folders of Hugging Face's `datasets`: what save_to_disk wrote, and parquet files as in the hub."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bise.base.errors import BadInput, caution
from bise.data.core.numbering import split_numbers, split_word
from bise.data.core.room import Room
from bise.data.own.arrow_files import check_folder
from bise.data.own.columns import missing_column
from bise.data.own.parquet_files import batches, held_bytes
from bise.network.architectures.hub import hub_folder

_PART = re.compile(r"-\d{5}-of-\d{5}.*$")
"""What stands behind a split's name where its rows are in several files."""


def is_hugging_face(folder: Path) -> bool:
    """Whether `datasets` saved this folder."""
    return any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))


def folder_of(name: str, *, local: bool) -> Path:
    """The folder that FOLDER_OR_NAME[:CONFIGURATION] is, from the hub's cache or fetched unless `local`."""
    if Path(name).is_dir():
        return Path(name)
    where, _, part = name.partition(":")
    if Path(where).is_dir():
        folder = Path(where)
    elif Path(where).is_absolute() or where.startswith((".", "~")) or where.count("/") > 1:
        raise BadInput(f"hf:{where} does not exist; name a folder, or a data set of the hub")
    else:
        pattern = f"{part or '**'}/*.parquet"
        folder = hub_folder(where, [pattern, "*.parquet"], local=local)
    if part and not (folder / part).is_dir():
        raise BadInput(
            f"hf:{where} has no configuration {part!r}; it has {', '.join(_configurations(folder)) or 'none'}"
        )
    return folder / part


def opened(folder: Path, wanted: Sequence[str] | None) -> tuple[Any, Tensor | None, Room]:
    """(the rows of all splits, the split of each where there are splits, what memory their columns may take).

    Of parquet files only the columns `wanted` are read.
    """
    if not is_hugging_face(folder) and (files := sorted(folder.rglob("*.parquet"))):
        return _parquet(folder, files, wanted)
    room = check_folder(folder)
    return *_saved(folder), room


def _datasets() -> Any:
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise BadInput("the package datasets is not installed; pip install datasets") from error
    return datasets


def _saved(folder: Path) -> tuple[Any, Tensor | None]:
    datasets = _datasets()
    try:
        loaded = datasets.load_from_disk(str(folder))
        if not isinstance(loaded, datasets.DatasetDict):
            return loaded, None
        numbers = split_numbers(loaded, f"{folder}, splits")
        whole = datasets.concatenate_datasets(list(loaded.values()))
    except BadInput:
        raise
    except Exception as error:  # a broken folder makes datasets and pyarrow raise many things
        raise unreadable(folder, error) from error
    sizes = torch.tensor([len(part) for part in loaded.values()])
    return whole, numbers.repeat_interleave(sizes)


def _configurations(folder: Path) -> list[str]:
    """The folders of parquet files that each hold a table of their own."""
    return sorted({path.parent.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")} - {"."})


def _split(path: Path) -> tuple[Path, str]:
    """(the folder of a file's table, the split that its name says, or that of its folder where it has a number)."""
    word = _PART.sub("", path.stem)
    return (path.parent.parent, path.parent.name) if word.isdecimal() and len(word) > 1 else (path.parent, word)


def _parquet(folder: Path, files: Sequence[Path], wanted: Sequence[str] | None) -> tuple[Any, Tensor | None, Room]:
    """The rows of these files; one whose name says no split is left out where another says one."""
    tables = sorted({_split(path)[0].relative_to(folder).as_posix() for path in files})
    if len(tables) > 1:
        raise BadInput(f"hf:{folder} holds several tables; name one of them as hf:…:{tables[0]} ({', '.join(tables)})")
    numbers = [split_word(_split(path)[1]) for path in files]
    kept = [(path, number) for path, number in zip(files, numbers, strict=True) if number is not None]
    if kept and len(kept) < len(files):
        odd = sorted({_split(path)[1] for path, number in zip(files, numbers, strict=True) if number is None})
        caution(f"{folder}: what is neither train, val nor test is left out ({', '.join(odd)})", stacklevel=5)
    read = kept or [(path, 0) for path in files]
    room = Room(folder, sum(path.stat().st_size for path, _ in read))
    whole, sizes = _rows(folder, [path for path, _ in read], wanted, Room(folder, room.size))
    if len({number for _, number in read}) == 1 and read[0][1] == 0:
        return whole, None, room  # then a column says the splits, or a share is held out
    return whole, torch.tensor([number for _, number in read]).repeat_interleave(torch.tensor(sizes)), room


def _rows(folder: Path, files: Sequence[Path], wanted: Sequence[str] | None, room: Room) -> tuple[Any, list[int]]:
    """All rows as a data set in memory, and the number of each file's; what can't fit is refused before that."""
    datasets = _datasets()
    import pyarrow
    from pyarrow import parquet

    tables = []
    try:
        for path in files:
            schema = parquet.read_schema(path)
            names = schema.names if wanted is None else list(dict.fromkeys(wanted))
            if (odd := next((name for name in names if name not in schema.names), None)) is not None:
                raise missing_column(path, odd, schema.names)
            leaves = [one.path for one in _leaves(parquet, path) if one.path.partition(".")[0] in names]
            for batch in batches(path, leaves, room):
                room.take(sum(map(held_bytes, batch.columns)))
            tables.append(parquet.read_table(path, columns=names, partitioning=None))
        return datasets.Dataset(pyarrow.concat_tables(tables)), [len(table) for table in tables]
    except BadInput:
        raise
    except Exception as error:  # what the files hold is Arrow's to judge
        raise unreadable(folder, error) from error


def _leaves(parquet: Any, path: Path) -> list[Any]:
    schema = parquet.ParquetFile(path).schema
    return [schema.column(i) for i in range(len(schema.names))]


def unreadable(folder: Path, error: Exception) -> BadInput:
    """What to say of a folder that Arrow or `datasets` can't read."""
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return BadInput(f"{folder} can't be read as a folder of datasets.save_to_disk or of parquet files ({reason})")
