"""A run: a folder with everything that one job made."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from bise.base.errors import BadInput, NonFinite, caution
from bise.base.files import read_bytes, read_json, write_bytes, write_json, writing
from bise.base.locks import NAME, Lock
from bise.base.plain import check_plain, make_folder, move, remove, remove_empty, remove_folder
from bise.base.version import VERSION
from bise.data.core.arguments import SPLITS
from bise.data.core.contract import Log
from bise.data.core.identity import is_older
from bise.engine.checkpoints import EVERY, key_of
from bise.runs.log import append_log, check_tensorboard, rows_of_others
from bise.runs.schema import read, read_bare
from bise.runs.states import States

CONFIGURATIONS = {"finetune": "finetune.json", "refit": "refit.json", "front": "front.json"}
"""{job: its configuration's file}: config.json but for a job that adds to another one's run."""


class Run:
    """One job in a run folder: its configuration at once, `metrics.jsonl` row by row, `summary.json` at the end.

    with Run(folder, config, job="extract", resume=resume) as run:
        if run.finished is not None:
            return run.finished

    A folder that holds another run, or files that no run wrote, is refused, never overwritten; so is one that was begun
    and not finished, unless it is to `resume`. While open, no other process can work in it. What a job needs to go on
    is in `checkpoints/JOB`, which is there until it is finished. A job that refuses its input before it has logged or
    kept anything leaves the folder as it was.
    """

    def __init__(
        self,
        folder: str | Path,
        config: Mapping[str, Any],
        *,
        job: str,
        resume: bool = False,
        every: float = EVERY,
        tensorboard: bool = False,
    ) -> None:
        if tensorboard:
            check_tensorboard()
        self.folder, self.job, self.every, self.tensorboard = Path(folder), job, every, tensorboard
        self.config = json.loads(json.dumps(config))
        self.key = key_of(self.config)
        self.path = self.folder / CONFIGURATIONS.get(job, "config.json")
        self.states = self.folder / "checkpoints" / job
        self.complete = self.worked = False
        self.parts: list[str] = []
        """Those that have logged."""
        self.new = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]
        self.lock: Lock | None = None
        if self.path.exists():
            check_plain(self.folder)
        self.finished = self._finished()
        """The summary, where this very run is finished already."""
        if self.finished is None:
            self._open(resume)
        elif any(_left(self.folder)) or (self.folder / NAME).exists():
            with suppress(BadInput):  # of a folder that can't be written, or where another process is at work
                self._open(resume)
        if self.finished is not None:
            caution(f"{self.folder} holds this run, finished; nothing was done")

    def _finished(self) -> dict[str, Any] | None:
        """The summary of this very run, or None where there is more to do; any other run is refused."""
        if not self.path.exists() and (self.path.name != "config.json" or _is_bare(self.folder)):
            return None
        if not self.path.exists():  # asked again: another process may have begun the run in between
            raise BadInput(f"{self.folder} exists and is no run of bise; choose another folder with out=…")
        earlier = _given(read(self.path))
        if earlier != self.config:
            raise self._refusal(earlier)
        self.key = key_of(_given(read_json(self.path)))  # as its checkpoints have it, be they of an earlier schema
        if self.states.exists() or not (self.folder / "summary.json").exists():
            return None
        summary = read_summary(self.folder)
        return summary if self.job not in CONFIGURATIONS or self.job in summary else None

    def _refusal(self, earlier: dict[str, Any]) -> BadInput:
        """The sentence about another run in this folder, or this one by other hashes."""
        remedy = "choose another folder with out=…"
        if self.path.name != "config.json":
            remedy = f"delete {self.path} to replace what was made by it, or work on a copy of the folder"
        if _known_otherwise(earlier, self.config):
            return BadInput(
                f"{self.folder} holds this run as an earlier version began it, whose hashes of the data say nothing"
                f" about today's, so that it can't go on here; {remedy}"
            )
        where = f" ({_difference(earlier, self.config)})"
        return BadInput(f"{self.folder} holds a run of another configuration{where}; {remedy}")

    def _open(self, resume: bool) -> None:
        """Take the folder for this process, and begin, or go on where that is wanted."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            check_plain(self.folder)
            self.lock = Lock(self.folder)
            self.finished = self._finished()  # asked again, now that nobody else is at work
            begun = self.path.exists()
            if begun and self.finished is None and not resume:
                raise BadInput(
                    f"{self.folder} holds this run, begun and not finished; go on with resume=True, or choose another"
                    " folder"
                )
            if self.finished is None:
                self._begin(begun)
        except OSError as error:
            self._close()
            raise self._unwritable(error) from error
        except BaseException:
            self._close()
            raise
        if self.finished is not None:
            with suppress(OSError):
                _sweep(self.folder)
                remove_empty(self.folder / "checkpoints")
            self._close()

    def _begin(self, begun: bool) -> None:
        _sweep(self.folder)
        remove(self.folder / "non_finite.json")  # of an attempt before this one
        if not begun:  # whose states may be there: its configuration was taken away
            remove_folder(self.states)
        make_folder(self.states)
        self.worked = begun
        if not begun:
            write_json(self.path, {**self.config, "machine": machine()})

    def _take_back(self) -> None:
        """Leave no trace of a job that has done nothing."""
        with writing(self.states):
            remove_folder(self.states)
        remove(self.path)
        log = self.folder / "metrics.jsonl"
        if log.exists() and log.stat().st_size == 0:
            remove(log)
        self._close()
        with suppress(OSError):  # another job's, or something of somebody else's, may be there
            remove_empty(self.folder / "checkpoints")
            for folder in self.new:
                remove_empty(folder)

    def _close(self) -> None:
        if self.lock is not None:
            self.lock.release()
        self.lock = None

    def _unwritable(self, error: OSError) -> BadInput:
        own = self.path.name == "config.json"
        remedy = "choose another folder with out=…" if own else "work on a copy of the run"
        return BadInput(f"{self.folder} can't be written ({error.strerror}); {remedy}")

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, NonFinite) and (self.worked or error.split == "train"):
                raise self._kept(error) from error
            begun = self.lock is not None and not self.worked
            if isinstance(error, BadInput) and begun and not any(self.states.glob("*.safetensors")):
                self._take_back()
            if error is None and self.complete:
                gone = self.states.with_name(f".{self.job}")  # in one step: half of the states would be of no use
                with writing(self.states):
                    move(self.states, gone)
                    remove_folder(gone)
                with suppress(OSError):  # another job's may be there
                    remove_empty(self.states.parent)
        finally:
            self._close()

    def _kept(self, error: NonFinite) -> BadInput:
        """The sentence, with the file that names the samples."""
        if self.job in CONFIGURATIONS and len(self.parts) == 1:
            # to go on would end the same; nothing is saved yet, and the run that it worked on is whole without it
            self._forget(self.parts[0])
            with writing(self.states):
                remove_folder(self.states)
            with suppress(OSError):  # another job's may be there
                remove_empty(self.states.parent)
            remove(self.path)
        path = self.folder / "non_finite.json"
        about = {"job": self.job, "epoch": error.epoch, "step": error.step, "split": error.split}
        write_json(path, about | {"samples": error.samples})
        what = "training samples of that batch" if error.split == "train" else f"samples of {error.split}"
        return BadInput(f"{error}; the {len(error.samples)} {what} are listed in {path}")

    def log(self, part: str) -> Log:
        """Takes the rows of a part of the job, from its first: what an earlier process wrote of them is dropped."""
        self._forget(part)
        self.parts.append(part)
        write = append_log(self.folder / "metrics.jsonl", part, tensorboard=self.tensorboard)

        def log(row: dict[str, Any]) -> None:
            self.worked = True
            write(row)

        return log

    def _forget(self, part: str) -> None:
        """Drop what was logged of a part."""
        path = self.folder / "metrics.jsonl"
        others = b"".join(rows_of_others(path, part))
        if not path.exists() or read_bytes(path) != others:
            write_bytes(path, others)
        for name in (part, f"{part}-2"):
            with writing(self.folder / "events" / name):
                remove_folder(self.folder / "events" / name)

    def checkpoint(self, part: str) -> Path:
        """Where a part of the job keeps its state."""
        return self.states / f"{part}.safetensors"

    @property
    def kept(self) -> States:
        """The job's parts, as other processes can write theirs too."""
        return States(run=self.folder, folder=self.states, key=self.key)

    def once(self, part: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What `make` gives, as JSON knows it; kept, so that it isn't made again after a stop."""
        return self.kept.once(part, make)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary; what is still to come, the report, may fail without harm."""
        write_json(self.folder / "summary.json", summary)
        self.complete = True


def read_summary(folder: Path) -> dict[str, Any]:
    return read_bare(folder / "summary.json")


def note_job(folder: Path, job: str, config: Mapping[str, Any]) -> None:
    """Note what a step was given that another job takes by itself, as if it had been that job: it may be done anew."""
    write_json(folder / CONFIGURATIONS[job], {**config, "machine": machine()})


@contextmanager
def sole(folder: Path) -> Iterator[None]:
    """While open, no other process works in the run folder; for what is done in one go."""
    check_plain(folder)
    with writing(folder):
        lock = Lock(folder)
    try:
        with writing(folder):
            _sweep(folder)
        yield
    finally:
        lock.release()


def _sweep(folder: Path) -> None:
    """Remove what a process that died has left; only for the one that holds the folder."""
    for left in list(_left(folder)):
        remove_folder(left) if left.is_dir() else remove(left)


def _left(folder: Path) -> Iterator[Path]:
    yield from folder.rglob(".*.part*")
    yield from folder.glob("checkpoints/.*")


def check_complete(folder: Path) -> None:
    """Refuse to add to a run that isn't finished itself."""
    if not (folder / "config.json").exists():
        raise BadInput(f"{folder} holds no config.json; name a run folder that bise wrote")
    check_plain(folder)
    jobs = [job for job in begun_jobs(folder) if job not in CONFIGURATIONS]
    if jobs or not (folder / "summary.json").exists():
        job = jobs[0] if jobs else "the job"
        raise BadInput(f"{folder} isn't finished; run {job} again with resume=True first")


def begun_jobs(folder: Path) -> list[str]:
    """The jobs that were begun in a run folder and are not finished."""
    names = (path.name for path in folder.glob("checkpoints/*"))
    return sorted(name for name in names if not name.startswith("."))  # those are finished, and on their way out


def _is_bare(folder: Path) -> bool:
    """Whether there is nothing here, or only what a process that died at once has left."""
    if not folder.exists():
        return True
    if not folder.is_dir():
        return False
    files = (path for path in folder.rglob("*") if not path.is_dir())
    return all(path.name == "checkpoints" or _is_left(path) for path in folder.iterdir()) and all(map(_is_left, files))


def _is_left(path: Path) -> bool:
    return path.name == NAME or path.match(".*.part")


def _given(content: dict[str, Any]) -> dict[str, Any]:
    """What a job was given, without what its file tells beside."""
    return {key: value for key, value in content.items() if key not in ("schema", "machine")}


def _known_otherwise(there: dict[str, Any], here: dict[str, Any]) -> bool:
    """Whether two configurations differ in nothing but hashes of data that an earlier version made."""
    noted, found = there.get("sha256") or {}, here.get("sha256") or {}
    older = {split: found[split] for split in SPLITS if is_older(noted.get(split)) and split in found}
    return bool(older) and there | {"sha256": noted | older} == here


def _difference(there: Any, here: Any, name: str = "") -> str:
    """The first field in which two configurations differ."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in (*there, *here):
            one, other = (side.get(key, "not set") for side in (there, here))  # a field of a newer version may be None
            if one != other:
                return _difference(one, other, f"{name}.{key}" if name else key)
    return f"{name} is {there!s:.60} there and {here!s:.60} here"


def machine() -> dict[str, Any]:
    """The day, versions and hardware: what the figures of a run depend on beside its configuration."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "bise": VERSION,
        "torch": torch.__version__,
        "python": platform.python_version(),
        # platform.platform() would start a process to ask for the processor
        "system": "-".join((platform.system(), platform.release(), platform.machine())),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
    }
