"""Independent tasks on a Ray cluster: each in a process that is free, and again from its checkpoint where that dies."""

from __future__ import annotations

import logging
import os
import secrets
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
import torch

from bise.base.errors import BadInput, BiseWarning, Lost, caution, cautions_go_to
from bise.jobs.tasks import Cluster, Task, Worker, portable

AGAIN = 3
"""How often a task is begun again after the process that did it, or its machine, has died."""
TICK = 1.0
"""Seconds that this process waits before it looks for Ctrl-C."""
STORE = 100 * 2**20
"""Bytes for Ray's object store on this machine: only rows of figures travel."""


@dataclass(frozen=True, kw_only=True)
class _Place:
    """What each process of the cluster has to know."""

    make: Callable[[], Worker]
    folder: Path
    """The working folder."""
    settings: Mapping[str, str]
    """Variables of the environment that are BISE's own."""
    threads: int


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What comes back from a task."""

    result: Any = None
    error: Exception | None = None
    cautions: list[str] = field(default_factory=list)


class _Held:
    """Of a process of the cluster, which Ray gives to one command alone: its worker, which keeps what tasks share."""

    worker: Worker | None = None


def results_from(cluster: Cluster, make: Callable[[], Worker], tasks: Sequence[Task]) -> Generator[tuple[str, Any]]:
    """(key, result) of each task, as soon as it is there."""
    with _connected(cluster):
        settings = {name: value for name, value in os.environ.items() if name.startswith("BISE_")}
        threads = max(1, int(cluster.cpus))
        place = ray.put(_Place(make=make, folder=Path.cwd(), settings=settings, threads=threads))
        how = {"num_cpus": cluster.cpus, "num_gpus": cluster.gpus, "max_retries": AGAIN}
        do = ray.remote(_do)
        found: dict[str, Any] = {}
        for task in tasks:
            before = [found[key] for key in task.after if key in found]
            found[task.key] = do.options(**how, name=task.key).remote(place, task.given, *before)
        keys = {reference: key for key, reference in found.items()}
        left = list(keys)
        try:
            while left:
                done, left = ray.wait(left, timeout=TICK)
                for reference in done:
                    yield keys[reference], _result(reference, keys[reference])
        finally:
            for reference in left:
                ray.cancel(reference, force=True)


def _result(reference: Any, key: str) -> Any:
    """What a task gave; what it warned of is said here, and what it raised is raised here."""
    try:
        found: _Found = ray.get(reference)
    except ray.exceptions.RayError as error:
        times = f"{AGAIN + 1} times" if isinstance(error, _DIED) else "at last"
        raise Lost(f"the process of {key} was lost, {times}, perhaps for memory ({type(error).__name__})") from error
    for sentence in found.cautions:
        caution(sentence)
    if found.error is not None:
        raise found.error
    return found.result


_DIED = (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError)


@contextmanager
def _connected(cluster: Cluster) -> Iterator[None]:
    """While open, this process is a driver of the cluster; one that is begun here ends here."""
    address = cluster.address or os.environ.get("RAY_ADDRESS") or "local"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would tell its makers
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what it is about to become, and warns of
    how: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex())  # else Ray leaves one in the user's home
        how |= {"include_dashboard": False, "object_store_memory": STORE}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(**how)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BadInput(
            f"--address {address} is no Ray cluster that can be reached ({why}); start one with `ray start --head`,"
            " and where that asks for a token, set RAY_AUTH_MODE=token here as well"
        ) from error
    try:
        _check_room(cluster)
        yield
    finally:
        ray.shutdown()


def _check_room(cluster: Cluster) -> None:
    """Say so where no machine could take a task, which would be waited for for ever."""
    wanted = {"CPU": cluster.cpus, "GPU": cluster.gpus}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
        return
    most = {name: max((node.get(name, 0) for node in nodes), default=0) for name in wanted}
    said = (
        f"no machine of the cluster has what a task takes: --cpus {cluster.cpus:g} and --gpus {cluster.gpus:g}, where"
        f" the largest has {most['CPU']:g} and {most['GPU']:g}"
    )
    if cluster.address is None:
        raise BadInput(f"{said}; lower them")
    caution(f"{said}; tasks wait for a machine that joins")


def _do(place: _Place, given: Any, *before: _Found) -> _Found:
    """One task, in a process of the cluster; not begun where one before it failed."""
    if any(found.error is not None for found in before):
        return _Found(error=next(found.error for found in before if found.error is not None))
    cautions: list[str] = []
    try:
        with cautions_go_to(cautions.append), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", BiseWarning)
            warnings.showwarning = lambda message, *_, **__: cautions.append(str(message))
            return _Found(result=_worker(place)(given), cautions=cautions)
    except Exception as error:  # a worker's may be of a class that the other side doesn't know
        return _Found(error=portable(error), cautions=cautions)


def _worker(place: _Place) -> Worker:
    """This process's worker, which is made with the first of a command's tasks."""
    if _Held.worker is None:
        os.environ.update(place.settings)
        try:
            os.chdir(place.folder)
        except OSError as error:
            raise BadInput(
                f"{place.folder} is not there on a machine of the cluster ({error.strerror}); its machines have to"
                " share the disk that you work on"
            ) from error
        torch.set_num_threads(place.threads)
        _Held.worker = place.make()
    return _Held.worker
