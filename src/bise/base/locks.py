"""One process at a time in a run folder, by a lock that the kernel frees when its process dies."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from bise.base.errors import BadInput
from bise.base.plain import open_plain, remove

try:
    import fcntl
except ImportError:  # a system without it: two processes in one folder are not noticed there
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"


class Lock:
    """Holds `folder` until `release`; where another process does, it is refused.

    A record lock and not flock(): processes that read ahead are forked, and would hold that one on after a kill.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / NAME
        self.handle = self._take()
        while not self._in_place():  # the one before removed its file between our opening and locking it
            os.close(self.handle)
            self.handle = self._take()
        with suppress(OSError):  # for the sentence only; a full disk is said where it matters
            os.ftruncate(self.handle, 0)
            os.write(self.handle, str(os.getpid()).encode())

    def _take(self) -> int:
        handle = open_plain(self.path, os.O_RDWR | os.O_CREAT)
        try:
            if fcntl is not None:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            process = os.read(handle, 20).decode(errors="replace")
            os.close(handle)
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            raise BadInput(
                f"{self.folder} is in use by another process ({process or 'just started'}); wait for its end, or choose"
                " another folder"
            ) from None
        return handle

    def _in_place(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self.handle), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let others in; the file goes while it is still ours."""
        with suppress(OSError):
            remove(self.path)
        os.close(self.handle)
