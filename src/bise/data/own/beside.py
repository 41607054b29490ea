"""The columns of a table's rows that nobody named: whatever else the file says of its samples."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from bise.base.errors import BadInput
from bise.data.own.columns import Columns, read_columns
from bise.data.own.tables import TableData
from bise.data.own.uses import holds_splits, is_id, is_named_for_splits


def columns_beside(data: TableData) -> dict[str, list[str]]:
    """{column: the cells of these rows}, but for the target, ids, splits, and what is no text or number."""
    if data.origin is None:
        return {}
    path, separator = data.origin.path, data.origin.separator
    found: dict[str, list[str]] = {}
    for name, values in _readable(path, separator).values.items():
        if name in ("", data.names.target) or is_named_for_splits(name) or holds_splits(values) or is_id(values):
            continue
        found[name] = list(values.take(data.origin.rows.tolist()))
    return found


def _readable(place: Path, separator: str | None) -> Columns:
    """Every column that can be read; parquet may hold pictures and lists too."""
    try:
        return read_columns(place, None, separator=separator)
    except BadInput:
        if place.suffix.lower() not in (".parquet", ".pq"):
            raise
    from pyarrow import parquet

    names = tuple(parquet.read_schema(place).names)
    values = {}
    rows = 0
    for name in names:
        with suppress(BadInput):
            one = read_columns(place, [name])
            values[name], rows = one.values[name], one.rows
    return Columns(names=names, values=values, rows=rows)
