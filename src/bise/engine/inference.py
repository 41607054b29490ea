"""A network over a whole data set, batch by batch: logits, and the bottleneck where it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bise.base.errors import BadInput, caution
from bise.data.core.contract import Progress
from bise.engine import processes
from bise.engine.inputs import Inputs
from bise.engine.precision import autocast
from bise.engine.storage import Store
from bise.network.outputs import call, class_logits
from bise.network.subnetwork import Subnetwork

BATCHES_A_ROUND = 32
"""After so many batches, processes that share samples tell each other what they found."""


@dataclass(frozen=True, kw_only=True)
class Inferred:
    logits: Tensor
    """[N, C] on the CPU."""
    z: Tensor | None
    """[N, d]: in memory, or mapped to a file of its own beyond the budget."""


def infer(
    sub: Subnetwork,
    inputs: Inputs,
    *,
    index: Tensor | None = None,
    features: str | None = None,
    batch_size: int | None = None,
    budget: int = 2 << 30,
    precision: str = "fp32",
    progress: Progress | None = None,
    label: str = "evaluating",
) -> Inferred:
    """Logits (and z, the input of the module `features`) of the samples `index`, or of all, in their order.

    The network is left in eval mode.
    """
    order = torch.arange(len(inputs)) if index is None else index
    places = inputs.by_length(order)  # sentences of about the same length share a batch, so that little is padded
    order = order if places is None else order[places]
    logits: dict[int, Tensor] = {}
    store: Store | None = None
    run = passes(sub, inputs, order, features, batch_size, precision=precision, progress=progress, label=label)
    for start, out, z in run:
        logits[start] = out
        if z is not None:
            if store is None:
                store = Store(len(order), z.shape[1], z.device, budget)
            store.write(start, z)
    found, rows = torch.cat([logits[start] for start in sorted(logits)]).cpu(), None if store is None else store.rows
    if places is not None:
        back = places.argsort()
        found, rows = found[back], None if rows is None else rows[back.to(rows.device)]
    return Inferred(logits=found, z=rows)


@torch.no_grad()
def passes(
    sub: Subnetwork,
    inputs: Inputs,
    order: Tensor,
    features: str | None = None,
    batch_size: int | None = None,
    *,
    precision: str = "fp32",
    progress: Progress | None = None,
    label: str = "evaluating",
) -> Iterator[tuple[int, Tensor, Tensor | None]]:
    """(start, logits, z) of each batch of `order`, in fp32 on the device; what becomes of them is the caller's.

    Several processes share the samples, and all of them get all rows.
    """
    sub.eval()
    size = batch_size or inputs.roomy_batch()
    run = _own_passes if processes.count() == 1 else _shared_passes
    done = 0
    for start, out, z in run(sub, inputs, order, features, size, precision):
        yield start, out, z
        done += len(out)
        if progress is not None:
            progress(label, done, len(order))


def _shared_passes(
    sub: Subnetwork, inputs: Inputs, order: Tensor, features: str | None, size: int, precision: str
) -> Iterator[tuple[int, Tensor, Tensor | None]]:
    """`_own_passes` over this process's samples, whose rows go to all processes every few batches."""
    shares = [processes.share(len(order), of) for of in range(processes.count())]
    rows = size * BATCHES_A_ROUND
    for start in range(0, max(1, shares[0].stop), rows):  # the first share is the longest
        parts = [slice(min(s.start + start, s.stop), min(s.start + start + rows, s.stop)) for s in shares]
        sizes = [part.stop - part.start for part in parts]
        mine = order[parts[processes.rank()]]
        stand_in = not len(mine)  # it has to be known how wide the rows are
        run = list(_own_passes(sub, inputs, order[:1] if stand_in else mine, features, size, precision))
        found = [torch.cat([out for _, out, _ in run])]
        if features:
            found.append(torch.cat([z for _, _, z in run if z is not None]))
        width = found[0].shape[1]
        joined = torch.cat(found, 1)[: 0 if stand_in else len(mine)]
        for part, all_rows in zip(parts, processes.gathered(joined, sizes), strict=True):
            if len(all_rows):
                yield part.start, all_rows[:, :width], all_rows[:, width:] if features else None


def _own_passes(
    sub: Subnetwork, inputs: Inputs, order: Tensor, features: str | None, size: int, precision: str
) -> Iterator[tuple[int, Tensor, Tensor | None]]:
    catching: AbstractContextManager[list[Tensor]] = sub.features(features) if features else nullcontext([])

    def logits_of(x: Any) -> Tensor:
        with autocast(precision, inputs.device):
            return class_logits(call(sub, x)).float()

    done = 0
    with catching as caught:
        for out, chunk in batchwise(logits_of, inputs, _whole_batches(order, size, inputs), size):
            z = caught[0].float() if features else None
            check_rows(out, z, len(chunk))
            rows = min(len(chunk), len(order) - done)
            yield done, out[:rows], None if z is None else z[:rows]
            done += rows


def batchwise(
    run: Callable[[Any], Tensor], inputs: Inputs, order: Tensor, size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """(what `run` gives for x, indices) of each batch; a device without room gets half as much at a time."""
    done = 0
    while done < len(order):
        try:
            for x, chunk in inputs.batches(order[done:], size):
                yield run(x), chunk
                done += len(chunk)
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            caution(
                f"the device has no room for {size} samples at a time; it gets {size // 2} from now on, with the same"
                " result",
            )
            size = inputs.room = size // 2
            torch.cuda.empty_cache()


def _whole_batches(order: Tensor, size: int, inputs: Inputs) -> Tensor:
    """On a GPU, fill up the last batch: a size met for the first time costs more than the samples do."""
    missing = -len(order) % size
    if not inputs.on_device or inputs.device.type != "cuda" or len(order) < size or not missing:
        return order
    return torch.cat([order, order[-1:].expand(missing)])


def check_rows(logits: Tensor, z: Tensor | None, samples: int) -> None:
    """Refuse a model whose logits or bottleneck don't have one row a sample."""
    for what, tensor in (("logits", logits), ("bottleneck", z)):
        if tensor is not None and len(tensor) != samples:
            raise BadInput(
                f"the model's {what} have {len(tensor)} rows for {samples} samples; the first dimension should be the"
                " batch (mind squeeze() and sequence-first layers)"
            )
