"""Where independent tasks are done: here, one after the other, or on a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from importlib.util import find_spec
from typing import Any

from bise.base.errors import BadInput
from bise.jobs.tasks import Cluster, Task, Worker

ENGINES = ("local", "ray")


def engine_named(name: str, address: str | None, cpus: float | None, gpus: float | None) -> Cluster | None:
    """The cluster that a command's options name; None is this process."""
    if name not in ENGINES:
        raise BadInput(f"--engine {name!r} is unknown; use {' or '.join(ENGINES)}")
    given = {"address": address, "cpus": cpus, "gpus": gpus}
    if name == "local":
        odd = next((option for option, value in given.items() if value is not None), None)
        if odd is not None:
            raise BadInput(f"--{odd} is for a cluster; give --engine ray too, or leave it out")
        return None
    found = Cluster(address=address, cpus=1.0 if cpus is None else cpus, gpus=0.0 if gpus is None else gpus)
    if find_spec("ray") is None:
        raise BadInput("Ray is not installed; install the extra: pip install 'bise[cluster]'")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("--engine ray is for one process, which Ray gives others; start it without torchrun")
    return found


def results(make: Callable[[], Worker], tasks: Sequence[Task], cluster: Cluster | None) -> Generator[tuple[str, Any]]:
    """(key, what a worker gives) of each task, as soon as it is done; `make` gives a worker, in whichever process.

    Closing it ends what is still at work.
    """
    if cluster is None:
        worker = make()
        for task in tasks:
            yield task.key, worker(task.given)
        return
    from bise.jobs.cluster import results_from

    yield from results_from(cluster, make, tasks)
