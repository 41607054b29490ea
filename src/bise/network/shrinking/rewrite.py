"""The smaller graph, built from what the analysis found; its weights are slices of the original ones."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from bise.network.shrinking.analysis import Analysis, Packed
from bise.network.shrinking.attention_forms import apart
from bise.network.shrinking.capture import structured
from bise.network.shrinking.masked_sums import close_in_sums

aten = torch.ops.aten


class Rewrite:
    """The new graph while it grows, and the module that will own its tensors."""

    def __init__(self, net: Analysis) -> None:
        self.net = net
        self.graph = fx.Graph()
        self.root = nn.Module()
        self.packed: dict[fx.Node, Packed] = {}
        self.derived: set[str] = set()
        """Buffers that hold constants folded from several weights: kept in float64 until the check is done."""
        self._registered: dict[tuple[str, tuple[int, ...] | None, int], str] = {}
        self._current: fx.Node | None = None
        self._picked: dict[tuple[fx.Node, int], tuple[fx.Node, Tensor, int]] = {}
        """{(node, dimension): (what its channels were picked from, their places there, how many there are)}."""

    def build(self) -> fx.GraphModule:
        captured = self.net.captured
        inputs = [n for n in captured.graph.nodes if n.op == "placeholder" and n.name not in captured.tensors]
        for number, node in enumerate(inputs):
            name = captured.keys[number] if captured.keys else "x" if len(inputs) == 1 else f"x{number}"
            self.packed[node] = Packed(node=self.graph.placeholder(name))
        for number, dims in captured.held.items():
            self._hold(self.packed[inputs[number]].node, dims)
        for number, value in captured.given.items():
            self._hold_value(self.packed[inputs[number]].node, value)
        for node in captured.graph.nodes:
            self._current = node
            if node in self.net.rule_of and node in self.net.must:
                self.packed[node] = self.net.rule_of[node].emit(self, node, self.net.must[node])
            elif node.op == "output":
                leaves: Any = node.args[0]
                structure = 0 if len(leaves) == 1 else captured.outputs
                self.graph.output(structured(structure, lambda place: self.full(leaves[place])))  # noqa: B023
        self.graph.eliminate_dead_code()
        close_in_sums(self.graph)
        _in_place(self.graph)
        self.graph.lint()
        return fx.GraphModule(self.root, self.graph, class_name="Shrunk")  # takes only what the graph reads

    def _hold(self, node: fx.Node, dims: Mapping[int, int]) -> None:
        """Refuse inputs of other sizes than the only ones that the graph was captured for."""
        for dim, size in dims.items():
            found = self.graph.call_function(aten.sym_size.int, (node, dim))
            fits = self.graph.call_function(operator.eq, (found, size))
            what = f"{node.target}: dimension {dim} has to be {size}, as in the example; for other sizes shrink it anew"
            self.graph.call_function(torch._assert, (fits, what))

    def _hold_value(self, node: fx.Node, value: Any) -> None:
        """Refuse another value than the example's of an argument that isn't a tensor: the graph has it built in."""
        same = self.graph.call_function(operator.is_ if value is None else operator.eq, (node, value))
        what = f"{node.target} has to be {value!r}, as in the example; for others shrink it anew"
        self.graph.call_function(torch._assert, (same, what))

    # operations

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A new node, under the name of the module that the current one comes from."""
        if target in (aten.view.default, aten._unsafe_view.default):
            target = aten.reshape.default  # what a view asks of its input's layout may not hold in another precision
        elif target is apart:
            target, args = aten.reshape.default, args[:2]  # its mark is for the analysis alone
        node = self.graph.call_function(target, args, kwargs)
        if self._current is not None:
            for key in ("nn_module_stack", "val"):
                if key in self._current.meta:
                    node.meta["stack" if key == "nn_module_stack" else "was"] = self._current.meta[key]
        return node

    def again(self, node: fx.Node, first: Any) -> fx.Node:
        """The same operation on another first argument."""
        rest = [self.argument(a) for a in node.args[1:]]
        return self.call(node.target, first, *rest, **{k: self.argument(v) for k, v in node.kwargs.items()})

    def argument(self, value: Any) -> Any:
        """An argument of the old graph in the new one, tensors at their full width."""
        return fx.map_arg(value, self.full)

    # tensors

    def full(self, node: fx.Node) -> Any:
        """A tensor with all its channels, constants filled in."""
        if node in self.net.constants:
            return self.constant(node)
        state = self.net.state[node]
        if state is None:
            return self.packed[node].node
        return self.take(node, torch.arange(state.count)).node

    def whole(self, node: fx.Node) -> Packed:
        """A tensor as it is in the new graph: narrowed, or a parameter or buffer that a layer reads in x's place."""
        return self.packed[node] if node in self.packed else Packed(node=self.full(node))

    def take(self, node: fx.Node, wanted: Tensor, *, dim: int | None = None, any_order: bool = False) -> Packed:
        """A tensor with exactly the wanted channels: as it is where that fits, else through an index operation."""
        state, packed = self.net.state[node], self.packed.get(node)
        if state is None or packed is None or packed.ids is None:
            full = self.full(node) if packed is None else packed.node
            if dim is None and state is None:
                raise AssertionError(f"{node}: the channel dimension of an unfollowed tensor is needed")
            where = state.dim if dim is None and state is not None else dim
            assert where is not None
            count = self.net.shape(node)[where]
            return Packed(node=self.pick(full, where, wanted, count), dim=where, ids=wanted)
        ids = packed.ids
        if any_order and wanted.numel() == ids.numel() and torch.equal(wanted.sort()[0], ids.sort()[0]):
            return packed
        position = torch.full((state.count,), -1)
        position[ids] = torch.arange(ids.numel())
        places = position[wanted]
        if any_order and (places >= 0).all():
            wanted = wanted[places.argsort()]
            places = places.sort()[0]
        if (places >= 0).all():
            return Packed(node=self.pick(packed.node, state.dim, places, ids.numel()), dim=state.dim, ids=wanted)
        return Packed(node=self._filled(node, packed, wanted, places), dim=state.dim, ids=wanted)

    def _filled(self, node: fx.Node, packed: Packed, wanted: Tensor, places: Tensor) -> fx.Node:
        """Live channels at their places, zeros elsewhere by way of one padded channel, then the other constants."""
        state = self.net.state[node]
        assert state is not None
        assert packed.ids is not None
        missing = places < 0
        assert bool(state.known[wanted[missing]].all()), f"{node}: a live channel was dropped"
        rank = len(self.net.shape(node))
        behind = rank - 1 - state.dim
        source, width = packed.node, packed.ids.numel()
        if (source, state.dim) in self._picked:  # picked from a wider one a moment ago: once is enough
            source, before, width = self._picked[source, state.dim]
            places = torch.where(missing, places, before[places])
        padded = self.call(aten.constant_pad_nd.default, source, [0, 0] * behind + [0, 1], 0.0)
        out: fx.Node = self.pick(padded, state.dim, torch.where(missing, width, places), width + 1)
        values = torch.where(missing, state.value[wanted], 0.0)
        if bool((values != 0).any()):
            out = self.call(aten.add.Tensor, out, self.vector(values, rank, state.dim))
        return out

    def pick(self, node: Any, dim: int, places: Tensor, width: int) -> Any:
        """Channels of a new node by position: nothing, a slice or an index operation, whichever is enough."""
        if torch.equal(places, torch.arange(width)):
            return node
        first, count = int(places[0]), places.numel()
        if torch.equal(places, torch.arange(first, first + count)):
            out = self.call(aten.slice.Tensor, node, dim, first, first + count)
        else:
            out = self.call(aten.index_select.default, node, dim, self.buffer(places, "index"))
        self._picked[out, dim] = (node, places, width)
        return out

    def vector(self, values: Tensor, rank: int, dim: int) -> fx.Node:
        """Constants as a buffer that broadcasts along the channel dimension."""
        shape = [1] * rank
        shape[dim] = -1
        return self.buffer(values.view(shape), "constant", derived=True)

    # parameters and buffers

    def buffer(self, tensor: Tensor, kind: str, *, derived: bool = False) -> fx.Node:
        """A new buffer of the smaller network, named for the node that needs it."""
        stem = self._current.name if self._current is not None else "graph"
        number = 0
        while f"{kind}_{stem}_{number}" in self.root._buffers:
            number += 1
        name = f"{kind}_{stem}_{number}"
        self.root.register_buffer(name, tensor.clone())
        if derived:
            self.derived.add(name)
        return self._attribute(name)

    def constant(self, node: fx.Node, *indices: tuple[int, Tensor]) -> fx.Node:
        """A parameter, buffer or constant, sliced along the given dimensions, under its own name."""
        tensor = self.net.constants[node]
        for dim, index in indices:
            if not torch.equal(index, torch.arange(tensor.shape[dim])):
                tensor = tensor.index_select(dim, index.to(tensor.device))
        if node.name not in self.net.captured.names:
            return self.buffer(tensor, "constant")
        name = self._free_name(self.net.captured.names[node.name], node, indices)
        return self._attribute(name, tensor.clone(), node.name in self.net.captured.trainable)

    def sliced(self, node: fx.Node, tensor: Tensor) -> fx.Node:
        """A weight of which each group keeps other inputs: still entries of the original, under its own name."""
        name = self._free_name(self.net.captured.names[node.name], node, ((0, torch.tensor([-1])),))
        return self._attribute(name, tensor.clone(), node.name in self.net.captured.trainable)

    def _free_name(self, name: str, node: fx.Node, indices: Sequence[tuple[int, Tensor]]) -> str:
        """The original name; another one only where a second, different slice is needed."""
        flat = tuple(int(v) for dim, index in indices for v in (dim, *index.tolist())) if indices else None
        number = 0
        while True:
            candidate = name if not number else f"{name}_{number}"
            owner = next((key for key, used in self._registered.items() if used == candidate), None)
            if owner is None or owner == (node.name, flat, number):
                self._registered[(node.name, flat, number)] = candidate
                return candidate
            number += 1

    def _attribute(self, name: str, tensor: Tensor | None = None, trainable: bool = False) -> fx.Node:
        if tensor is not None:
            path, _, leaf = name.rpartition(".")
            owner = self.root
            for part in path.split(".") if path else ():
                if part not in owner._modules:
                    owner.add_module(part, nn.Module())
                owner = owner._modules[part]  # type: ignore[assignment]
            if trainable:
                owner.register_parameter(leaf, nn.Parameter(tensor, requires_grad=tensor.is_floating_point()))
            else:
                owner.register_buffer(leaf, tensor)
        return self.graph.get_attr(name)


_FRESH = (aten.conv1d.default, aten.conv2d.default, aten.conv3d.default, aten.linear.default, aten.batch_norm.default)
_SUMS = (aten.add.Tensor, aten.add_.Tensor, aten.addcmul.default, aten.addcmul_.default)
_SUMS_IN_PLACE = {aten.add.Tensor: aten.add_.Tensor, aten.addcmul.default: aten.addcmul_.default}
_OVERWRITE = {
    aten.relu.default: aten.relu_.default,
    aten.hardtanh.default: aten.hardtanh_.default,
    aten.hardswish.default: aten.hardswish_.default,
    aten.silu.default: aten.silu_.default,
}


def _in_place(graph: fx.Graph) -> None:
    """Let activations and sums overwrite a layer's output that nobody else reads, as the original models mostly do."""
    for node in graph.nodes:
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], fx.Node):
            continue
        source = node.args[0]
        if source.op != "call_function" or source.target not in (*_FRESH, *_SUMS) or len(source.users) > 1:
            continue
        if node.target in _OVERWRITE:
            node.target = _OVERWRITE[node.target]
        elif node.target in _SUMS_IN_PLACE and _same_shape(source, node):
            node.target = _SUMS_IN_PLACE[node.target]


def _same_shape(source: fx.Node, node: fx.Node) -> bool:
    """Whether a sum has the shape of its first operand: an operand that is broadcast can't be overwritten."""
    shapes = [getattr(n.meta.get("was"), "shape", None) for n in (source, node)]
    return shapes[0] is not None and [str(s) for s in shapes[0]] == [str(s) for s in shapes[1] or ()]
