"""The proof: the shrunk network against the masked one in float64, on real and on random inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from bise.base.errors import BadInput
from bise.network.outputs import call, plain_output, tensors_in
from bise.network.shrinking.capture import Captured
from bise.network.shrinking.sizes import ALONE, longer
from bise.network.twin import duplicate

aten = torch.ops.aten

TOLERANCE = 1e-10
"""The largest relative difference in float64 that passes as rounding, where the network itself isn't more sensitive."""
TIMES_NOISE = 64
"""How many times the noise that the network makes of its input's last digit passes as rounding beyond that: sums in
another order are noise in every layer, …"""
HALF_THE_DIGITS = torch.finfo(torch.float64).eps ** 0.5
"""… and the most that ever does."""
DRAWS = 8
"""Draws of that noise."""


EXAMPLE = "example"
ONE = "random, one sample"
OTHER = "another"  # a word of the cases at other resolutions and lengths
BATCH = "other batch"


class NotExact(RuntimeError):
    """A shrunk network that doesn't compute what the masked one does: a bug of ours, never handed out."""


class OtherSize(NotExact):
    """One that does so only on inputs of other sizes than the example's: they can't stay free."""


_MAKERS = (aten.zeros.default, aten.ones.default, aten.full.default, aten.empty.memory_format, aten.eye.default)


def in_float64(module: nn.Module) -> nn.Module:
    """A copy in double precision, the types that an exported graph has written into it included."""
    copied = duplicate(module).double()
    if isinstance(copied, fx.GraphModule):
        for node in copied.graph.nodes:
            node.args = _double(node.args)
            node.kwargs = _double(node.kwargs)
            made = node.meta.get("val", node.meta.get("was"))
            if node.target in _MAKERS and "dtype" not in node.kwargs and made is not None and made.is_floating_point():
                node.kwargs = {**node.kwargs, "dtype": torch.float64}
        copied.recompile()
    return copied


def _double(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        if value.is_complex:
            return torch.complex128
        return torch.float64 if value.is_floating_point else value
    if isinstance(value, (tuple, list)):
        return type(value)(_double(item) for item in value)
    if isinstance(value, dict):
        return {key: _double(item) for key, item in value.items()}
    return value


def difference(a: nn.Module, b: nn.Module, x: Any, *, flat: bool = False) -> float:
    """The largest difference between two networks' outputs on one batch, relative to the largest output."""
    with torch.no_grad():
        return gap(call(a, x), call(b, x), flat=flat)


def gap(a: Any, b: Any, *, flat: bool = False) -> float:
    """The largest difference between what two networks return, relative to the largest output."""
    outputs = [list(tensors_in(plain_output(output))) for output in (a, b)]
    worst = 0.0
    for left, right in zip(*outputs, strict=True):
        if flat and left.numel() == right.numel():
            left, right = left.flatten(), right.flatten()
        if left.shape != right.shape:
            raise NotExact(f"outputs have shapes {tuple(left.shape)} and {tuple(right.shape)}")
        if left.is_floating_point() and left.numel():
            left, right = left.double(), right.double()
            apart = torch.where(left == right, 0.0, (left - right).abs()).max()  # equal infinities are equal
            largest = left[left.isfinite()].abs().max() if left.isfinite().any() else apart
            relative = float(apart / largest.clamp_min(1e-30))
            worst = max(worst, relative if relative == relative else float("inf"))
    return worst


def cases(example: Any, captured: Captured, *, seed: int = 0) -> Iterator[tuple[str, Any]]:
    """Named batches: the example and random inputs of its kind, at three batch sizes and, where the capture leaves
    them free, at other resolutions and lengths of token sequences."""
    random = torch.Generator().manual_seed(seed)
    yield EXAMPLE, example
    yield "random", _each(example, lambda t: _random(t, random))
    values = list(example.values()) if isinstance(example, Mapping) else [example]

    def given(inputs: list[Any]) -> Any:
        return dict(zip(example, inputs, strict=True)) if isinstance(example, Mapping) else inputs[0]

    for change in captured.doubtful:
        if change.batch:
            yield f"{BATCH} size, {change}", given(change.of(values))
    yield "random, one sample more", _each(example, lambda t: _random(torch.cat([t, t[:1]]), random))
    yield ONE, _each(example, lambda t: _random(t[:1], random))
    if captured.dynamic_size:
        yield f"random, {OTHER} resolution", _each(example, lambda t: _resized(_random(t, random)))
    if captured.dynamic_length:
        yield f"{OTHER} length", given(longer(values, -1).of(values))
    for change in captured.doubtful:
        if not change.batch:
            yield f"{OTHER} size, {change}", given(change.of(values))


class Differences(dict[str, float]):
    """{case: relative difference}, and the noise that they were judged by where the fixed bound was too narrow."""

    noise: float = 0.0


def check(
    masked: nn.Module,
    shrunk: nn.Module,
    example: Any,
    captured: Captured,
    tolerance: float = TOLERANCE,
    *,
    by_noise: bool = False,
) -> Differences:
    """{case: relative difference}, in the precision that they have; raises above the tolerance.

    Judged `by_noise`, a case may differ by more, as far as noise in the last digit of its input moves the masked
    network itself.
    """
    found = Differences()
    for name, x in cases(example, captured):
        if name != EXAMPLE and not runs(masked, x):
            # sizes that the graph leaves free, but a linear layer behind a flattening ties together; or words that have
            # to be in an order
            continue
        refused = (OTHER in name or BATCH in name) and not runs(shrunk, x)
        if refused and ALONE in name:
            continue  # in a sentence of torch's own: what it is for is tokens and a mask of one length
        if refused:
            what = f"doesn't run where the masked one does ({name})"
        else:
            found[name] = difference(masked, shrunk, x, flat=name == ONE or OTHER in name)
            if found[name] <= tolerance:
                continue
            if by_noise:
                moved = noise(masked, x)
                found.noise = max(found.noise, moved)
                if found[name] <= allowed(moved):
                    continue
            what = f"differs from the masked one by {found[name]:.2e} (relative, {name})"
        if OTHER in name:
            raise OtherSize(f"the shrunk network {what}")
        if name == ONE or BATCH in name:
            several = "one sample in another way than several" if name == ONE else "some batches in another way"
            raise BadInput(
                f"the model treats {several}, so that the shrunk network {what}; take that out of its forward"
            )
        raise NotExact(
            f"the shrunk network {what}; at most {_rounding(found, tolerance)} is rounding. Please report this model;"
            " until then use the masked network"
        )
    return found


def allowed(noise: float) -> float:
    """The largest relative difference that passes as rounding, where the input's last digit makes so much noise."""
    return max(TOLERANCE, min(TIMES_NOISE * noise, HALF_THE_DIGITS))


def _rounding(found: Differences, tolerance: float) -> str:
    if not found.noise:
        return f"{tolerance:.0e}"
    moved = f"noise in the last digit of the input moves the masked one by {found.noise:.0e}"
    return f"{allowed(found.noise):.0e} ({moved})"


def noise(module: nn.Module, x: Any, *, seed: int = 0) -> float:
    """How far the outputs of a network in float64 move, relative to the largest, when each number of its input moves by
    one unit in the last place; tokens have none, so that it is the tables of embeddings that move there."""
    random = torch.Generator().manual_seed(seed)

    def shaken(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        up = (torch.rand(tensor.shape, generator=random, dtype=torch.float32) < 0.5).to(tensor.device)
        far = torch.where(up, torch.inf, -torch.inf).to(tensor.dtype)
        return torch.nextafter(tensor, far)

    given = [value for value in (x.values() if isinstance(x, Mapping) else [x]) if isinstance(value, Tensor)]
    worst = 0.0
    for _ in range(DRAWS):
        if any(tensor.is_floating_point() for tensor in given):
            worst = max(worst, _moved(module, module, x, _each(x, shaken)))
            continue
        moved = duplicate(module)
        for table in (part for part in moved.modules() if isinstance(part, nn.Embedding)):
            table.weight.data = shaken(table.weight.data)
        worst = max(worst, _moved(module, moved, x, x))
    return worst


def _moved(a: nn.Module, b: nn.Module, x: Any, y: Any) -> float:
    with torch.no_grad():
        return gap(call(a, x), call(b, y))


def as_float64(example: Any) -> Any:
    return _each(example, lambda t: t.double() if t.is_floating_point() else t)


def runs(module: nn.Module, x: Any) -> bool:
    """Whether a network takes such an input at all."""
    try:
        with torch.no_grad():
            call(module, x)
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError, BadInput):
        return False
    return True


def _each(x: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(x, Mapping):
        return {key: _each(value, change) for key, value in x.items()}
    return change(x) if isinstance(x, Tensor) and x.dim() else x  # a number alone has no samples


def _random(tensor: Tensor, random: torch.Generator) -> Tensor:
    """Normal numbers for pictures; tokens and flags of each sample in another order, so that they stay legal: some
    models ask for as many ends of sentences in each."""
    if tensor.is_floating_point():
        return torch.randn(tensor.shape, generator=random, dtype=tensor.dtype).to(tensor.device)
    rows = tensor.view(len(tensor), -1) if tensor.dim() > 1 and tensor.numel() else tensor.reshape(1, -1)
    order = torch.rand(rows.shape, generator=random, dtype=torch.float32).argsort(1).to(tensor.device)
    return rows.gather(1, order).view(tensor.shape)


def _resized(tensor: Tensor) -> Tensor:
    if tensor.dim() != 4:
        return tensor
    height, width = tensor.shape[2:]
    small = max(height, width) < 64
    sides = [side + 8 if small else max(32, side * 3 // 4 // 32 * 32) for side in (height, width)]
    return nn.functional.interpolate(tensor, size=sides, mode="nearest")
