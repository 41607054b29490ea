"""Several processes that learn what one would: each works on its rows of every batch, and sums go through all.

Every process draws the same orders and holds the same state, so that only sums over rows have to travel: tables of
counts, gradients, and rows of logits and features. One process, which is rank 0, writes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bise.base.errors import BadInput, Lost

LONGEST = timedelta(minutes=30)
"""How long a process waits for the others; one that has ended is noticed at once."""


class _Joined:
    """Of this process."""

    count, rank = 1, 0
    idle = False  # whether the rows that it works on just now are another's, and count for nothing


def count() -> int:
    """How many processes work together; 1 outside of `together`."""
    return _Joined.count


def rank() -> int:
    """Which of them this is; rank 0 writes."""
    return _Joined.rank


@contextmanager
def together() -> Iterator[None]:
    """While open, jobs in this process work together with those in the others that torchrun has started.

    Each process has to run the same jobs on the same data, in the same order. Uses the caller's process group where
    there is one. Without torchrun, or with one process, nothing changes.

    Returns:
        A context, within which each call of BISE shares its work.

    Raises:
        BadInput: torch.distributed is missing, or a process can't reach the others.

    Example:
        >>> with bise.together():
        ...     found = bise.audit(model, test)
    """
    known = dist.is_available() and dist.is_initialized()
    if not known and int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield
        return
    if not dist.is_available():
        raise BadInput("this build of torch has no torch.distributed; start one process, without torchrun")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    if not known:
        with _explained():
            dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=LONGEST)
    _Joined.count, _Joined.rank = dist.get_world_size(), dist.get_rank()
    try:
        yield
    finally:
        _Joined.count, _Joined.rank = 1, 0
        if not known:
            dist.destroy_process_group()


def share(rows: int, of: int | None = None) -> slice:
    """Which of so many rows are this process's, or another's: runs of the same length, up to one."""
    number = rank() if of is None else of
    each, more = divmod(rows, count())
    start = number * each + min(number, more)
    return slice(start, start + each + (number < more))


def own_rows(values: Tensor, index: Tensor) -> Tensor:
    """`values` [n, …] of this process's samples `index`; where it has none, one of another's stands in, and goes."""
    return values if len(values) == len(index) else values[: len(index)]


@contextmanager
def idle(wanted: bool) -> Iterator[None]:
    """While open, the rows that this process works on count for nothing, if `wanted`."""
    _Joined.idle = wanted
    try:
        yield
    finally:
        _Joined.idle = False


def total(*tensors: Tensor) -> list[Tensor]:
    """The sum of each tensor over all processes, as new tensors; one message for all of them."""
    if count() == 1:
        return list(tensors)
    wide = torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32
    flat = torch.cat([tensor.detach().to(wide).flatten() for tensor in tensors])
    with _explained():
        dist.all_reduce(flat)
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor).to(tensor.dtype) for part, tensor in zip(parts, tensors, strict=True)]


def gathered(rows: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """`rows` [n, …] of every process, which have so many each."""
    if count() == 1:
        return [rows]
    room = rows.new_zeros(max(sizes), *rows.shape[1:])
    room[: len(rows)] = rows
    found = [torch.empty_like(room) for _ in sizes]
    with _explained():
        dist.all_gather(found, room)
    return [part[:size] for part, size in zip(found, sizes, strict=True)]


def wait() -> None:
    """Until every process is here."""
    if count() > 1:
        total(torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu"))


@contextmanager
def _explained() -> Iterator[None]:
    """While open, what torch says of processes that have gone is said in a sentence."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise Lost("another process of this run has ended, or can't be reached") from error


class _Total(torch.autograd.Function):
    """A sum over all processes, through which gradients pass; they are sums as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return total(x)[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return total(gradients[0])[0]


def _summed(x: Tensor) -> Tensor:
    return _Total.apply(x)  # type: ignore[no-untyped-call]


class _Gathered(torch.autograd.Function):
    """The rows of all processes; what comes back for them from every process is summed."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: Sequence[int]) -> Tensor:
        return torch.cat(gathered(rows, sizes))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        whole = total(gradients[0])[0]
        return whole[share(len(whole))], None


def whole_batch(run: Callable[[Any], Sequence[Tensor]], x: Any) -> Sequence[Tensor]:
    """What `run` gives for a batch, [n, …] each: every process runs its rows, and has all of them afterwards.

    For a loss over the whole batch that each process computes. The gradients of all processes, summed, are those of
    the sum of their losses.
    """
    if count() == 1:
        return run(x)
    n = len(next(iter(x.values())) if isinstance(x, Mapping) else x)
    sizes = [len(range(n)[share(n, of)]) for of in range(count())]
    own = sizes[rank()]
    rows = share(n) if own else slice(0, 1)  # a network may not bear a batch of none
    with idle(not own):
        found = run({name: part[rows] for name, part in x.items()} if isinstance(x, Mapping) else x[rows])
    return [_Gathered.apply(tensor[:own], sizes) for tensor in found]  # type: ignore[no-untyped-call]


@contextmanager
def batch_norm_together(network: torch.nn.Module) -> Iterator[None]:
    """While open, BatchNorm that learns takes mean and variance over the rows of all processes."""
    if count() == 1:
        yield
        return
    kind = torch.nn.modules.batchnorm._BatchNorm
    # one that has a forward of its own is in a frozen part, and learns nothing
    layers = [layer for layer in network.modules() if isinstance(layer, kind) and "forward" not in vars(layer)]
    for layer in layers:
        layer.forward = _Synchronised(layer)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


class _Synchronised:
    """The forward pass of one BatchNorm."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def __call__(self, x: Tensor) -> Tensor:
        layer = self.layer
        if not layer.training and layer.running_mean is not None:
            return type(layer).forward(layer, x)
        shape = [1, -1, *[1] * (x.dim() - 2)]
        others = [0, *range(2, x.dim())]
        counts = x.new_full((), 0.0 if _Joined.idle else x.numel() / x.shape[1])
        n = total(counts)[0]
        own = 0.0 if _Joined.idle else 1.0
        mean = _summed(x.sum(others) * own) / n
        centred = x - mean.view(shape)
        var = _summed(centred.square().sum(others) * own) / n
        if layer.training and layer.running_mean is not None:
            self._remember(mean.detach(), var.detach() * n / (n - 1).clamp_min(1))
        out = centred * (var + layer.eps).rsqrt().view(shape)
        return out if layer.weight is None else out * layer.weight.view(shape) + layer.bias.view(shape)

    def _remember(self, mean: Tensor, var: Tensor) -> None:
        layer = self.layer
        layer.num_batches_tracked.add_(1)
        rate = layer.momentum if layer.momentum is not None else 1 / float(layer.num_batches_tracked)
        layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), rate)
        layer.running_var.lerp_(var.to(layer.running_var.dtype), rate)
