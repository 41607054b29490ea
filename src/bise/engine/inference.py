"""A network over a whole data set: logits, and the bottleneck where it is asked for."""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bise.data.contract import Progress
from bise.engine.inputs import Inputs
from bise.gates import Subnetwork
from bise.models.outputs import call, class_logits


@dataclass(kw_only=True)
class Inferred:
    logits: Tensor
    """[N, C] on the CPU."""
    z: Tensor | None
    """[N, d]: in memory, or mapped to a file of its own beyond the budget."""
    folder: Any = field(default=None, repr=False)


@torch.no_grad()
def infer(
    sub: Subnetwork,
    inputs: Inputs,
    *,
    index: Tensor | None = None,
    features: bool = False,
    batch_size: int = 500,
    budget: int = 2 << 30,
    progress: Progress | None = None,
    label: str = "evaluating",
) -> Inferred:
    """Logits (and z) of the samples `index`, or of all, in their order; the network is left in eval mode."""
    sub.eval()
    order = torch.arange(len(inputs)) if index is None else index
    logits: list[Tensor] = []
    z: Tensor | None = None
    out = Inferred(logits=torch.empty(0), z=None)
    done = 0
    catching: AbstractContextManager[list[Tensor]] = sub.features() if features else nullcontext([])
    with catching as caught:
        for x, chunk in inputs.batches(order, batch_size):
            logits.append(class_logits(call(sub, x)).float().cpu())
            if features:
                if z is None:
                    z = _allocate(out, len(order), caught[0].shape[1], caught[0].device, budget)
                z[done : done + len(chunk)] = caught[0].float()
            done += len(chunk)
            if progress is not None:
                progress(label, done, len(order))
    out.logits, out.z = torch.cat(logits), z
    return out


def _allocate(out: Inferred, samples: int, width: int, device: torch.device, budget: int) -> Tensor:
    if samples * width * 4 <= budget:
        return torch.empty(samples, width, device=device)
    out.folder = tempfile.TemporaryDirectory(prefix="bise-features-")
    path = f"{out.folder.name}/z"
    return torch.from_file(path, shared=True, size=samples * width, dtype=torch.float32).view(samples, width)
