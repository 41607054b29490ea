"""Plain files and folders, opened name by name from a run's folder: no link in it leads anywhere.

A run folder may come from a stranger, and may change while a command works in it. So what a path below it names is
never looked up as a whole: each folder on the way is opened relative to the one before, and refused where it is a link.
Only the run folder itself may be reached through one. Paths that lie in no run are the user's own.

Where the system knows no relative names, as on Windows, paths have to do, and only `check_plain` guards the folders.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bise.base.errors import BadInput

NO_LINK = getattr(os, "O_NOFOLLOW", 0)
AT_ONCE = getattr(os, "O_NONBLOCK", 0)  # to open a pipe would wait for its other end
AS_BYTES = getattr(os, "O_BINARY", 0)  # Windows would write other line ends
A_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
LINKED = (errno.ELOOP, errno.EMLINK)
"""What systems say of a link that isn't to be followed."""
RELATIVE = {
    os.open,
    os.mkdir,
    os.rename,
    os.stat,
    os.unlink,
    os.rmdir,
} <= os.supports_dir_fd and os.scandir in os.supports_fd
"""Whether the system takes a name relative to an open folder."""
DEEPEST = 32
"""Folders within each other that a run folder may hold; those of ours are three."""
_runs: set[Path] = set()
"""The run folders that this process has opened."""


class NotPlain(OSError):
    """A file or folder that a run folder may not hold, or not so large."""

    def __init__(self, sentence: str) -> None:
        super().__init__(errno.EINVAL, sentence)

    def __str__(self) -> str:
        return str(self.strerror)


def check_plain(folder: Path) -> None:
    """Refuse a run folder that holds anything but plain files and folders; from now on no link in it is followed."""
    above = len(folder.parts)
    for where, folders, files in os.walk(folder):
        if len(Path(where).parts) - above > DEEPEST:
            raise BadInput(f"{folder} holds folders within folders, more than {DEEPEST}; move them away")
        for name in (*folders, *files):
            path = Path(where) / name
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:  # of a process that is at work, and gone meanwhile
                continue
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                kind = "a symbolic link" if stat.S_ISLNK(mode) else "a pipe, a socket or a device"
                raise BadInput(f"{path} is {kind}, and a run folder holds plain files only; move it away")
    _runs.add(folder.absolute())


def open_plain(path: Path, flags: int) -> int:
    """A handle of the plain file `path`: no link is followed, and a pipe, a device or a folder is refused.

    A file that is to be written has one name only: through a second one, a hard link, another file would change.
    """
    with _named(path) as (folder, name):
        try:
            handle = os.open(name, flags | NO_LINK | AT_ONCE | AS_BYTES, 0o666, dir_fd=folder)
        except OSError as error:
            if error.errno in LINKED:
                raise NotPlain(f"{path.name} is a symbolic link") from None
            raise
    found = os.fstat(handle)
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    if not stat.S_ISREG(found.st_mode) or (writes and found.st_nlink > 1):
        os.close(handle)
        kind = "a hard link" if stat.S_ISREG(found.st_mode) else "no plain file"
        raise NotPlain(f"{path.name} is {kind}")
    return handle


def move(path: Path, to: Path) -> None:
    """Give a file or folder another name, in one step; a file that had it is replaced, and no pipe or device."""
    with _named(path) as (folder, name), _named(to) as (other, new):
        with suppress(FileNotFoundError):
            mode = os.stat(new, dir_fd=other, follow_symlinks=False).st_mode
            if not any(kind(mode) for kind in (stat.S_ISREG, stat.S_ISLNK, stat.S_ISDIR)):
                raise NotPlain(f"{to.name} is a pipe, a socket or a device")
        os.replace(name, new, src_dir_fd=folder, dst_dir_fd=other)


def remove(path: Path) -> None:
    """Remove a file, where it is there: a link itself, and never what it leads to."""
    with suppress(FileNotFoundError), _named(path) as (folder, name):
        os.unlink(name, dir_fd=folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder and all that is in it, where it is there; a link in its place is refused."""
    with suppress(FileNotFoundError), _named(folder) as (above, name):
        if above is None:
            shutil.rmtree(name)
        else:
            _remove_all(above, name)


def _remove_all(above: int, name: str) -> None:
    handle = _step(above, name)
    try:
        with os.scandir(handle) as entries:
            inner = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for entry, is_folder in inner:
            if is_folder:
                _remove_all(handle, entry)
            else:
                os.unlink(entry, dir_fd=handle)
    finally:
        os.close(handle)
    os.rmdir(name, dir_fd=above)


def remove_empty(folder: Path) -> None:
    """Remove a folder in which nothing is; the system refuses any other."""
    with _named(folder) as (above, name):
        os.rmdir(name, dir_fd=above)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, where they are not there yet."""
    try:
        root, names = _below(folder)
        root.mkdir(parents=True, exist_ok=True)
        if names:
            os.close(_walk(root, names, make=True))
    except OSError as error:
        raise BadInput(f"{folder} can't be a folder ({error.strerror}); choose another place") from error


def sync_folder(folder: Path) -> None:
    """Bring the names in `folder` to the disk, where the system can: without it a new name may be lost with power."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = _walk(*_below(folder))
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def in_run(path: Path) -> bool:
    """Whether `path` lies in a run folder that this process has opened."""
    return _run_of(path) is not None


def _run_of(path: Path) -> Path | None:
    """The run folder that `path` is, or lies in; the nearest, since the user named it."""
    whole = path.absolute()
    return next((place for place in (whole, *whole.parents) if place in _runs), None) if RELATIVE else None


def _below(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """(run folder, the names from it down to `folder`); a folder in no run stands for itself."""
    root = _run_of(folder)
    return (folder, ()) if root is None else (root, folder.absolute().relative_to(root).parts)


@contextmanager
def _named(path: Path) -> Iterator[tuple[int | None, str]]:
    """(handle of the folder that holds `path`, its name there), or (None, the whole path) of what lies in no run."""
    if _run_of(path.parent) is None:
        yield None, str(path)
        return
    handle = _walk(*_below(path.parent))
    try:
        yield handle, path.name
    finally:
        os.close(handle)


def _walk(root: Path, names: tuple[str, ...], *, make: bool = False) -> int:
    """A handle of the folder that `names` lead to from `root`."""
    handle = os.open(root, A_FOLDER)
    for name in names:
        try:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=handle)
            inner = _step(handle, name)
        finally:
            os.close(handle)
        handle = inner
    return handle


def _step(above: int, name: str) -> int:
    """A handle of the folder `name` in an open one."""
    if name == "..":
        raise NotPlain("a name leads out of its folder")
    try:
        return os.open(name, A_FOLDER | NO_LINK, dir_fd=above)
    except OSError as error:
        if error.errno in (*LINKED, errno.ENOTDIR):
            raise NotPlain(f"{name} is a symbolic link, or no folder") from None
        raise
