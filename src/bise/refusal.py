"""A job that refuses its input leaves no folder behind."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from bise.errors import BadInput

P = ParamSpec("P")
R = TypeVar("R")
BEGUN = ("config.json", "metrics.jsonl")
"""What a run folder holds before its job has done anything."""


def leaves_nothing(job: Callable[P, R]) -> Callable[P, R]:
    """Let a job with an argument `out`, a folder, take it back where it was new and its input is refused at once.

    Once epochs are logged, the folder stays: it says how far the job came.
    """

    @wraps(job)
    def careful(*arguments: P.args, **named: P.kwargs) -> R:
        out = Path(str(inspect.signature(job).bind(*arguments, **named).arguments["out"]))
        new = [folder for folder in (out, *out.parents) if not folder.exists()]
        try:
            return job(*arguments, **named)
        except BadInput:
            if new and out.is_dir() and not _logged(out):
                for name in BEGUN:
                    (out / name).unlink(missing_ok=True)
                _remove_empty(new)
            raise

    return careful


def _logged(folder: Path) -> bool:
    log = folder / "metrics.jsonl"
    return log.is_file() and log.stat().st_size > 0


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders, the innermost first, as far as they are empty."""
    for folder in folders:
        if folder.is_dir():
            if any(folder.iterdir()):
                return
            folder.rmdir()
