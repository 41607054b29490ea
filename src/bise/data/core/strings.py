"""Many strings in one buffer."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator


class Strings:
    """A column of strings in one buffer: a fraction of a list's memory, and forked workers share it.

    A list of a million paths would be copied page by page in every worker, as counting references writes to it.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._text = bytearray()
        self._ends = array("q")
        self.extend(values)

    def extend(self, values: Iterable[str]) -> None:
        text, ends = self._text, self._ends
        for value in values:
            text += value.encode("utf-8", "surrogateescape")  # names of files may be any bytes
            ends.append(len(text))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:
        size = len(self._ends)
        index = index + size if index < 0 else index
        if not 0 <= index < size:
            raise IndexError(f"string {index} of {size}")
        start = self._ends[index - 1] if index else 0
        return self._text[start : self._ends[index]].decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        start = 0
        for end in self._ends:
            yield self._text[start:end].decode("utf-8", "surrogateescape")
            start = end

    @property
    def buffer(self) -> bytearray:
        """All strings one after another, as bytes."""
        return self._text

    @property
    def ends(self) -> array[int]:
        """Where each of them ends."""
        return self._ends

    def take(self, rows: Iterable[int]) -> Strings:
        """The strings of these rows, in their order."""
        return Strings(self[row] for row in rows)
