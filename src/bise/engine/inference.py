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
from bise.errors import BadInput
from bise.gates import Subnetwork
from bise.models.outputs import call, class_logits


@dataclass(frozen=True, kw_only=True)
class Inferred:
    logits: Tensor
    """[N, C] on the CPU."""
    z: Tensor | None
    """[N, d]: in memory, or mapped to a file of its own beyond the budget."""


@torch.no_grad()
def infer(
    sub: Subnetwork,
    inputs: Inputs,
    *,
    index: Tensor | None = None,
    features: str | None = None,
    batch_size: int = 500,
    budget: int = 2 << 30,
    progress: Progress | None = None,
    label: str = "evaluating",
) -> Inferred:
    """Logits (and z, the input of the module `features`) of the samples `index`, or of all, in their order.

    The network is left in eval mode.
    """
    sub.eval()
    order = torch.arange(len(inputs)) if index is None else index
    logits: list[Tensor] = []
    z: Tensor | None = None
    done = 0
    catching: AbstractContextManager[list[Tensor]] = sub.features(features) if features else nullcontext([])
    with catching as caught:
        for x, chunk in inputs.batches(order, batch_size):
            logits.append(class_logits(call(sub, x)).float().cpu())
            check_rows(logits[-1], caught[0] if features else None, len(chunk))
            if features:
                if z is None:
                    z = _allocate(len(order), caught[0].shape[1], caught[0].device, budget)
                z[done : done + len(chunk)] = caught[0].float()
            done += len(chunk)
            if progress is not None:
                progress(label, done, len(order))
    return Inferred(logits=torch.cat(logits), z=z)


def check_rows(logits: Tensor, z: Tensor | None, samples: int) -> None:
    """Refuse a model whose logits or bottleneck don't have one row a sample."""
    for what, tensor in (("logits", logits), ("bottleneck", z)):
        if tensor is not None and len(tensor) != samples:
            raise BadInput(
                f"the model's {what} have {len(tensor)} rows for {samples} samples; the first dimension should be the"
                " batch (mind squeeze() and sequence-first layers)"
            )


def _allocate(samples: int, width: int, device: torch.device, budget: int) -> Tensor:
    if samples * width * 4 <= budget:
        return torch.empty(samples, width, device=device)
    with tempfile.TemporaryFile(prefix="bise-features-") as file:  # the mapping outlives the name and the handle
        return torch.from_numpy(np.memmap(file, dtype=np.float32, mode="w+", shape=(samples, width)))
