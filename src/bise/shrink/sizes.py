"""The sizes of inputs that a capture leaves free: where the model may take another way than on the example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.experimental.symbolic_shapes import is_concrete_int

NEAR = 32
"""How far from the example a size is looked for at which a condition fails: parities and multiples fail sooner."""
LARGEST = {(2, 3): 512, (1,): 4096}
"""The largest pictures and lengths that are tried, on one sample: more would take minutes and gigabytes."""


def is_tokens(value: Any) -> bool:
    """Whether an input is [samples, length] of whole numbers."""
    return isinstance(value, Tensor) and value.dim() == 2 and not value.is_floating_point()


def size_dims(value: Any) -> tuple[int, ...]:
    """The dimensions of an input that hold no channels: height and width of pictures, the length of tokens."""
    if is_tokens(value):
        return (1,)
    return (2, 3) if isinstance(value, Tensor) and value.dim() == 4 else ()


def held(program: ExportedProgram) -> dict[int, dict[int, int]]:
    """{input: {dimension: its only size}}, where the program leaves none free."""
    return {
        number: fixed
        for number, value in enumerate(_inputs(program))
        if (fixed := {dim: int(value.shape[dim]) for dim in size_dims(value) if is_concrete_int(value.shape[dim])})
    }


def free(program: ExportedProgram, *, tokens: bool) -> bool:
    """Whether there are inputs of tokens, or of pictures, and all their sizes are free."""
    found = [v for v in _inputs(program) if is_tokens(v) == tokens and size_dims(v)]
    return bool(found) and not any(is_concrete_int(v.shape[dim]) for v in found for dim in size_dims(v))


def doubtful(program: ExportedProgram, inputs: tuple[Any, ...]) -> tuple[int, ...]:
    """By how much to change all free sizes so that a condition fails which torch.export took from the example.

    Most such conditions are of its own making and mean nothing; behind others a forward branches.
    """
    known: dict[Any, int] = {}
    sizes: set[Any] = set()
    room = max(LARGEST.values())
    shape_env = None
    for value, given in zip(_inputs(program), inputs, strict=True):
        if not isinstance(value, Tensor):
            continue
        shape_env = getattr(getattr(value, "fake_mode", None), "shape_env", shape_env)
        for dim, size in enumerate(value.shape):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                known[size.node.expr] = given.shape[dim]
                if dim in size_dims(value):
                    sizes.add(size.node.expr)
                    room = min(room, LARGEST[size_dims(value)] - given.shape[dim])
    if shape_env is None or not sizes:
        return ()
    edges = [
        int(edge) + step - known[size]
        for size in sizes
        for edge, step in zip(_range(program, size), (-1, 1), strict=True)
        if edge is not None
    ]
    nearby = [sign * step for step in range(1, NEAR + 1) for sign in (1, -1)]
    smallest = min(known[size] for size in sizes)
    steps = sorted({step for step in (*nearby, *edges) if step and -smallest < step <= max(room, NEAR)}, key=abs)
    found = set()
    for guard in shape_env.guards:
        condition = shape_env.replace(guard.expr)
        symbols = condition.free_symbols
        if not symbols & sizes or not symbols <= known.keys() or _is_not_one(condition):
            continue
        for step in steps:
            at = {symbol: sympy.Integer(known[symbol] + step * (symbol in sizes)) for symbol in symbols}
            if _fails(condition, at):
                found.add(step)
                break
    return tuple(sorted(found, key=abs))


def _fails(condition: Any, at: dict[Any, Any]) -> bool:
    try:
        return bool(condition.xreplace(at) == sympy.false)
    except ZeroDivisionError:  # a size that the model's own arithmetic doesn't allow
        return False


def _inputs(program: ExportedProgram) -> Iterator[Any]:
    """What the program takes from its caller, as tensors without values."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    specs = program.graph_signature.input_specs
    return (values.get(getattr(s.arg, "name", "")) for s in specs if s.kind == InputKind.USER_INPUT)


def _range(program: ExportedProgram, size: Any) -> tuple[int | None, int | None]:
    """The least and the largest size that the conditions leave; None where that is no condition."""
    bounds = program.range_constraints.get(size)
    if bounds is None:
        return None, None
    low, high = bounds.lower, bounds.upper
    return int(low) if low.is_Integer and low > 2 else None, int(high) if high.is_Integer else None


def _is_not_one(condition: Any) -> bool:
    """Whether it says that a size isn't 1, which torch.export asks everywhere: 1 would be broadcast."""
    return isinstance(condition, sympy.Ne) and condition.rhs == 1
