"""Does a study's jobs: in turn, or several at a time in processes of their own, which small networks leave room for."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import threading
import time
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bise.base.errors import BadInput, BiseWarning, caution, cautions_go_to
from bise.data.core.contract import Progress
from bise.engine.precision import repeatable_convolutions
from bise.jobs import engines
from bise.jobs import tasks as separate
from bise.jobs.python_sources import device_named
from bise.jobs.recipes import AUTHORS
from bise.jobs.tasks import Cluster, portable
from bise.studies.job import Job, cached
from bise.studies.main_jobs import SIDES
from bise.studies.results import Row, row_of
from bise.studies.runner import Runner
from bise.studies.scale import Scale

ON_REQUEST = {(recipe, side) for recipe in ("celeba", "civilcomments") for side in SIDES} | {
    ("corrupted-cifar10", AUTHORS)
}
"""(recipe, side) of data that users have to get from their authors."""
STOPPED = 128 + signal.SIGTERM
"""Exit code of a process that was told to stop."""
PATIENCE = 10.0
"""Seconds for a process to leave in order."""


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
    roots: Mapping[tuple[str, str], Path | None]
    """{(recipe, side): folder of its data}."""
    until: float | None
    """The time, by the clock on the wall, after which no job is begun."""
    processes: int = 1
    """At a time; several on a cluster, which knows how many."""


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
            alone=place.processes == 1,
            progress=progress,
        )
        self.lacking: dict[tuple[str, str], str] = {}

    def __call__(self, task: Task) -> Outcome:
        job = task.job
        if self.place.until is not None and time.time() > self.place.until:
            return Outcome(key=task.key)
        where = job.recipe, job.side
        if job.kind != "count" and where in ON_REQUEST and not self._has_data(job):
            return Outcome(key=task.key, lacking=self.lacking[where])
        begun = time.monotonic()
        with repeatable_convolutions(always=True):  # the weights aren't kept in the repository, their hash is
            found = self.runner(job)
        if self.place.processes > 1 and job.kind != "count":  # others were at work beside it
            found = found | {"seconds": None}
            found.pop("phases", None)
        row = row_of(job, task.config, found, self.runner.device)
        return Outcome(key=task.key, row=row, seconds=time.monotonic() - begun)

    def _has_data(self, job: Job) -> bool:
        """Whether the job's data are there; sets that one has to ask for may be missing, and the rest goes on."""
        where = job.recipe, job.side
        try:
            if where not in self.lacking:
                self.runner.splits(job)
        except BadInput as error:
            own = "; or run it with --protocol paper" if job.recipe == "corrupted-cifar10" else ""
            self.lacking[where] = f"{error}{own}"
        return where not in self.lacking


def outcomes(
    place: Place, tasks: Sequence[Task], progress: Progress | None = None, cluster: Cluster | None = None
) -> Generator[Outcome]:
    """What comes of each task, as soon as it is done; tasks on the same data must follow one another."""
    if cluster is not None:
        make = partial(Worker, replace(place, processes=2, device=cluster.device(place.device)))
        for _, outcome in engines.results(make, independent(place, tasks), cluster):
            yield outcome
        return
    groups = _by_data(tasks)
    place = replace(place, processes=max(1, min(place.processes, len(groups))))
    if place.processes == 1:
        yield from map(Worker(place, progress), tasks)
        return
    context = multiprocessing.get_context("spawn")  # a forked process can't use a GPU that its parent has touched
    waiting: Any = context.Queue()
    done: Any = context.Queue()
    waiting.cancel_join_thread()  # after a stop nobody reads the rest, and its thread would be waited for for ever
    for group in (*groups, *[None] * place.processes):  # None: there is no more
        waiting.put(group)
    workers = [context.Process(target=_serve, args=(place, waiting, done), daemon=True) for _ in range(place.processes)]
    try:
        with _interrupts_held():
            for process in workers:
                process.start()
        for _ in tasks:
            yield _next(done, workers)
        for process in workers:
            process.join(PATIENCE)
    finally:
        _stop([process for process in workers if process.pid is not None])


def independent(place: Place, tasks: Sequence[Task]) -> list[separate.Task]:
    """The tasks, each behind the first one that makes the vanilla model, and the extraction, that it starts from."""
    makers: dict[str, str] = {}
    out = []
    for task in tasks:
        keys = cached(task.job, place.scale, place.starts.get(task.job.recipe, ""))
        before = dict.fromkeys(makers.setdefault(key, task.key) for key in keys)
        before.pop(task.key, None)
        out.append(separate.Task(key=task.key, given=task, after=tuple(before)))
    return out


def _by_data(tasks: Sequence[Task]) -> list[list[Task]]:
    """What shares data, and so a vanilla model, is for one process."""
    groups: dict[Any, list[Task]] = {}
    for task in tasks:
        groups.setdefault(task.job.data, []).append(task)
    return list(groups.values())


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """What is started while open is deaf to Ctrl-C from birth: it is the parent's to handle, and reaches it after."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    came: list[int] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # children inherit it …
    main = threading.current_thread() is threading.main_thread()
    # … and here it may come by way of another thread, such as a queue's, which hasn't blocked it
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if main else None
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if came:
            signal.raise_signal(signal.SIGINT)


def _next(done: Any, workers: Sequence[Any]) -> Outcome:
    """The next outcome; what a process warns of is said here, and what it raises is raised here."""
    while True:
        try:
            found = done.get(timeout=0.5)
        except queue.Empty:
            _check_living(workers)
            continue
        if isinstance(found, Outcome):
            return found
        if isinstance(found, Exception):
            raise found
        category, text = found
        if issubclass(category, BiseWarning):
            caution(text)
        else:
            warnings.warn(text, category, stacklevel=2)


def _check_living(workers: Sequence[Any]) -> None:
    """A process that is killed would be waited for in vain."""
    code = next((process.exitcode for process in workers if process.exitcode), 0)
    if code < 0 or code == STOPPED:
        number = -code if code < 0 else int(signal.SIGTERM)
        raise BadInput(
            f"one of {len(workers)} processes was killed, perhaps for memory (signal {number}); run the same command"
            " again with fewer --processes"
        )
    if code:
        raise RuntimeError("a process that did jobs failed; its own traceback says why")


def _stop(workers: Sequence[Any]) -> None:
    for process in workers:
        process.terminate()
    for process in workers:
        process.join(PATIENCE)
        process.kill()
        process.join()


def _serve(place: Place, waiting: Any, done: Any) -> None:
    """A process's life: groups of tasks until there are no more."""

    def leave(*_: Any) -> None:
        done.cancel_join_thread()
        sys.exit(STOPPED)  # by way of every `finally`, so that no part of a file stays

    def say(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        done.put((category, str(message)))

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, leave)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    warnings.simplefilter("always", BiseWarning)
    warnings.showwarning = say
    torch.set_num_threads(max(1, torch.get_num_threads() // place.processes))
    try:
        worker = Worker(place)
        with cautions_go_to(lambda sentence: done.put((BiseWarning, sentence))):
            while (group := waiting.get()) is not None:
                for task in group:
                    done.put(worker(task))
    except Exception as error:
        done.put(portable(error))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is leaving already


def _leave_with_parent() -> None:
    """Else a job would go on for hours after its command was killed, in a cache that the next command finds free."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
