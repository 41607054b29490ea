"""In which number format networks are run while they are trained or searched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn


def resolved(precision: str, model: nn.Module) -> str:
    """What "auto" means for `model`: bf16 on a GPU that has it, else fp32; a model that isn't fp32 keeps its own."""
    parameter = next(model.parameters(), None)
    if parameter is None or parameter.dtype != torch.float32:
        return "own"
    if precision != "auto":
        return precision
    return "bf16" if parameter.is_cuda and torch.cuda.is_bf16_supported() else "fp32"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """Forward passes in `precision`; losses, mutual information, weights and scores stay in fp32.

    Casts aren't cached, since a recorded graph would go on with the weights of the day it was recorded.
    """
    if precision != "bf16":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


@contextmanager
def repeatable_convolutions(*, always: bool = False) -> Iterator[None]:
    """While open, cuDNN sums in the same order each time, so that a seed gives the same result on such a machine.

    Not where the caller lets it try its algorithms (`torch.backends.cudnn.benchmark`), since which one is fastest
    differs from run to run, unless it is to be so `always`. The caller's settings come back afterwards.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.deterministic
    if always or not cudnn.benchmark:
        cudnn.benchmark, cudnn.deterministic = False, True
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.deterministic = before
