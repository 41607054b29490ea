"""The proof: the shrunk network against the masked one in float64, on real and on random inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from bise.models.outputs import call, plain_output, tensors_in

TOLERANCE = 1e-10
"""The largest relative difference in float64 that passes as rounding."""


class NotExact(RuntimeError):
    """A shrunk network that doesn't compute what the masked one does: a bug of ours, never handed out."""


def in_float64(module: nn.Module) -> nn.Module:
    """A copy in double precision, the types that an exported graph has written into it included."""
    copied = copy.deepcopy(module).double()
    if isinstance(copied, fx.GraphModule):
        for node in copied.graph.nodes:
            node.args = _double(node.args)
            node.kwargs = _double(node.kwargs)
        copied.recompile()
    return copied


def _double(value: Any) -> Any:
    if value in (torch.float32, torch.float16, torch.bfloat16) if isinstance(value, torch.dtype) else False:
        return torch.float64
    if isinstance(value, (tuple, list)):
        return type(value)(_double(item) for item in value)
    if isinstance(value, dict):
        return {key: _double(item) for key, item in value.items()}
    return value


def difference(a: nn.Module, b: nn.Module, x: Any) -> float:
    """The largest difference between two networks' outputs on one batch, relative to the largest output."""
    with torch.no_grad():
        outputs = [list(tensors_in(plain_output(call(module, x)))) for module in (a, b)]
    worst = 0.0
    for left, right in zip(*outputs, strict=True):
        if left.shape != right.shape:
            raise NotExact(f"outputs have shapes {tuple(left.shape)} and {tuple(right.shape)}")
        if left.is_floating_point() and left.numel():
            left, right = left.double(), right.double()
            gap = float((left - right).abs().max() / left.abs().max().clamp_min(1e-30))
            worst = max(worst, gap if gap == gap else float("inf"))
    return worst


def cases(example: Any, *, other_size: bool, other_length: bool = False, seed: int = 0) -> Iterator[tuple[str, Any]]:
    """Named batches: the example and random inputs of its kind, at two batch sizes and, if asked, two resolutions
    or two lengths of token sequences."""
    random = torch.Generator().manual_seed(seed)
    yield "example", example
    yield "random", _each(example, lambda t: _random(t, random))
    yield "random, another batch size", _each(example, lambda t: _random(torch.cat([t, t[:1]]), random))
    if other_size:
        yield "random, another resolution", _each(example, lambda t: _resized(_random(t, random)))
    if other_length:
        yield "shorter", _each(example, lambda t: t[:, :-1] if t.dim() == 2 and not t.is_floating_point() else t)


def check(
    masked: nn.Module, shrunk: nn.Module, example: Any, *, other_size: bool, other_length: bool = False
) -> dict[str, float]:
    """{case: relative difference} in float64; raises above the tolerance."""
    found = {}
    for name, x in cases(as_float64(example), other_size=other_size, other_length=other_length):
        if "resolution" in name and not _runs(masked, x):
            continue  # sizes that the graph leaves free, but a linear layer behind a flattening ties together
        found[name] = difference(masked, shrunk, x)
        if not found[name] <= TOLERANCE:
            raise NotExact(
                f"the shrunk network differs from the masked one by {found[name]:.2e} (relative, float64, {name}); "
                f"at most {TOLERANCE:.0e} is rounding. Please report this model; until then use the masked network"
            )
    return found


def as_float64(example: Any) -> Any:
    return _each(example, lambda t: t.double() if t.is_floating_point() else t)


def _runs(module: nn.Module, x: Any) -> bool:
    try:
        with torch.no_grad():
            call(module, x)
    except RuntimeError:
        return False
    return True


def _each(x: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(x, Mapping):
        return {key: _each(value, change) for key, value in x.items()}
    return change(x) if isinstance(x, Tensor) else x


def _random(tensor: Tensor, random: torch.Generator) -> Tensor:
    """Normal numbers for pictures; for tokens and flags, a reordering of the ones given, which stay legal."""
    if tensor.is_floating_point():
        return torch.randn(tensor.shape, generator=random, dtype=tensor.dtype).to(tensor.device)
    order = torch.randperm(tensor.numel(), generator=random).to(tensor.device)
    return tensor.flatten()[order].view(tensor.shape)


def _resized(tensor: Tensor) -> Tensor:
    height, width = tensor.shape[2:]
    small = max(height, width) < 64
    sides = [side + 8 if small else max(32, side * 3 // 4 // 32 * 32) for side in (height, width)]
    return nn.functional.interpolate(tensor, size=sides, mode="nearest")
