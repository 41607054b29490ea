"""A network over a whole data set: logits, and the bottleneck where it is asked for."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bise.data.contract import Progress
from bise.engine.inputs import Inputs
from bise.engine.precision import autocast
from bise.errors import BadInput
from bise.gates import Subnetwork
from bise.models.outputs import call, class_logits


@dataclass(frozen=True, kw_only=True)
class Inferred:
    logits: Tensor
    """[N, C] on the CPU; [0, C] where z went into a tensor that was handed in."""
    z: Tensor | None
    """[N, d]: in memory, or mapped to a file of its own beyond the budget."""


@torch.no_grad()
def infer(
    sub: Subnetwork,
    inputs: Inputs,
    *,
    index: Tensor | None = None,
    features: str | None = None,
    batch_size: int | None = None,
    into: Tensor | None = None,
    budget: int = 2 << 30,
    precision: str = "fp32",
    progress: Progress | None = None,
    label: str = "evaluating",
) -> Inferred:
    """Logits (and z, the input of the module `features`) of the samples `index`, or of all, in their order.

    With `into`, z is written there and no logits are kept. The network is left in eval mode.
    """
    sub.eval()
    order = torch.arange(len(inputs)) if index is None else index
    places = inputs.by_length(order)  # sentences of about the same length share a batch, so that little is padded
    order = order if places is None else order[places]
    batch_size = batch_size or inputs.roomy_batch()
    logits: list[Tensor] = []
    z = into
    done = 0
    catching: AbstractContextManager[list[Tensor]] = sub.features(features) if features else nullcontext([])
    with catching as caught, autocast(precision, inputs.device):
        for x, chunk in inputs.batches(_whole_batches(order, batch_size, inputs), batch_size):
            out = class_logits(call(sub, x)).float()
            check_rows(out, caught[0] if features else None, len(chunk))
            rows = min(len(chunk), len(order) - done)
            logits.append(out[:rows] if into is None else out[:0])
            if features:
                if z is None:
                    z = storage(len(order), caught[0].shape[1], caught[0].device, budget)
                where = slice(done, done + rows) if places is None else places[done : done + rows].to(z.device)
                z[where] = caught[0][:rows].to(z.device, torch.float32)
            done += rows
            if progress is not None:
                progress(label, done, len(order))
    found = torch.cat(logits).cpu()
    if places is not None and into is None:
        found[places] = found.clone()
    return Inferred(logits=found, z=z)


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


def storage(samples: int, width: int, device: torch.device, budget: int) -> Tensor:
    """Zeros [samples, width] on `device`, or in a file without a name that is mapped to memory, beyond `budget`."""
    if samples * width * 4 <= budget:
        return torch.zeros(samples, width, device=device)
    with tempfile.TemporaryFile(prefix="bise-features-") as file:  # the mapping outlives the name and the handle
        return torch.from_numpy(np.memmap(file, dtype=np.float32, mode="w+", shape=(samples, width)))
