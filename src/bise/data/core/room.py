"""How much memory a table may take: a file of a few bytes can stand for terabytes, by runs and by dictionaries."""

from __future__ import annotations

import os

from bise.base.errors import BadInput

FREE, TIMES = 1 << 30, 50
"""Bytes that any table may take, and how often its own size beyond them."""
CELL = 16
"""Bytes that a cell counts for beside its text: where that ends, and its number."""
VARIABLE = "BISE_TABLE_MEMORY"


class Room:
    """What is left of the memory that the table `what`, `size` bytes on disk, may take."""

    def __init__(self, what: object, size: int) -> None:
        self.what, self.size = what, size
        given = os.environ.get(VARIABLE)
        if given is not None and not given.isdecimal():
            raise BadInput(f"{VARIABLE}={given!r} is no number of bytes; give a whole number, or unset it")
        self.total = self.left = FREE + TIMES * size if given is None else int(given)

    def check(self, needed: int) -> None:
        """Refuse what needs so many bytes, before they are taken."""
        if needed > self.left:
            raise BadInput(
                f"{self.what} has {self.size:,} bytes, and what is read of it takes more than {self.total:,} in memory;"
                f" name fewer columns, or, if you trust where it comes from, allow more bytes with {VARIABLE}"
            )

    def take(self, needed: int) -> None:
        """Count so many bytes more."""
        self.check(needed)
        self.left -= needed
