"""The columns of a csv or parquet file as text, and one sentence for each way in which such a file can be broken."""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bise.base.errors import BadInput
from bise.data.core.room import CELL, Room
from bise.data.core.strings import Strings
from bise.data.own.parquet_files import batches, cells

SEPARATORS = (",", ";", "\t")
LONGEST_LINE = 1 << 24
"""Bytes; a file without line ends is not read into memory whole."""
CHUNK = 4096
"""Rows that are turned into columns at a time."""
COUNTED = 1 << 20
"""Bytes of text after which the room that is left is looked at."""
_FORMATS = {b"\x1f\x8b": "gzip-compressed", b"PK\x03\x04": "a zip archive or an Excel file", b"PAR1": "a parquet file"}


@dataclass(frozen=True, kw_only=True)
class Columns:
    """All names in the header, and the values of the columns that were asked for."""

    names: tuple[str, ...]
    values: dict[str, Strings]
    rows: int
    separator: str | None = None
    """Of a csv file."""

    def of(self, names: Iterable[str]) -> dict[str, Strings]:
        """Those of these columns that were read."""
        return {name: self.values[name] for name in names if name in self.values}


def read_columns(
    path: Path, wanted: Sequence[str] | None, *, present: Sequence[str] = (), separator: str | None = None
) -> Columns:
    """The `wanted` columns (None: all) of a csv or parquet file, "" where a cell is empty; `present` must be there.

    A csv file is UTF-8 with a header, as Python's csv module reads it in strict mode; blank lines are skipped. Its
    separator is the one of comma, semicolon and tab under which the header holds these columns.
    """
    if not path.is_file():
        raise BadInput(f"{path} {'is a folder' if path.is_dir() else 'does not exist'}; name a csv or parquet file")
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return _parquet(path, wanted, present)
        with path.open("rb") as file:
            return _csv(path, file, wanted, present, separator)
    except OSError as error:
        raise BadInput(f"{path} can't be read ({error.strerror or error}); name a csv or parquet file") from error


def missing_column(path: Path, name: str, names: Sequence[str]) -> BadInput:
    """What to say where a column isn't there: those that are, the nearest first."""
    near = difflib.get_close_matches(name, names, n=5, cutoff=0.4)
    rest = [other for other in names if other not in near]
    shown = [repr(other) for other in (*near, *rest)]
    more = f" and {len(shown) - 12} more" if len(shown) > 12 else ""
    return BadInput(f"{path} has no column {name!r}; it has {', '.join(shown[:12])}{more}")


def _csv(
    path: Path, file: IO[bytes], wanted: Sequence[str] | None, present: Sequence[str], separator: str | None
) -> Columns:
    lines = _Lines(path, file)
    first = next((line for line in lines if line.strip("\r\n")), None)
    if first is None:
        raise BadInput(f"{path} is empty; it needs a header and rows")
    separator = separator or _separator(first, (*(wanted or ()), *present))
    lines.give_back(first)
    reader = csv.reader(lines, delimiter=separator, strict=True)
    start = lines.number + 1
    try:
        names = _header(path, next(reader), wanted, present)
        chosen = list(names) if wanted is None else list(dict.fromkeys(wanted))
        place = {name: i for i, name in enumerate(names)}
        indices = [place[name] for name in chosen]
        values = {name: Strings() for name in chosen}
        rows, total = [], 0
        start = lines.number + 1
        for row in reader:
            if row:
                if len(row) != len(names):
                    raise BadInput(
                        f"{path}, line {start}: {len(row)} fields where the header has {len(names)};"
                        f" {_ragged(separator)}"
                    )
                rows.append(row)
                if len(rows) == CHUNK:
                    total += _append(values, chosen, indices, rows)
            start = lines.number + 1
        total += _append(values, chosen, indices, rows)
    except csv.Error as error:
        raise BadInput(_quoting(path, start, lines.number, str(error))) from error
    if total == 0:
        raise BadInput(f"{path} has a header and no rows; it needs at least two classes with samples")
    return Columns(names=names, values=values, rows=total, separator=separator)


class _Lines:
    """Lines with their ends, decoded one by one so that a broken one can be named; `number` counts them from 1."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self.file = path, file
        self.number = 0
        self.held: str | None = None

    def __iter__(self) -> _Lines:
        return self

    def give_back(self, line: str) -> None:
        """Let `line` be the next one again."""
        self.held = line
        self.number -= 1

    def __next__(self) -> str:
        self.number += 1
        if self.held is not None:
            line, self.held = self.held, None
            return line
        raw = self.file.readline(LONGEST_LINE)
        if not raw:
            raise StopIteration
        where = f"{self.path}, line {self.number}"
        if self.number == 1:
            for magic, kind in _FORMATS.items():
                if raw.startswith(magic):
                    raise BadInput(f"{self.path} is {kind}, not a csv file; unpack or rename it, or save it as csv")
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if b"\0" in raw:
            raise BadInput(f"{where} holds a NUL byte, so it is no UTF-8 text; save the file as UTF-8")
        if len(raw) == LONGEST_LINE:
            raise BadInput(f"{where} is longer than {LONGEST_LINE:,} bytes; is this a csv file, with \\n line ends?")
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise BadInput(f"{where} is not UTF-8 (byte 0x{raw[error.start]:02x}); save the file as UTF-8") from error


def _separator(header: str, needed: Sequence[str]) -> str:
    """The separator under which the header holds the needed columns, else the one that gives most columns."""
    best, most = ",", 0
    for separator in SEPARATORS:
        try:
            names = [name.strip() for name in next(csv.reader([header], delimiter=separator))]
        except (csv.Error, StopIteration):
            continue
        if needed and set(needed) <= set(names):
            return separator
        if len(names) > most:
            best, most = separator, len(names)
    return best


def _header(path: Path, row: Sequence[str], wanted: Sequence[str] | None, present: Sequence[str]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in row)
    there: set[str] = set()
    for name in names:
        if name in there:
            raise BadInput(f"{path} has two columns named {name!r}; rename one of them")
        there.add(name)
    for name in (*(wanted or ()), *present):
        if name not in there:
            raise missing_column(path, name, names)
    return names


def _append(values: dict[str, Strings], names: Sequence[str], indices: Sequence[int], rows: list[list[str]]) -> int:
    """Move rows into the columns, and say how many there were."""
    for name, index in zip(names, indices, strict=True):
        values[name].extend([row[index] for row in rows])
    count = len(rows)
    rows.clear()
    return count


def _ragged(separator: str) -> str:
    kind = {"\t": "tab", ",": "comma", ";": "semicolon"}.get(separator, repr(separator))
    return f"the separator is taken to be the {kind}, and a field that holds one needs quotes"


def _quoting(path: Path, start: int, line: int, error: str) -> str:
    if "field limit" in error:
        return (
            f"{path}, line {start}: a field is longer than {csv.field_size_limit():,} characters; shorten it, or close"
            " the quotes that open in that line"
        )
    if "unexpected end of data" in error:
        return f"{path}, line {start}: quotes that open in this row never close; close or double them"
    if "new-line character" in error:  # as old Macs end lines
        ends = "\\n or \\r\\n"
        return f"{path}, line {line} holds \\r without \\n, which is no line end; save the file with {ends} line ends"
    where = f"line {start}" if start >= line else f"lines {start} to {line}"
    return f'{path}, {where}: {error}; quotes inside a quoted field are doubled: ""'


def _parquet(path: Path, wanted: Sequence[str] | None, present: Sequence[str]) -> Columns:
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise BadInput("pyarrow is not installed; install the extra: pip install 'bise[data]'") from error
    try:
        with parquet.ParquetFile(path) as file:
            schema, total = file.schema_arrow, file.metadata.num_rows
        names = _header(path, schema.names, wanted, present)
        chosen = list(names) if wanted is None else list(dict.fromkeys(wanted))
        for name in chosen:
            check_kind(schema.field(name).type, f"{path}, column {name!r}")
        values = {name: Strings() for name in chosen}
        room = Room(path, path.stat().st_size)
        for batch in batches(path, chosen, room):
            batch.validate(full=True)
            for name in chosen:
                values[name].extend(texts(cells(batch.column(name)), f"{path}, column {name!r}", room))
    except pyarrow.ArrowException as error:
        raise BadInput(f"{path} is no readable parquet file ({str(error).splitlines()[0]})") from error
    if total == 0:
        raise BadInput(f"{path} has columns and no rows; it needs at least two classes with samples")
    return Columns(names=names, values=values, rows=total)


def check_kind(kind: Any, what: str) -> None:
    """Refuse a column of Arrow's that holds neither text nor numbers nor booleans, before a value of it is made."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    kind = getattr(kind, "storage_type", kind)
    held = None
    if types.is_nested(kind):
        held = "dict" if types.is_struct(kind) else "list"
    elif "binary" in str(kind):  # of any size, or a view
        held = "bytes"
    if held is not None:
        raise BadInput(f"{what} holds {held} values; it takes text, numbers or booleans, so name other columns")


def texts(values: Iterable[Any], what: str, room: Room) -> Iterator[str]:
    """Each value of a typed column as a csv file would write it, "" for null and NaN, as long as there is room."""
    needed = 0
    for value in values:
        if isinstance(value, str):
            text = value
        elif value is None or (isinstance(value, float) and math.isnan(value)):
            text = ""
        elif isinstance(value, (bytes, list, dict)):
            raise BadInput(
                f"{what} holds {type(value).__name__} values; it takes text, numbers or booleans, so name other columns"
            )
        else:
            text = str(value)
        needed += CELL + len(text)
        if needed > COUNTED:
            room.take(needed)
            needed = 0
        yield text
    room.take(needed)
