"""Columns that hold the pictures themselves, as bytes of their files: in parquet, and in Hugging Face's datasets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from bise.base.names import SQUASH
from bise.data.core.pictures import Pictures
from bise.data.core.room import Room
from bise.data.own.parquet_files import batches, held_bytes

PICTURES = 1 << 10
"""Of a parquet file that are measured at a time."""


@dataclass(frozen=True)
class EncodedOf:
    """Makes the data set of some rows' pictures; `cells[row]` is bytes, or {"bytes", "path"} with one of them None."""

    cells: Any
    size: tuple[int, int] | int
    channels: int
    what: str
    """What to call the column's source."""
    root: Path
    fit: str = SQUASH

    def __call__(self, rows: Tensor) -> EncodedPictures:
        return EncodedPictures(self, rows)


class EncodedPictures(Pictures):
    """Pictures decoded by us, so that a broken one is named."""

    def __init__(self, made_by: EncodedOf, rows: Tensor) -> None:
        super().__init__(size=made_by.size, channels=made_by.channels, fit=made_by.fit)
        self.made_by, self.rows = made_by, rows

    def __len__(self) -> int:
        return len(self.rows)

    def source(self, index: int) -> tuple[Path | bytes, str]:
        row = int(self.rows[index])
        cell = self.made_by.cells[row]
        if not isinstance(cell, Mapping):
            cell = {"bytes": cell or b""}
        content, path = cell.get("bytes"), cell.get("path")
        found = self.made_by.root / path if content is None and path else content or b""
        return found, f"{self.made_by.what}, row {row + 1}"


@dataclass(frozen=True)
class ParquetCells:
    """The cells of a column, in memory as Arrow holds them."""

    column: Any

    def __getitem__(self, row: int) -> Any:
        return self.column[row].as_py()


def parquet_pictures(path: Path, name: str) -> ParquetCells | None:
    """The column `name` where it holds pictures, and None where it holds something else, or can't be read."""
    if path.suffix.lower() not in (".parquet", ".pq"):
        return None
    try:
        import pyarrow
        from pyarrow import parquet, types
    except ModuleNotFoundError:
        return None
    try:
        schema = parquet.read_schema(path)
        index = schema.get_field_index(name)
        if index < 0:
            return None
        kind = schema.field(index).type
        inner = [name]
        if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:  # what else it holds is left alone
            inner = [f"{name}.{part}" for part in ("bytes", "path") if kind.get_field_index(part) >= 0]
            kind = kind.field("bytes").type
        if not types.is_binary(kind) and not types.is_large_binary(kind):
            return None
        room = Room(path, path.stat().st_size)
        for batch in batches(path, inner, room, PICTURES):
            room.take(held_bytes(batch.column(0)))
        with parquet.ParquetFile(path) as file:
            return ParquetCells(file.read(columns=inner).column(0))
    except (pyarrow.ArrowException, OSError):
        return None  # whoever reads the labels says what is wrong with the file
