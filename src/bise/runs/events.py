"""TensorBoard's event files, written as every other file of a run is: its own writer takes paths, and follows links."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from typing import Any

from bise.base.files import append_bytes
from bise.base.plain import make_folder
from bise.data.core.contract import Log

FORMAT = "brain.Event:2"
"""What the first record of an event file says."""


def append_events(folder: Path) -> Log:
    """A function that takes a row of figures, and appends its numbers to an event file in `folder`."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    make_folder(folder)
    path = folder / f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"
    append_bytes(path, _record(Event(wall_time=time.time(), file_version=FORMAT)))

    def write(row: dict[str, Any]) -> None:
        summary = Summary(value=[Summary.Value(tag=key, simple_value=v) for key, v in numbers_of(row).items()])
        append_bytes(path, _record(Event(wall_time=time.time(), step=row.get("epoch"), summary=summary)))

    return write


def numbers_of(row: dict[str, Any]) -> dict[str, float]:
    """The numbers of a row by name, those of a dict in it as its name/theirs; without the epoch, which is the step."""
    nested = {f"{key}/{name}": v for key, part in row.items() if isinstance(part, dict) for name, v in part.items()}
    return {key: float(v) for key, v in {**row, **nested}.items() if isinstance(v, (int, float)) and key != "epoch"}


def _record(event: Any) -> bytes:
    """An event as a file holds it: with its length and its checksums."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    file = io.BytesIO()
    RecordWriter(file).write(event.SerializeToString())
    return file.getvalue()
