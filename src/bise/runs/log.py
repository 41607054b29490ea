"""metrics.jsonl: a line for each epoch of each job, and TensorBoard's files beside it where they are wanted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bise.base.errors import BadInput
from bise.base.files import SCHEMA, append_bytes, finite, read_lines
from bise.data.core.contract import Log
from bise.runs.events import append_events


def rows_of_others(path: Path, part: str) -> Iterator[bytes]:
    """The whole lines of metrics.jsonl that are not a part's."""
    for line in read_lines(path):
        with suppress(ValueError, AttributeError, RecursionError):  # half a line, by a process that died, or no row
            if line.endswith(b"\n") and json.loads(line).get("job") != part:
                yield line


def append_log(path: Path, job: str, *, tensorboard: bool = False) -> Log:
    """A function that takes a row of figures and appends it to `metrics.jsonl` under the job's name.

    With `tensorboard`, its numbers go to event files in the folder `events` beside it as well.
    """
    if tensorboard:
        check_tensorboard()
    events: dict[str, Log] = {}

    def write(row: dict[str, Any]) -> None:
        line = json.dumps({"schema": SCHEMA, "job": job, **finite(row)}) + "\n"
        append_bytes(path, line.encode())
        if tensorboard:  # its files are there from the first row on, and not for a job that refuses its input
            name = f"{job}-{row['run']}" if "run" in row else job
            if name not in events:
                events[name] = append_events(path.parent / "events" / name)
            events[name](row)

    return write


def check_tensorboard() -> None:
    """Refuse the flag before any work is done where TensorBoard isn't there."""
    if find_spec("tensorboard") is None:
        raise BadInput("tensorboard is not installed; install the extra: pip install 'bise[log]'")
