"""What the files of a `datasets` folder say of their sizes, read before Arrow unpacks anything."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from bise.base.errors import BadInput
from bise.base.files import check_room, read_bytes
from bise.data.core.room import CELL, Room

CONTINUES = b"\xff\xff\xff\xff"
LARGEST_MESSAGE = 1 << 26
"""Bytes of a message's description: a schema of a million columns has as many."""
DICTIONARY, RECORDS = 2, 3
"""Numbers of the kinds of messages that hold columns."""


def check_folder(folder: Path) -> Room:
    """Refuse files whose rows or packed columns wouldn't fit into memory; gives what may be taken for their columns."""
    files = sorted(_named(folder))
    room = Room(folder, sum(path.stat().st_size for path in files))
    total = 0
    for path in files:
        for rows, packed in _batches(path):
            if packed:
                raise BadInput(f"{path} is compressed inside, as save_to_disk writes no file; save the data set anew")
            total += rows
            room.check(total * CELL)
    return room


def _named(folder: Path) -> Iterator[Path]:
    """The files of columns that the folder, or a split in it, says to have."""
    for state in (folder / "state.json", *folder.glob("*/state.json")):
        try:
            names = [entry["filename"] for entry in json.loads(check_room(read_bytes(state.resolve())))["_data_files"]]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):  # for datasets to judge
            continue
        yield from (path for name in names if isinstance(name, str) and (path := state.parent / name).is_file())


def _batches(path: Path) -> Iterator[tuple[int, bool]]:
    """(rows, whether compressed) of every batch in a file of Arrow's stream format; nothing of a broken one.

    Each message is its length, a description of that many bytes, and the columns, which are passed over.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        while len(head := file.read(4)) == 4:
            head = file.read(4) if head == CONTINUES else head
            length = int.from_bytes(head, "little", signed=True)
            if not 0 < length <= min(LARGEST_MESSAGE, size):
                return
            message = file.read(length)
            try:
                found = _described(message)
            except (struct.error, IndexError):  # Arrow says what is wrong with it
                return
            kind, rows, packed, body = found
            if kind in (DICTIONARY, RECORDS):
                yield rows, packed
            if not 0 <= body <= size - file.tell():
                return
            file.seek(body, os.SEEK_CUR)


def _described(message: bytes) -> tuple[int, int, bool, int]:
    """(kind, rows, whether compressed, bytes of columns behind it) of a message, a flatbuffer of Arrow's Message."""
    root = _u32(message, 0)
    kind, header, body = _field(message, root, 1), _field(message, root, 2), _field(message, root, 3)
    number = message[kind] if kind else 0
    length = struct.unpack_from("<q", message, body)[0] if body else 0
    if number not in (DICTIONARY, RECORDS) or not header:
        return number, 0, False, length
    table = header + _u32(message, header)
    if number == DICTIONARY:  # around the records of its values
        data = _field(message, table, 1)
        table = data + _u32(message, data)
    rows = _field(message, table, 0)
    packed = bool(_field(message, table, 3))
    return number, struct.unpack_from("<q", message, rows)[0] if rows else 0, packed, length


def _field(message: bytes, table: int, number: int) -> int:
    """Where a table's field lies, 0 where it is left out."""
    known = table - struct.unpack_from("<i", message, table)[0]
    if known < 0:
        raise struct.error("before the start")
    if 4 + 2 * number >= struct.unpack_from("<H", message, known)[0]:
        return 0
    offset: int = struct.unpack_from("<H", message, known + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _u32(message: bytes, place: int) -> int:
    value: int = struct.unpack_from("<I", message, place)[0]
    return value
