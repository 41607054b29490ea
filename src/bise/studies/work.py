"""Does a study's jobs: in turn, or several at a time in processes of their own, which small networks leave room for."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bise.data.contract import Progress
from bise.errors import BadInput
from bise.sources import device_named
from bise.studies.job import Job
from bise.studies.results import Row, described
from bise.studies.runner import Runner
from bise.studies.scale import Scale

ON_REQUEST = ("celeba", "civilcomments")
"""Data that users have to get from their authors."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A job under its key, with all that its result depends on."""

    key: str
    job: Job
    config: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    key: str
    row: Row | None = None
    """None where the job is left."""
    seconds: float = 0.0
    lacking: str | None = None
    """Why its data aren't there."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where and how jobs are done; it can be sent to another process."""

    scale: Scale
    cache: Path
    device: str
    starts: Mapping[str, str]
    """{recipe: where the weights of its vanilla model begin}."""
    roots: Mapping[str, Path | None]
    """{recipe: folder of its data}."""
    until: float | None
    """The time, by the clock on the wall, after which no job is begun."""
    processes: int = 1


class Worker:
    """Does one task after the other, and keeps what they share."""

    def __init__(self, place: Place, progress: Progress | None = None) -> None:
        self.place = place
        self.runner = Runner(
            place.scale,
            place.cache,
            device_named(place.device),
            starts=place.starts.__getitem__,
            root=place.roots.__getitem__,
            progress=progress,
        )
        self.lacking: dict[str, str] = {}

    def __call__(self, task: Task) -> Outcome:
        job = task.job
        if self.place.until is not None and time.time() > self.place.until:
            return Outcome(key=task.key)
        if job.kind != "count" and job.recipe in ON_REQUEST and not self._has_data(job):
            return Outcome(key=task.key, lacking=self.lacking[job.recipe])
        begun = time.monotonic()
        found = self.runner(job)
        if self.place.processes > 1 and job.kind != "count":  # others were at work beside it
            found = found | {"seconds": None}
            found.pop("phases", None)
        row = described(job, task.config, found, self.runner.device)
        return Outcome(key=task.key, row=row, seconds=time.monotonic() - begun)

    def _has_data(self, job: Job) -> bool:
        """Whether the job's data are there; sets that one has to ask for may be missing, and the rest goes on."""
        try:
            if job.recipe not in self.lacking:
                self.runner.splits(job)
        except BadInput as error:
            self.lacking[job.recipe] = str(error)
        return job.recipe not in self.lacking


def outcomes(place: Place, tasks: Sequence[Task], progress: Progress | None = None) -> Iterator[Outcome]:
    """What comes of each task, as soon as it is done; tasks on the same data must follow one another."""
    if place.processes == 1 or not tasks:
        worker = Worker(place, progress)
        yield from map(worker, tasks)
        return
    context = multiprocessing.get_context("spawn")  # a forked process can't use a GPU that its parent has touched
    waiting: Any = context.Queue()
    done: Any = context.Queue()
    groups = _by_data(tasks)
    for group in groups:
        waiting.put(group)
    workers = [
        context.Process(target=_serve, args=(place, waiting, done, os.getpid()), daemon=True)
        for _ in range(min(place.processes, len(groups)))
    ]
    for process in workers:
        waiting.put(None)  # there is no more
        process.start()
    try:
        for _ in tasks:
            found = _next(done, workers)
            if isinstance(found, str):
                raise BadInput(found)
            yield found
    finally:
        for process in workers:
            process.terminate()
            process.join()


def _by_data(tasks: Sequence[Task]) -> list[list[Task]]:
    """What shares data, and so a vanilla model, is for one process."""
    groups: dict[Any, list[Task]] = {}
    for task in tasks:
        groups.setdefault(task.job.data, []).append(task)
    return list(groups.values())


def _next(done: Any, workers: Sequence[Any]) -> Any:
    """The next outcome; a process that is killed would be waited for in vain."""
    while True:
        try:
            return done.get(timeout=0.5)
        except queue.Empty:
            code = next((process.exitcode for process in workers if process.exitcode), 0)
            if code < 0:
                raise BadInput(
                    f"one of {len(workers)} processes was killed, perhaps for memory (signal {-code}); run the same"
                    " command again with fewer --processes"
                ) from None
            if code:
                raise RuntimeError("a process that did jobs failed; its own traceback says why") from None


def _serve(place: Place, waiting: Any, done: Any, parent: int) -> None:
    """A process's life: groups of tasks until there are no more, or nobody is left to tell."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    torch.set_num_threads(max(1, torch.get_num_threads() // place.processes))
    worker = Worker(place)
    while (group := waiting.get()) is not None:
        for task in group:
            if os.getppid() != parent:
                return
            try:
                done.put(worker(task))
            except BadInput as error:
                done.put(str(error))
                return
