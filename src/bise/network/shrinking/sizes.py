"""The sizes of inputs that a capture leaves free: where the model may take another way than on the example."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx.experimental.symbolic_shapes import is_concrete_int

NEAR = 32
"""How far from the example a size is looked for at which a condition fails: parities and multiples fail sooner."""
LARGEST = {(2, 3): 512, (1,): 4096}
"""The largest pictures and lengths that are tried, on one sample: more would take minutes and gigabytes."""
MOST_NUMBERS = 2**20
"""The largest batch that is tried has so many: seven pictures of 224 × 224, or hundreds of small ones."""
_LINEAR = (torch.ops.aten.linear.default,)
_CONVOLUTIONS = tuple(getattr(torch.ops.aten, name).default for name in ("conv1d", "conv2d", "conv3d"))


ALONE = "one of several"  # a word of the cases in which a mask isn't as long as its tokens


def is_tokens(value: Any) -> bool:
    """Whether an input is [samples, length] of whole numbers."""
    return isinstance(value, Tensor) and value.dim() == 2 and not value.is_floating_point()


def size_dims(value: Any) -> tuple[int, ...]:
    """The dimensions of an input that hold no channels: height and width of pictures, the length of tokens."""
    if is_tokens(value):
        return (1,)
    return (2, 3) if isinstance(value, Tensor) and value.dim() == 4 else ()


def held(program: ExportedProgram) -> dict[int, dict[int, int]]:
    """{input: {dimension: its only size}}, where the program leaves none free.

    Of signals, sequences and videos it leaves none free. Channels that the first layer is made for aren't listed: the
    layer refuses others by itself.
    """
    found = {}
    for number, (node, value) in enumerate(_inputs(program)):
        if not isinstance(value, Tensor):
            continue
        dims = size_dims(value) or sorted(set(range(1, value.dim())) - _taken_by_layers(node))
        if fixed := {dim: int(value.shape[dim]) for dim in dims if is_concrete_int(value.shape[dim])}:
            found[number] = fixed
    return found


def _taken_by_layers(node: fx.Node) -> set[int]:
    """The dimension of an input that every layer which reads it has to find as it is."""
    rank = node.meta["val"].dim()
    dims = {rank - 1 if user.target in _LINEAR else 1 if user.target in _CONVOLUTIONS else -1 for user in node.users}
    return dims if len(dims) == 1 else set()


def free(program: ExportedProgram, *, tokens: bool) -> bool:
    """Whether there are inputs of tokens, or of pictures, and all their sizes are free."""
    found = [v for _, v in _inputs(program) if is_tokens(v) == tokens and size_dims(v)]
    return bool(found) and not any(is_concrete_int(v.shape[dim]) for v in found for dim in size_dims(v))


@dataclass(frozen=True)
class Change:
    """Other sizes than the example's."""

    steps: tuple[tuple[int, int, int], ...]
    """(input, dimension, by how much)."""
    samples: int | None = 1
    """How many of the example's are enough; None is all of them."""
    alone: bool = False
    """Whether another input of tokens stays as long as it is, which a shrunk network may refuse."""

    @property
    def batch(self) -> bool:
        """Whether it is the batch that changes."""
        return any(dim == 0 for _, dim, _ in self.steps)

    def __str__(self) -> str:
        by = {step for _, _, step in self.steps}
        if self.alone:
            return f"{ALONE}, {by.pop():+d}"
        if len(by) == 1 and (len(self.steps) > 1 or self.batch):
            return f"{by.pop():+d}"
        return ", ".join(f"{step:+d} in dimension {dim}" for _, dim, step in self.steps)

    def of(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs in these sizes; what is more is what there is, over again."""
        out = [value[: self.samples] if isinstance(value, Tensor) and value.dim() else value for value in inputs]
        for number, dim, step in self.steps:
            size = out[number].shape[dim]
            out[number] = out[number].index_select(dim, torch.arange(size + step, device=out[number].device) % size)
        return out


def longer(inputs: Sequence[Any], step: int) -> Change:
    """All token sequences longer by so much."""
    return Change(tuple((number, 1, step) for number, value in enumerate(inputs) if is_tokens(value)), None)


def doubtful(program: ExportedProgram, inputs: Sequence[Any]) -> tuple[Change, ...]:
    """Changes of free sizes under which a condition fails that torch.export took from the example.

    Most such conditions are of its own making and mean nothing; behind others a forward branches.
    """
    found = _Free(program, inputs)
    changes = dict.fromkeys(found.unequal())
    for condition in found.conditions():
        symbols = condition.free_symbols
        together = symbols & found.sizes
        apart = [{one} for one in sorted(symbols, key=str)] if len(symbols) > 1 or not together else []
        for moved in ([together] if together else []) + apart:
            for step in found.steps(moved):
                at = {symbol: sympy.Integer(found.known[symbol] + step * (symbol in moved)) for symbol in symbols}
                if _fails(condition, at):
                    changes |= dict.fromkeys(found.changes(moved, step, symbols))
                    break
    return tuple(sorted(changes, key=lambda change: (abs(change.steps[0][2]), str(change))))


class _Free:
    """The free sizes of a program: what the example has, and where they stand."""

    def __init__(self, program: ExportedProgram, inputs: Sequence[Any]) -> None:
        self.program, self.inputs = program, inputs
        self.known: dict[Any, int] = {}
        self.places: dict[Any, list[tuple[int, int]]] = {}
        self.sizes: set[Any] = set()
        self.room: dict[Any, int] = {}
        """How much larger a size may get before trying it takes too long."""
        self.shape_env: Any = None
        for number, ((_, value), given) in enumerate(zip(_inputs(program), inputs, strict=True)):
            if not isinstance(value, Tensor):
                continue
            self.shape_env = getattr(getattr(value, "fake_mode", None), "shape_env", self.shape_env)
            for dim, size in enumerate(value.shape):
                if not isinstance(size, torch.SymInt) or not size.node.expr.is_Symbol:
                    continue
                symbol, here = size.node.expr, given.shape[dim]
                room = MOST_NUMBERS // max(1, given[:1].numel()) - here
                if dim in size_dims(value):
                    self.sizes.add(symbol)
                    room = max(LARGEST[size_dims(value)] - here, NEAR)
                self.known[symbol] = here
                self.places.setdefault(symbol, []).append((number, dim))
                self.room[symbol] = min(self.room.get(symbol, room), room)

    def conditions(self) -> Iterator[Any]:
        """Those that are about these sizes alone."""
        for guard in self.shape_env.guards if self.shape_env is not None else ():
            condition = self.shape_env.replace(guard.expr)
            symbols = condition.free_symbols
            if symbols and symbols <= self.known.keys() and not _is_not_one(condition):
                yield condition

    def steps(self, moved: set[Any]) -> list[int]:
        """By how much to try and change them, the smallest first: one sample is looked at anyway, and none is none."""
        edges = [
            int(edge) + step - self.known[size]
            for size in moved
            for edge, step in zip(_range(self.program, size), (-1, 1), strict=True)
            if edge is not None
        ]
        nearby = [sign * step for step in range(1, NEAR + 1) for sign in (1, -1)]
        smallest = min(self.known[size] - (size not in self.sizes) for size in moved)
        room = min(self.room[size] for size in moved)
        return sorted({step for step in (*nearby, *edges) if step and -smallest < step <= room}, key=abs)

    def changes(self, moved: set[Any], step: int, about: set[Any]) -> Iterator[Change]:
        """Of these by so much; on the whole batch where the condition is about that too.

        A mask and its tokens have one length, though two symbols: they change together, and alone.
        """
        places = {place for symbol in moved for place in self.places[symbol]}
        beside = {(number, 1) for place in places for number in self._beside(*place)}
        samples = 1 if about <= self.sizes else None
        yield Change(tuple((*place, step) for place in sorted(places | beside)), samples)
        if beside - places:
            yield Change(tuple((*place, step) for place in sorted(places)), samples, alone=True)

    def _beside(self, number: int, dim: int) -> Iterator[int]:
        """Inputs of tokens as long as this one."""
        if dim == 1 and is_tokens(self.inputs[number]):
            for other, value in enumerate(self.inputs):
                if is_tokens(value) and value.shape[1] == self.inputs[number].shape[1]:
                    yield other

    def unequal(self) -> Iterator[Change]:
        """Height and width that the capture took for one number, one of them changed."""
        for places in self.places.values():
            for number, dim in places:
                if dim > 1 and (number, dim - 1) in places:
                    yield from (Change(((number, dim, step),)) for step in (1, 2, 8, NEAR))


def _fails(condition: Any, at: dict[Any, Any]) -> bool:
    try:
        return bool(condition.xreplace(at) == sympy.false)
    except ZeroDivisionError:  # a size that the model's own arithmetic doesn't allow
        return False


def _inputs(program: ExportedProgram) -> Iterator[tuple[fx.Node, Any]]:
    """What the program takes from its caller, and as tensors without values."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    specs = program.graph_signature.input_specs
    for spec in specs:
        if spec.kind == InputKind.USER_INPUT:
            node = nodes[spec.arg.name]
            yield node, node.meta.get("val")


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
