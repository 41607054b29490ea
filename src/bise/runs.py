"""A run: a folder with everything that one job made."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from bise import __version__
from bise.data.contract import Log
from bise.errors import BadInput
from bise.files import SCHEMA, finite, read_json, write_json

MADE_AT_THE_END = ("summary.json", "thresholds.json", "samples.json", "report.html")
"""What a job that starts over takes away first, so that nothing of the run before is taken for its own."""


class Run:
    """Opens a run folder: `config.json` at once, `metrics.jsonl` row by row, `summary.json` at the end.

    A folder that holds another job's run, or files that no run wrote, is refused, never overwritten.
    """

    def __init__(self, folder: str | Path, config: Mapping[str, Any], *, tensorboard: bool = False) -> None:
        if tensorboard:
            check_tensorboard()
        self.folder = Path(folder)
        self.tensorboard = tensorboard
        self.config = json.loads(json.dumps(config))
        path = self.folder / "config.json"
        if path.exists():
            earlier = {key: value for key, value in read_json(path).items() if key not in ("schema", "machine")}
            if earlier != self.config:
                raise BadInput(f"{self.folder} holds a run of another configuration; choose another folder with --out")
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise BadInput(f"{self.folder} exists and is no run of bise; choose another folder with --out")
        try:
            write_json(path, {**self.config, "machine": machine()})
            for name in MADE_AT_THE_END:
                (self.folder / name).unlink(missing_ok=True)
            (self.folder / "metrics.jsonl").write_bytes(b"")
        except OSError as error:
            raise BadInput(
                f"{self.folder} can't be written ({error.strerror}); choose another folder with --out"
            ) from error

    def log(self, job: str) -> Log:
        return append_log(self.folder / "metrics.jsonl", job, tensorboard=self.tensorboard)

    def finish(self, summary: Mapping[str, Any]) -> None:
        write_json(self.folder / "summary.json", summary)


def append_log(path: Path, job: str, *, tensorboard: bool = False) -> Log:
    """A function that takes a row of figures and appends it to `metrics.jsonl` under the job's name.

    With `tensorboard`, its numbers go to event files in the folder `events` beside it as well.
    """
    events = _events(path.parent / "events" / job) if tensorboard else None

    def write(row: dict[str, Any]) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"schema": SCHEMA, "job": job, **finite(row)}) + "\n")
        if events is not None:
            events(row)

    return write


def check_tensorboard() -> None:
    """Refuse the flag before any work is done where TensorBoard isn't there."""
    if find_spec("tensorboard") is None:
        raise BadInput("tensorboard is not installed; install the extra: pip install 'bise[log]'")


def _events(folder: Path) -> Log:
    check_tensorboard()
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder))

    def write(row: dict[str, Any]) -> None:
        nested = {f"{key}/{name}": v for key, part in row.items() if isinstance(part, dict) for name, v in part.items()}
        for key, value in {**row, **nested}.items():
            if isinstance(value, (int, float)) and key != "epoch":
                writer.add_scalar(key, value, row.get("epoch"))
        writer.flush()  # so that it is there to look at while the job runs

    return write


def machine() -> dict[str, Any]:
    """Versions and hardware: what the figures of a run depend on beside its configuration."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "bise": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
    }
