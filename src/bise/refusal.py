"""A job that refuses its input leaves no folder behind."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from bise.errors import BadInput

P = ParamSpec("P")
R = TypeVar("R")
BEGUN = ("config.json", "metrics.jsonl")
"""What a run folder holds before its job has done anything."""


def leaves_nothing(job: Callable[P, R]) -> Callable[P, R]:
    """Let a job with an argument `out`, a folder that is new or empty, leave it so where its input is refused at once.

    Once epochs are logged, the folder stays: it says how far the job came.
    """

    @wraps(job)
    def careful(*arguments: P.args, **named: P.kwargs) -> R:
        out = Path(str(inspect.signature(job).bind(*arguments, **named).arguments["out"]))
        new = [folder for folder in (out, *out.parents) if not folder.exists()]
        fresh = bool(new) or (out.is_dir() and not any(out.iterdir()))
        try:
            return job(*arguments, **named)
        except BadInput:
            if fresh and _only_begun(out):
                for name in BEGUN:
                    (out / name).unlink(missing_ok=True)
                with suppress(OSError):  # somebody else may have put something there
                    for folder in new:
                        folder.rmdir()
            raise

    return careful


def _only_begun(folder: Path) -> bool:
    """Whether a folder holds no more than what a job starts with, nothing logged yet."""
    if not folder.is_dir() or any(path.name not in BEGUN for path in folder.iterdir()):
        return False
    log = folder / "metrics.jsonl"
    return not log.is_file() or log.stat().st_size == 0
