"""What a parquet file's columns would take in memory: runs and dictionaries are met before they unfold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bise.data.core.room import CELL, Room

ROWS, AT_ONCE = 1 << 16, 1 << 26
"""Rows of a batch, and bytes that it may grow to where each value can be as long as all that is stored."""


def batches(path: Path, names: Sequence[str], room: Room, most: int = ROWS) -> Iterator[Any]:
    """The columns of a file batch by batch, texts and bytes as dictionaries; what can't fit is refused before that.

    A name may be the path of an inner column, joined by dots.
    """
    from pyarrow import parquet

    texts, rows = [], most
    with parquet.ParquetFile(path) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        room.check(file.metadata.num_rows * CELL * len(names))
        wanted = set(names)
        for i in range(file.metadata.num_columns):
            leaf = file.schema.column(i)
            if leaf.path not in wanted:
                continue
            chunks = [group.column(i) for group in groups]
            largest = max((chunk.total_uncompressed_size for chunk in chunks), default=0)
            room.check(largest)
            if leaf.physical_type != "BYTE_ARRAY":
                continue
            deltas = any("DELTA" in encoding for chunk in chunks for encoding in chunk.encodings)
            if leaf.logical_type.type in ("STRING", "NONE") and not deltas:
                texts.append(leaf.path)
            else:  # Arrow makes no dictionaries of them, and values may share what they begin with
                rows = min(rows, max(1, AT_ONCE // max(1, largest)))
    with parquet.ParquetFile(path, read_dictionary=texts) as file:
        yield from file.iter_batches(batch_size=rows, columns=list(names))


def cells(column: Any) -> Iterator[Any]:
    """The values of a column of Arrow's, one by one, so that a long one that many rows share is there once."""
    import pyarrow
    from pyarrow import types

    if isinstance(column, pyarrow.ChunkedArray):
        for chunk in column.chunks:
            yield from cells(chunk)
    elif types.is_dictionary(column.type):
        used = column.indices.drop_null().unique()
        found = dict(zip(used.to_pylist(), column.dictionary.take(used).to_pylist(), strict=True))
        yield from (None if index is None else found[index] for index in column.indices.to_pylist())
    elif types.is_primitive(column.type):
        yield from column.to_pylist()
    else:
        yield from (value.as_py() for value in column)


def held_bytes(column: Any) -> int:
    """What the values of a column of bytes, or of a struct of such, would take as they stand, each by itself."""
    import pyarrow.compute
    from pyarrow import types

    if types.is_struct(column.type):
        return sum(held_bytes(part) for part in column.flatten())
    if not types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pyarrow.compute.binary_length(column.dictionary).cast("int64")
    return int(pyarrow.compute.sum(lengths.take(column.indices)).as_py() or 0)
