"""Independent tasks, and the cluster on which they may be done."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bise.base.errors import BadInput, Lost, Unwritable

Worker = Callable[[Any], Any]
"""Does one task after the other, and keeps what they share."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a worker is given, under a name that no other task has."""

    key: str
    given: Any
    after: tuple[str, ...] = ()
    """The tasks before it in the list that have to be done first."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A Ray cluster, and what each task takes of it."""

    address: str | None = None
    """Of one that is there; else RAY_ADDRESS, or one on this machine, which ends with the command."""
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        for name, value, least in (("cpus", self.cpus, "more than 0"), ("gpus", self.gpus, "0 or more")):
            if not (value > 0 or (value == 0 and name == "gpus")) or value == float("inf"):
                raise BadInput(f"--{name} {value:g} is no share of a machine; give a number, {least}")
            if value > 1 and value != int(value):
                raise BadInput(f"--{name} {value:g} can't be had: beyond 1 Ray knows whole ones only; round it")

    def device(self, asked: str) -> str:
        """Where tasks compute: Ray shows each the GPUs that are its own, and this machine's tell nothing."""
        if asked not in ("auto", "cpu", "cuda"):
            raise BadInput(f"--device {asked!r} is not for a cluster, which chooses the GPU; use auto, cpu or cuda")
        if asked == "cuda" and not self.gpus:
            raise BadInput("--device cuda needs a GPU for each task; give --gpus 1, or a fraction such as 0.5")
        return asked if asked != "auto" else "cuda" if self.gpus else "cpu"


def portable(error: Exception) -> Exception:
    """The error as it can be sent to another process, with its traceback as a note."""
    if isinstance(error, Unwritable):
        out: Exception = Unwritable(error.errno, error.strerror, error.filename)
    elif isinstance(error, (BadInput, Lost)):
        out = (Lost if isinstance(error, Lost) else BadInput)(str(error))
    else:
        out = RuntimeError(f"{type(error).__name__} in one of the processes: {error}")
    out.add_note("".join(traceback.format_exception(error)))
    return out
