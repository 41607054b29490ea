"""A command that torchrun has started several times: all work together, one writes and speaks."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from bise.base.errors import Lost

TOGETHER = ("demo", "train", "extract", "finetune", "refit", "audit", "bench")
"""The commands that share their work; of the others the first process does all."""


@contextmanager
def several(words: Sequence[str]) -> Iterator[None]:
    """While open, this process works together with those that torchrun has started beside it, if there are any."""
    rank = int(os.environ.get("RANK", "0"))
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield
        return
    command = next((word for word in words if not word.startswith("-")), "")
    if command not in TOGETHER or {"-h", "--help"} & set(words):
        if rank:
            sys.exit(0)
        yield
        return
    if rank:
        sys.stdout, sys.stderr = open(os.devnull, "w"), _Failures(rank, sys.stderr)  # noqa: SIM115
    from bise.engine.processes import together

    signal.signal(signal.SIGTERM, _ended)
    with together():
        yield


def workplace(folder: Path) -> Path:
    """Where this process writes a run: the folder itself, or, for all but the first, a copy that is gone at the end.

    So each process finds what it has written, and only the first one's writing lasts.
    """
    from bise.engine.processes import count, rank, wait

    if count() == 1:
        return folder
    from bise.base.plain import check_plain

    check_plain(folder)
    place = folder if rank() == 0 else _copy(folder)
    wait()
    return place


def _copy(folder: Path) -> Path:
    import atexit
    import shutil
    import tempfile

    scratch = Path(tempfile.mkdtemp(prefix="bise-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    os.environ["BISE_HOME"] = str(scratch / "home")  # nobody has to trust this copy later
    if folder.exists():
        shutil.copytree(folder, scratch / folder.name)
    return scratch / folder.name


def _ended(number: int, frame: Any) -> NoReturn:
    """torchrun ends the others where one has ended."""
    raise Lost("torchrun ended this process, since another one has ended")


class _Failures:
    """A standard error that lets through why this process failed, and nothing else: the first one says the rest."""

    def __init__(self, rank: int, stream: Any) -> None:
        self.rank, self.stream = rank, stream

    def write(self, text: str) -> int:
        for line in text.splitlines():
            if line.startswith("bise: "):
                self.stream.write(f"process {self.rank}: {line}\n")
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        return False
