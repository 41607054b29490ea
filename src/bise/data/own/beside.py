"""The columns of a table's rows that nobody named: whatever else the file says of its samples."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from bise.base.errors import BadInput
from bise.data.core.strings import Strings
from bise.data.own.columns import read_columns
from bise.data.own.tables import TableData
from bise.data.own.uses import holds_splits, is_id, is_named_for_splits


def columns_beside(data: TableData) -> dict[str, list[str]]:
    """{column: the cells of these rows}, but for the target, ids, splits, and what is no text or number."""
    if data.origin is None:
        return {}
    found: dict[str, list[str]] = {}
    for name, values in _readable(data.origin.path, data.origin.separator, data.names.target).items():
        if name in ("", data.names.target) or is_named_for_splits(name) or holds_splits(values) or is_id(values):
            continue
        found[name] = list(values.take(data.origin.rows.tolist()))
    return found


def _readable(path: Path, separator: str | None, target: str) -> dict[str, Strings]:
    """Every column that can be read; parquet may hold pictures and lists too."""
    if path.suffix.lower() not in (".parquet", ".pq"):
        return read_columns(path, None, separator=separator).values
    values: dict[str, Strings] = {}
    for name in read_columns(path, [target]).names:
        with suppress(BadInput):
            values |= read_columns(path, [name]).values
    return values
