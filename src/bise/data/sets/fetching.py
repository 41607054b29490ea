"""Fetch the original files of a data set where there is a network: resumed, checked by md5, mirrors in turn."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bise.base.errors import BadInput
from bise.base.plain import make_folder
from bise.data.core.contract import Progress
from bise.data.sets.idx import data_root

BLOCK = 1 << 16
TIMEOUT = 30.0
"""Seconds that a mirror may be silent."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a data set's files lie, and what they are."""

    mirrors: tuple[str, ...]
    """Addresses of folders, each ending in a slash."""
    files: Mapping[str, str]
    """Name -> md5, in hexadecimal."""
    largest: int = 64 << 20
    """Bytes that a file may have: a server may send without end."""


SOURCES = {
    "mnist": Source(
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "http://yann.lecun.com/exdb/mnist/",
        ),
        files={
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    )
}


def download(
    name: str,
    root: str | Path | None = None,
    *,
    mirrors: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Path:
    """Fetch what is missing of a data set; a transfer that was cut short goes on where it stopped.

    Args:
        name: The data set, such as "mnist".
        root: The folder of data sets; None is the one that BISE_DATA names.
        mirrors: Addresses of servers, tried in turn; None is a list of known ones.
        progress: Called with (label, done, total); `bise.Bars()` shows bars.

    Returns:
        The folder `root`/`name`. A file that is there and has the right md5 is left alone.

    Raises:
        BadInput: The name is unknown, there is no folder, or no server has the file.

    Example:
        >>> bise.data.download("mnist", "data")  # doctest: +SKIP
    """
    if name not in SOURCES:
        raise BadInput(f"there is nothing to download for {name!r}; use {' or '.join(SOURCES)}")
    source = SOURCES[name]
    folder = data_root(root) / name
    make_folder(folder)
    for file, md5 in source.files.items():
        path = folder / file
        if not (path.is_file() and _md5(path) == md5):
            _fetch_from_any(source.mirrors if mirrors is None else mirrors, path, md5, source.largest, progress)
    return folder


class _TooLarge(ValueError):
    """More bytes than the file has."""


def _fetch_from_any(mirrors: Sequence[str], path: Path, md5: str, largest: int, progress: Progress | None) -> None:
    part = path.with_name(path.name + ".part")
    troubles: list[str] = []
    for mirror in mirrors:
        for attempt in range(2):  # bytes of an earlier transfer may be the trouble, so once more without them
            resumed = attempt == 0 and part.is_file() and part.stat().st_size > 0
            if attempt == 1:
                part.unlink(missing_ok=True)
            try:
                _fetch(mirror.rstrip("/") + "/" + path.name, part, largest, progress)
            except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
                if isinstance(error, _TooLarge):
                    part.unlink(missing_ok=True)
                troubles.append(f"{mirror}: {_reason(error)}")
                break
            found = _md5(part)
            if found == md5:
                os.replace(part, path)
                return
            if not resumed:
                troubles.append(f"{mirror}: md5 {found[:8]}… instead of {md5[:8]}…")
                part.unlink(missing_ok=True)
                break
    raise BadInput(
        f"{path.name} can't be fetched ({'; '.join(troubles) or 'no mirror given'}); check the network and try again,"
        f" or put the file into {path.parent} by hand"
    )


def _fetch(address: str, part: Path, largest: int, progress: Progress | None) -> None:
    """The rest of a file, appended to what `part` holds; from the beginning where the server knows no ranges."""
    done = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(address, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and done:  # nothing is left to send: what is there will be judged by its md5
            return
        raise
    with answer:
        if answer.status != 206:
            done = 0
        length = answer.headers.get("Content-Length")
        total = done + int(length) if length is not None else None
        _check_size(total or 0, largest)
        with part.open("ab" if done else "wb") as file:
            while block := answer.read(BLOCK):
                done += len(block)
                _check_size(done, largest)
                file.write(block)
                if progress is not None and total is not None:
                    progress(f"fetching {part.stem}", done, total)
    if total is not None and done < total:
        raise http.client.IncompleteRead(b"", total - done)


def _check_size(size: int, largest: int) -> None:
    if size > largest:
        raise _TooLarge(f"more than the {largest:,} bytes that such a file may have")


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _reason(error: Exception) -> str:
    if isinstance(error, http.client.IncompleteRead):
        return f"cut short, {error.expected} bytes missing"
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    if isinstance(error, urllib.error.URLError):
        return f"no connection ({error.reason})"
    return str(error) or type(error).__name__
