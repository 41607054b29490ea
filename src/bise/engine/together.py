"""Several runs on one GPU at the same time: small networks leave most of it idle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
recording = threading.Lock()
"""Held while a graph is recorded: nothing else may be at work on the GPU's memory then."""


def together(jobs: Sequence[Callable[[], T]], device: torch.device) -> list[T]:
    """The results of `jobs`, in order: each in a thread and on a stream of its own on a GPU, in turn elsewhere.

    Each job must bring its own model and data. The global random numbers are shared, so a job whose network draws
    any (dropout in training) isn't repeatable beside others.
    """
    if device.type != "cuda" or len(jobs) < 2:
        return [job() for job in jobs]
    ready = torch.cuda.current_stream(device)

    def alone(job: Callable[[], T]) -> T:
        with torch.cuda.stream(torch.cuda.Stream(device)):
            torch.cuda.current_stream(device).wait_stream(ready)
            result = job()
            torch.cuda.current_stream(device).synchronize()
        return result

    with torch.random.fork_rng(devices=[device]), ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(alone, jobs))
