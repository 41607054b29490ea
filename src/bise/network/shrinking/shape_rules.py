"""Operations that move, merge, cut or reduce dimensions: where the channels go, and what becomes of sizes."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, fx

from bise.network.shrinking.analysis import Analysis, Channels, KeepFull, Packed, known_channels, live
from bise.network.shrinking.channel_rules import FULL_WIDTH, Spatial
from bise.network.shrinking.normal_forms import expression, same
from bise.network.shrinking.rewrite import Rewrite

aten = torch.ops.aten


class Moved:
    """Operations that put the channel dimension somewhere else and leave the channels as they are."""

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        source: Any = node.args[0]
        state = net.state[source]
        return None if state is None else state.at(self.where(net, node, state.dim, len(net.shape(source))))

    def stream(self, net: Analysis, node: fx.Node) -> list[fx.Node]:
        return net.goes_on(node)

    def where(self, net: Analysis, node: fx.Node, dim: int, rank: int) -> int:
        """The channel dimension of the output."""
        raise NotImplementedError

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        for source in node.all_input_nodes[1:]:
            net.want_live(source)
        net.want(node.args[0], None if net.state[node] is None else must)

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        state = new.net.state[node]
        if state is None:
            return FULL_WIDTH.emit(new, node, must)
        packed = new.take(node.args[0], must.nonzero().flatten(), any_order=True)  # type: ignore[arg-type]
        assert packed.ids is not None
        return Packed(node=self.call(new, node, packed.node, packed.ids.numel()), dim=state.dim, ids=packed.ids)

    def call(self, new: Rewrite, node: fx.Node, first: Any, width: int) -> fx.Node:
        """The operation in the new graph, with `width` channels."""
        return new.again(node, first)


class Permute(Moved):
    def where(self, net: Analysis, node: fx.Node, dim: int, rank: int) -> int:
        order: Any = node.args[1]
        places: list[int] = [d % rank for d in order]
        return places.index(dim)


class Transpose(Moved):
    def where(self, net: Analysis, node: fx.Node, dim: int, rank: int) -> int:
        a, b = (int(d) % rank for d in node.args[1:3])  # type: ignore[arg-type]
        return b if dim == a else a if dim == b else dim


class Unsqueeze(Moved):
    def where(self, net: Analysis, node: fx.Node, dim: int, rank: int) -> int:
        return dim + (int(node.args[1]) % (rank + 1) <= dim)  # type: ignore[arg-type]


class Squeeze(Moved):
    def where(self, net: Analysis, node: fx.Node, dim: int, rank: int) -> int:
        shape = net.shape(node.args[0])  # type: ignore[arg-type]
        named: Any = node.args[1] if len(node.args) > 1 else range(rank)
        dims = [d % rank for d in (named if isinstance(named, (list, tuple, range)) else [named])]
        gone = [d for d in dims if isinstance(shape[d], int) and shape[d] == 1]
        if dim in gone:
            raise KeepFull("it removes the channel dimension")
        return dim - len([d for d in gone if d < dim])


class Select(Moved):
    def where(self, net: Analysis, node: fx.Node, dim: int, rank: int) -> int:
        cut: int = int(node.args[1]) % rank  # type: ignore[arg-type]
        if cut == dim:
            raise KeepFull("it picks a single channel")
        return dim - (cut < dim)


class Reduce(Moved):
    """Mean, maximum and minimum over other dimensions than the channels': constants stay what they are."""

    def __init__(self, place: int = 1) -> None:
        self.place = place
        """Which argument names the dimensions; the next one says whether they stay."""

    def where(self, net: Analysis, node: fx.Node, dim: int, rank: int) -> int:
        given: Any = node.args[self.place] if len(node.args) > self.place else node.kwargs.get("dim")
        named = [int(d) % rank for d in given or range(rank)]
        if dim in named:
            raise KeepFull("it reduces over the channels")
        last = self.place + 1
        kept = bool(node.args[last]) if len(node.args) > last else bool(node.kwargs.get("keepdim", False))
        return dim if kept else dim - sum(d < dim for d in named)


class Total(Reduce):
    """A sum or norm over other dimensions than the channels': with as many constants as positions, only zero stays."""

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        state = super().channels(net, node)
        return None if state is None else known_channels(state.known & (state.value == 0), state.value, state.dim)


class Expand(Moved):
    def where(self, net: Analysis, node: fx.Node, dim: int, rank: int) -> int:
        place = dim + len(net.shape(node)) - rank
        if not same(net.shape(node.args[0])[dim], net.shape(node)[place]):  # type: ignore[arg-type]
            raise KeepFull("it repeats the channel")
        return place

    def call(self, new: Rewrite, node: fx.Node, first: Any, width: int) -> fx.Node:
        state = new.net.state[node]
        assert state is not None
        sizes = [new.argument(a) for a in node.args[1]]  # type: ignore[union-attr]
        sizes[state.dim] = width
        return new.call(node.target, first, sizes)


class View:
    """Reshapes that leave the channel dimension whole, or merge it with what lies behind it (flatten)."""

    def stream(self, net: Analysis, node: fx.Node) -> list[fx.Node]:
        return net.goes_on(node)

    def _carried(self, net: Analysis, node: fx.Node, dim: int) -> tuple[int, int]:
        """(output dimension, features a channel)."""
        source: Any = node.args[0]
        before, after = net.shape(source), net.shape(node)
        lead = _product(before[:dim])
        for place, size in enumerate(after):
            if _product(after[:place]) != lead or not isinstance(size, int):
                continue
            spread, behind = 1, dim + 1
            while before[dim] * spread < size and behind < len(before) and isinstance(before[behind], int):
                spread, behind = spread * before[behind], behind + 1
            if before[dim] * spread == size and (size > 1 or same(before[dim], size)):
                return place, spread
        raise KeepFull("it cuts the channels apart or mixes them with another dimension")

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        state = net.state[node.args[0]]  # type: ignore[index]
        if state is None:
            return None
        place, spread = self._carried(net, node, state.dim)
        return state.index(torch.arange(state.count).repeat_interleave(spread), place)

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        for source in node.all_input_nodes[1:]:
            net.want_live(source)
        state = net.state[node.args[0]]  # type: ignore[index]
        if net.state[node] is None or state is None:
            return net.want(node.args[0])
        flat = must.numel() > state.count and net.adaptable.get(node, False)
        net.want(node.args[0], must.view(state.count, -1).any(1), adapts=flat)

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        state, source = new.net.state[node], node.args[0]
        if state is None:
            return FULL_WIDTH.emit(new, node, must)
        before = new.net.state[source]  # type: ignore[index]
        assert before is not None
        place, spread = self._carried(new.net, node, before.dim)
        wanted = must.view(before.count, -1).any(1)
        if spread > 1 and new.net.adaptable.get(node, False):
            wanted |= new.net.must[source]  # type: ignore[index]
        packed = new.take(source, wanted.nonzero().flatten(), any_order=True)  # type: ignore[arg-type]
        assert packed.ids is not None
        sizes = [new.argument(a) for a in node.args[1]]  # type: ignore[union-attr]
        sizes[place] = packed.ids.numel() * spread
        ids = (packed.ids.unsqueeze(1) * spread + torch.arange(spread)).flatten()
        # reshape, since a slice of a contiguous tensor need not be contiguous
        return Packed(node=new.call(aten.reshape.default, packed.node, sizes), dim=place, ids=ids)


def _product(sizes: Any) -> Any:
    total: Any = 1
    for size in sizes:
        total = total * expression(size)
    return total


class Cut:
    """Slices: along other dimensions nothing happens to the channels; along theirs, a part goes on."""

    def _range(self, node: fx.Node, count: int) -> Tensor:
        rest: list[Any] = [*node.args[2:], None, None, None][:3]
        start, stop, step = rest
        if any(isinstance(n, fx.Node) for n in (start, stop, step)):
            raise KeepFull("it cuts the channels at a place that depends on the input")
        return torch.arange(count)[slice(start, stop, step)]

    def _along(self, net: Analysis, node: fx.Node) -> bool:
        source: Any = node.args[0]
        state = net.state[source]
        dim: Any = node.args[1] if len(node.args) > 1 else 0
        return state is not None and dim % len(net.shape(source)) == state.dim

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        state = net.state[node.args[0]]  # type: ignore[index]
        if state is None or not self._along(net, node):
            return state
        return state.index(self._range(node, state.count))

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        for source in node.all_input_nodes[1:]:
            net.want_live(source)
        state = net.state[node.args[0]]  # type: ignore[index]
        if state is None or not self._along(net, node):
            return net.want(node.args[0], None if state is None else must)
        wanted = torch.zeros(state.count, dtype=torch.bool)
        wanted[self._range(node, state.count)[must]] = True
        net.want(node.args[0], wanted)

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        source: Any = node.args[0]
        state = new.net.state[source]
        if state is None:
            return FULL_WIDTH.emit(new, node, must)
        if not self._along(new.net, node):
            packed = new.take(source, must.nonzero().flatten(), any_order=True)
            return Packed(node=new.again(node, packed.node), dim=packed.dim, ids=packed.ids)
        return reindexed(new, source, self._range(node, state.count), must)


class Shuffle:
    """A permutation of channels costs nothing: only their order changes."""

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        source: Any = node.args[0]
        state = net.state[source] or live(net.shape(source)[1], 1)
        if state.dim != 1:
            raise KeepFull("it shuffles another dimension than the channels'")
        return state.index(torch.tensor(node.args[2]))

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        wanted = torch.zeros_like(must)
        wanted[torch.tensor(node.args[2])[must]] = True
        net.want(node.args[0], wanted)

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        return reindexed(new, node.args[0], torch.tensor(node.args[2]), must)


def reindexed(new: Rewrite, source: Any, order: Tensor, must: Tensor) -> Packed:
    """Output channel i is input channel order[i]: take those that must be there, and rename them."""
    packed = new.take(source, order[must].sort()[0], dim=1, any_order=True)
    assert packed.ids is not None
    back = torch.full((int(order.max()) + 1,), -1)
    back[order] = torch.arange(order.numel())
    return Packed(node=packed.node, dim=packed.dim, ids=back[packed.ids])


class Concatenate:
    def _parts(self, net: Analysis, node: fx.Node) -> tuple[list[fx.Node], int]:
        parts: Any = node.args[0]
        dim: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        return list(parts), dim % len(net.shape(node))

    def _axis(self, net: Analysis, node: fx.Node) -> int | None:
        parts, _ = self._parts(net, node)
        dims = {state.dim for state in (net.state[p] for p in parts) if state is not None}
        if len(dims) > 1:
            raise KeepFull("its parts have their channels in different dimensions")
        return next(iter(dims), None)

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        axis = self._axis(net, node)
        if axis is None:
            return None
        parts, along = self._parts(net, node)
        states = [net.state[p] or live(net.shape(p)[axis], axis) for p in parts]
        if along == axis:
            return known_channels(torch.cat([s.known for s in states]), torch.cat([s.value for s in states]), axis)
        known = torch.stack([s.known for s in states]).all(0)
        values = torch.stack([s.value for s in states])
        return known_channels(known & (values == values[0]).all(0), values[0], axis)

    def _segments(self, net: Analysis, node: fx.Node, axis: int, must: Tensor) -> list[Tensor]:
        """The channels that each part must give."""
        parts, along = self._parts(net, node)
        if along != axis:
            return [must for _ in parts]
        return list(torch.split(must, [net.shape(p)[axis] for p in parts]))

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        parts, _ = self._parts(net, node)
        state = net.state[node]
        if state is None:
            for part in parts:
                net.want_live(part)
            return
        for part, segment in zip(parts, self._segments(net, node, state.dim, must), strict=True):
            if segment.any():
                net.want(part, segment)

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        net = new.net
        state = net.state[node]
        if state is None:
            return FULL_WIDTH.emit(new, node, must)
        parts, along = self._parts(net, node)
        segments = self._segments(net, node, state.dim, must)
        start, nodes, ids = 0, [], []
        for part, segment in zip(parts, segments, strict=True):
            if segment.any():
                packed = new.take(part, segment.nonzero().flatten(), dim=state.dim, any_order=along == state.dim)
                assert packed.ids is not None
                nodes.append(packed.node)
                ids.append(packed.ids + (start if along == state.dim else 0))
            start += segment.numel()
        order = torch.cat(ids) if along == state.dim else ids[0]
        whole = nodes[0] if len(nodes) == 1 else new.call(aten.cat.default, nodes, along)
        return Packed(node=whole, dim=state.dim, ids=order)


class First(Spatial):
    """Operations with several results, of which only the first is used."""

    def check(self, node: fx.Node, dim: int, rank: int) -> None:
        super().check(node, dim, rank)
        if any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users):
            raise KeepFull("its indices are used")


class Item(Moved):
    def where(self, net: Analysis, node: fx.Node, dim: int, rank: int) -> int:
        return dim

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        return net.state[node.args[0]]  # type: ignore[index]
