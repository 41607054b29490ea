"""What each channel of each tensor is: live, or a known constant; and which channels somebody reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, fx

from bise.network.shrinking.capture import Captured
from bise.network.shrinking.widths import PLAIN, Widths


@dataclass(frozen=True, kw_only=True)
class Channels:
    """The channel dimension of a tensor: per channel, whether its value is known everywhere, and that value."""

    dim: int
    known: Tensor
    value: Tensor

    @property
    def count(self) -> int:
        return self.known.numel()

    def at(self, dim: int) -> Channels:
        return Channels(dim=dim, known=self.known, value=self.value)

    def index(self, order: Tensor, dim: int | None = None) -> Channels:
        return Channels(dim=self.dim if dim is None else dim, known=self.known[order], value=self.value[order])


def live(count: int, dim: int) -> Channels:
    """A tensor of which nothing is known."""
    return Channels(dim=dim, known=torch.zeros(count, dtype=torch.bool), value=torch.zeros(count, dtype=torch.float64))


def known_channels(known: Tensor, value: Tensor, dim: int) -> Channels:
    """Channels with values where known; an infinite or undefined constant counts as live, so that it is computed."""
    known = known & value.isfinite()
    return Channels(dim=dim, known=known, value=torch.where(known, value, torch.zeros_like(value)))


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A tensor of the new graph: its node, and which channels of the old one it holds, in its own order."""

    node: Any
    dim: int | None = None
    ids: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Barrier:
    """A place where closed channels had to be filled in again."""

    module: str
    operation: str
    reason: str
    channels: int

    def __str__(self) -> str:
        return f"{self.module} ({self.operation}): {self.reason}; {self.channels} closed channels keep their place"


class KeepFull(Exception):
    """Raised by a rule that can't see through this use of its operation."""


class Rule(Protocol):
    """What shrinking has to know about one operation."""

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        """The channels of the output, None where they are not followed."""

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        """Given the output channels that must be computed, tell the inputs which of theirs must be."""

    def emit(self, new: Any, node: fx.Node, must: Tensor) -> Packed:
        """Put the operation into the new graph; its output holds at least the channels in `must`."""


@runtime_checkable
class Streams(Protocol):
    """A rule of an operation whose channels are those of its inputs."""

    def stream(self, net: Analysis, node: fx.Node) -> list[fx.Node]:
        """The node and those of its inputs that are to hold the same channels, in one residual stream."""


@dataclass(kw_only=True)
class Analysis:
    """Both passes over a captured graph under given masks."""

    captured: Captured
    rules: Mapping[Any, Rule]
    barrier: Rule
    state: dict[fx.Node, Channels | None] = field(default_factory=dict)
    must: dict[fx.Node, Tensor] = field(default_factory=dict)
    constants: dict[fx.Node, Tensor] = field(default_factory=dict)
    """Parameters, buffers, and whatever follows from the masks alone."""
    from_masks: set[fx.Node] = field(default_factory=set)
    rule_of: dict[fx.Node, Rule] = field(default_factory=dict)
    reasons: dict[fx.Node, str] = field(default_factory=dict)
    notes: dict[fx.Node, Any] = field(default_factory=dict)
    """What a rule's demand decided, for its emit."""
    barriers: list[Barrier] = field(default_factory=list)
    widths: Widths = PLAIN
    """Which closed channels stay as zeros."""
    adaptable: dict[fx.Node, bool] = field(default_factory=dict)
    """Whether all readers of a node take it as wide as it comes; absent where no layer reads it."""
    floor: dict[fx.Node, Tensor] = field(default_factory=dict)
    """Channels that stay in any case: those of the residual stream that a node belongs to."""

    def run(self, masks: Mapping[int, Tensor]) -> None:
        self.forward(masks)
        widths = self.widths
        if widths.union:
            self.widths = Widths(union=True)
            self._backwards()
            while self._widen_streams():
                self._backwards()
            self.widths = widths
        self._backwards()

    def forward(self, masks: Mapping[int, Tensor]) -> None:
        """What each channel is, from the inputs on."""
        for node in self.captured.graph.nodes:
            self._forward(node, masks)

    def _backwards(self) -> None:
        """Which channels are wanted, from the outputs back."""
        self.must, self.adaptable, self.barriers = {}, {}, []
        for node in reversed(list(self.captured.graph.nodes)):
            self._backward(node)

    def _widen_streams(self) -> bool:
        """Raise the floor of each sum and its operands to what any of them holds; whether one rose."""
        rose = False
        for node in self.captured.graph.nodes:
            if node not in self.must or not isinstance(rule := self.rule_of.get(node), Streams):
                continue
            parts = [one for one in rule.stream(self, node) if one in self.must]
            union = torch.stack([self.must[one] for one in parts]).any(0)
            for one in parts:
                rose |= not torch.equal(self.must[one], union)
                self.must[one] = self.floor[one] = union
        return rose

    def _forward(self, node: fx.Node, masks: Mapping[int, Tensor]) -> None:
        self.state[node] = None
        if node.op == "placeholder":
            self._place(node, masks)
        elif node.op == "call_function":
            inputs = node.all_input_nodes
            if inputs and all(n in self.from_masks for n in inputs):
                args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: self.constants[n])
                self.constants[node] = node.target(*args, **kwargs)  # type: ignore[operator]
                self.from_masks.add(node)
                return
            self.rule_of[node] = self.rules.get(node.target, self.barrier)
            try:
                self.state[node] = self.rule_of[node].channels(self, node)
            except KeepFull as reason:
                self.rule_of[node] = self.barrier
                self.reasons[node] = str(reason)

    def _place(self, node: fx.Node, masks: Mapping[int, Tensor]) -> None:
        gate = next((i for i, place in self.captured.gates.items() if place == node.name), None)
        if gate is not None:
            self.constants[node] = masks[gate]
            self.from_masks.add(node)
        elif node.name in self.captured.tensors:
            self.constants[node] = self.captured.tensors[node.name]

    def _backward(self, node: fx.Node) -> None:
        if node.op == "output":
            self.barrier.demand(self, node, torch.ones(0, dtype=torch.bool))
        elif node in self.rule_of:
            state = self.state[node]
            must = self.must.get(node)
            if state is not None and must is None:
                return  # nobody reads it
            if state is None and not self._read(node):
                return
            if state is not None and must is not None:
                must = must | self.floor.get(node, torch.zeros_like(must))
                if self.adaptable.get(node, False):
                    must = self.widths.padded(must, self.zeros(node))
                self.must[node] = must
            self.rule_of[node].demand(self, node, torch.ones(0, dtype=torch.bool) if must is None else must)

    def zeros(self, node: fx.Node) -> Tensor:
        """The channels that are zero in the new graph as well without an operation that makes them so."""
        state = self.state[node]
        assert state is not None
        zero = state.known & (state.value == 0)
        others = [x for x in node.all_input_nodes if x not in self.from_masks]
        if node.target is torch.ops.aten.mul.Tensor and len(others) == 1 and len(node.all_input_nodes) == 2:
            before = self.state[others[0]]  # a gate: what it gets
            if before is not None and before.count == state.count:
                return before.known & (before.value == 0)
        return zero

    def _read(self, node: fx.Node) -> bool:
        """Whether an untracked node is of any use: its readers were asked before it."""
        return node in self.must

    # for rules

    def goes_on(self, node: fx.Node) -> list[fx.Node]:
        """The node and its input where a residual stream goes on through it, with nobody else who reads the input."""
        source, state = node.args[0], self.state[node]
        if not isinstance(source, fx.Node) or source not in self.floor or state is None or len(readers(source)) > 1:
            return [node]
        return [node, source] if state.count == len(self.floor[source]) else [node]

    def shape(self, node: fx.Node) -> Any:
        return node.meta["val"].shape

    def want(self, node: Any, channels: Tensor | None = None, *, adapts: bool | None = False) -> None:
        """Note that these channels of an input must be computed; all of them, where its channels aren't followed.

        `adapts` says whether the reader takes as many as come: a layer does, and None doesn't mind.
        """
        if not isinstance(node, fx.Node):
            return
        if adapts is not None:
            self.adaptable[node] = self.adaptable.get(node, True) and adapts
        state = self.state[node]
        if state is None:
            self.must[node] = torch.ones(0, dtype=torch.bool)
            return
        wanted = torch.zeros(state.count, dtype=torch.bool) if channels is None else channels
        self.must[node] = self.must.get(node, torch.zeros(state.count, dtype=torch.bool)) | wanted

    def want_live(self, node: Any, read: Tensor | None = None, *, adapts: bool = False) -> None:
        """Want every channel that isn't known, of those that are read at all, and one in any case, so that there is a
        tensor to work on."""
        if not isinstance(node, fx.Node):
            return
        state = self.state[node]
        if state is None:
            return self.want(node)
        wanted = ~state.known if read is None else ~state.known & read
        if not wanted.any():
            wanted[0] = True
        self.want(node, wanted, adapts=adapts)

    def note_barrier(self, node: fx.Node, reason: str, channels: int) -> None:
        """Put on record that known channels are computed all the same."""
        if channels:
            name = operation_name(node)
            self.barriers.append(Barrier(module=module_name(node), operation=name, reason=reason, channels=channels))

    def parameter(self, node: Any, user: fx.Node) -> Tensor:
        """A layer's own weight; refused where it is computed or belongs to several layers."""
        if node not in self.constants:
            raise KeepFull("its weight is computed in the forward pass")
        if len(node.users) > 1:
            others = sorted({module_name(n) for n in node.users if n is not user} - {module_name(user)})
            raise KeepFull(f"its weight is shared ({', '.join(others) or 'it is used twice'})")
        return self.constants[node]


def module_name(node: fx.Node) -> str:
    """The module of the user's model that a node comes from."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values()] if stack else []
    for path in reversed(paths):
        short = str(path).removeprefix("L['self'].").removeprefix("sub.network").removeprefix(".")
        if short and "gates." not in short and short not in ("sub", "L['self']"):
            return short
    return "the model itself"


def readers(node: fx.Node) -> list[fx.Node]:
    """Who reads a tensor for more than its sizes."""
    return [user for user in node.users if user.target is not torch.ops.aten.sym_size.int]


def operation_name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target)).split(".")[0]
