"""h · value along the channels, with gradients towards the values, fast on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class ScaledChannels(torch.autograd.Function):
    """h · value by channel for pictures on a GPU whose channels lie innermost.

    BatchNorm's kernels do just this, with mean 0, deviation 1 and the value as weight, in a fifth of the time that
    a broadcast product and its reduction take; the gradient of the value is summed in fp32.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, value: Tensor, constants: Tensor) -> Tensor:
        ctx.save_for_backward(h, value, constants)
        return scaled_channels(h, value, constants)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        h, value, constants = ctx.saved_tensors
        grad = grads[0].contiguous(memory_format=torch.channels_last)
        zero, one = constants
        towards = torch.batch_norm_backward_reduce(grad, h, zero, one, one, False, True, False)[2]
        return scaled_channels(grad, value, constants), towards, None


def scaled_channels(h: Tensor, value: Tensor, constants: Tensor) -> Tensor:
    """h · value by channel, as BatchNorm without a shift; `constants` [2, C] are zeros and ones."""
    zero, one = constants
    return torch.batch_norm(h, value, zero, zero, one, False, 0.0, 0.0, False)
