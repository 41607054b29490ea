"""The gradient towards the weights of convolutions with large kernels, as matrix products: cuDNN is slow at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SMALLEST_KERNEL, FEWEST_CHANNELS = 5, 64
"""In a trial on an H200 what cuDNN chose for 7 × 7 kernels was slower from 64 channels on, and faster with 32."""
MOST_BYTES = 1 << 30
"""Of rows of pixels beside each other; beyond it cuDNN does the work, which needs no such copy."""


def weight_gradient(x: Tensor, towards: Tensor, padding: tuple[int, int], kernel: tuple[int, int]) -> Tensor:
    """∂L/∂W [O, C, k, l] in fp32 of a convolution with stride 1: `x` [N, C, H, W], `towards` = ∂L/∂output [N, O, …].

    For each row of the kernel, one product for each picture: its pixels, l of them side by side, times `towards`.
    """
    n, channels = x.shape[:2]
    outputs, height, width = towards.shape[1:]
    down, across = padding
    k, length = kernel
    padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, across, across, down, down))
    rows, columns = padded.shape[1:3]
    strides = (rows * columns * channels, columns * channels, channels, 1)
    beside = padded.as_strided((n, rows, width, length * channels), strides).contiguous()
    left = towards.permute(0, 2, 3, 1).reshape(n, height * width, outputs).transpose(1, 2)
    by_row = [
        torch.bmm(left, beside[:, i : i + height].reshape(n, height * width, -1)).sum(0, dtype=torch.float32)
        for i in range(k)
    ]
    return torch.stack(by_row).view(k, outputs, length, channels).permute(1, 3, 0, 2)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple[int, int]) -> Tensor:
        dtype = torch.get_autocast_dtype("cuda")
        x, weight = x.to(dtype), weight.to(dtype, memory_format=torch.channels_last)
        ctx.save_for_backward(x, weight)
        ctx.padding = padding
        return F.conv2d(x, weight, None if bias is None else bias.to(dtype), padding=padding)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        towards = grads[0].contiguous(memory_format=torch.channels_last)
        before, after = None, None
        if ctx.needs_input_grad[0]:
            how = ([1, 1], ctx.padding, [1, 1], False, [0, 0], 1, [True, False, False])
            before = torch.ops.aten.convolution_backward(towards, x, weight, None, *how)[0]
        if ctx.needs_input_grad[2]:
            after = towards.sum((0, 2, 3), dtype=torch.float32)
        return before, weight_gradient(x, towards, ctx.padding, weight.shape[2:]), after, None


@contextmanager
def large_kernels(network: nn.Module) -> Iterator[None]:
    """While open, convolutions with large kernels learn by `weight_gradient`, in bf16 on a GPU."""
    layers = [module for module in network.modules() if type(module) is nn.Conv2d and _suits(module)]
    for layer in layers:
        layer.forward = partial(_forward, layer)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _suits(layer: nn.Conv2d) -> bool:
    plain = "forward" not in vars(layer) and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    single = layer.stride == layer.dilation == (1, 1) and layer.groups == 1
    large = min(layer.kernel_size) >= SMALLEST_KERNEL and min(layer.in_channels, layer.out_channels) >= FEWEST_CHANNELS
    return plain and single and large and layer.weight.is_cuda and layer.weight.requires_grad


def _forward(layer: nn.Conv2d, x: Tensor) -> Tensor:
    half = torch.is_autocast_enabled("cuda") and x.dim() == 4
    fits = 2 * x.numel() * layer.kernel_size[1] <= MOST_BYTES
    if half and fits and torch.is_grad_enabled() and x.is_contiguous(memory_format=torch.channels_last):
        return _Convolution.apply(x, layer.weight, layer.bias, layer.padding)  # type: ignore[no-untyped-call]
    return nn.Conv2d.forward(layer, x)
