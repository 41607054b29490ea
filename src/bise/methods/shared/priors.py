"""What b tells about y by its frequency in train."""

from __future__ import annotations

import torch
from torch import Tensor


def shares(y: Tensor, b: Tensor, classes: int) -> Tensor:
    """[|B|, |Y|]: p(y | b) by the counts; zeros where b has no sample."""
    biases = int(b.max()) + 1
    counts = torch.bincount(b * classes + y, minlength=biases * classes).view(biases, classes).float()
    return counts / counts.sum(1, keepdim=True).clamp_min(1)


def log_given_bias(y: Tensor, b: Tensor, classes: int) -> Tensor:
    """[|B|, |Y|]: ln(p(y | b) + 1e-9)."""
    return (shares(y, b, classes) + 1e-9).log()
