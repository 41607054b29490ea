"""Attention: heads that nobody reads go from queries, keys and values, and so from the weights that make them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from bise.network.shrinking.analysis import Analysis, Channels, KeepFull, Packed, known_channels, live
from bise.network.shrinking.attention_forms import product
from bise.network.shrinking.channel_rules import FULL_WIDTH
from bise.network.shrinking.layer_rules import Product
from bise.network.shrinking.rewrite import Rewrite
from bise.network.shrinking.shape_rules import View

aten = torch.ops.aten

WHOLE = "a head keeps all its channels"


class Apart(View):
    """A view of channels as [outer, units, inner], of which the units are followed: heads, or a head's channels."""

    def _cut(self, net: Analysis, node: fx.Node) -> tuple[Channels, Tensor] | None:
        """(channels of the input, those of each unit [outer, units, inner]); None where it cuts another dimension."""
        source: Any = node.args[0]
        dim: Any = node.args[2]
        state, before, after = net.state[source], net.shape(source), net.shape(node)
        if state is None:
            return None
        for first in range(dim + 1):
            for last in range(dim + 1, len(after) + 1):
                inside = after[first:last]
                if (
                    all(isinstance(n, int) for n in inside)
                    and product(inside) == state.count
                    and product(after[:first]) == product(before[: state.dim])
                    and product(after[last:]) == product(before[state.dim + 1 :])
                ):
                    outer, inner = product(after[first:dim]), product(after[dim + 1 : last])
                    return state, torch.arange(state.count).view(outer, after[dim], inner)
        return None

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        cut = self._cut(net, node)
        if cut is None:
            return super().channels(net, node)
        state, of = cut
        values = state.value[of]
        known = state.known[of] & (values == values[:1, :, :1])
        dim: Any = node.args[2]
        return known_channels(known.all(2).all(0), values[0, :, 0], dim)

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        cut = self._cut(net, node)
        if cut is None:
            return super().demand(net, node, must)
        for source in node.all_input_nodes[1:]:
            net.want_live(source)
        state, of = cut
        wanted = torch.zeros(state.count, dtype=torch.bool)
        wanted[of[:, must].flatten()] = True
        net.want(node.args[0], wanted)
        net.note_barrier(node, WHOLE, int((state.known & wanted).sum()))

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        cut = self._cut(new.net, node)
        if cut is None:
            return super().emit(new, node, must)
        _, of = cut
        units = must.nonzero().flatten()
        packed = new.take(node.args[0], of[:, units].flatten())  # type: ignore[arg-type]
        sizes = [new.argument(a) for a in node.args[1]]  # type: ignore[union-attr]
        dim: Any = node.args[2]
        sizes[dim] = units.numel()
        return Packed(node=new.call(aten.reshape.default, packed.node, sizes), dim=dim, ids=units)


class Attention:
    """softmax(q · kᵀ) · v head by head, [..., heads, length, channels]; key and value may have fewer heads."""

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        rank = len(net.shape(node))
        if rank < 4:
            raise KeepFull("it has no dimension of heads")
        states = [net.state[x] for x in node.args[:3]]  # type: ignore[index]
        if any(state is not None and state.dim != rank - 3 for state in states):
            raise KeepFull("attention mixes what lies along another dimension than the heads'")
        count = net.shape(node)[rank - 3]
        return live(count, rank - 3) if isinstance(count, int) and any(state is not None for state in states) else None

    def _heads(self, net: Analysis, node: fx.Node, must: Tensor) -> tuple[Tensor, Tensor]:
        """(heads of queries, heads of keys and values) to compute: of those that share a key, all or none."""
        shared = net.shape(node.args[1])[-3]  # type: ignore[arg-type]
        keys = must.view(shared, -1).any(1)
        return keys.repeat_interleave(must.numel() // shared), keys

    def _mask(self, net: Analysis, node: fx.Node) -> tuple[Any, int | None]:
        """The mask or bias that is added before softmax, and the dimension in which it has an entry for each head."""
        mask = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
        if not isinstance(mask, fx.Node):
            return None, None
        shape = net.shape(mask)
        return mask, len(shape) - 3 if len(shape) > 2 and shape[-3] != 1 else None

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        mask, dim = self._mask(net, node)
        if net.state[node] is None:
            return FULL_WIDTH.demand(net, node, must)
        queries, keys = self._heads(net, node, must)
        for source, heads in zip(list(node.args[:3]), (queries, keys, keys), strict=True):
            _want_heads(net, node, source, heads)
        if mask is not None:
            state = net.state[mask]
            narrow = state is not None and state.dim == dim
            net.want(mask, queries) if narrow else net.want_live(mask)

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        state = new.net.state[node]
        if state is None:
            return FULL_WIDTH.emit(new, node, must)
        args: list[Any] = list(node.args[3:])
        queries, keys = (heads.nonzero().flatten() for heads in self._heads(new.net, node, must))
        factors = [
            new.take(x, heads, dim=state.dim).node  # type: ignore[arg-type]
            for x, heads in zip(node.args[:3], (queries, keys, keys), strict=True)
        ]
        mask, dim = self._mask(new.net, node)
        kwargs = _kwargs(new, node)
        if mask is not None:
            given = new.full(mask) if dim is None else _taken(new, mask, queries, dim)
            if len(args):
                args[0] = given
            else:
                kwargs["attn_mask"] = given
        return Packed(node=new.call(node.target, *factors, *args, **kwargs), dim=state.dim, ids=queries)


def _kwargs(new: Rewrite, node: fx.Node) -> dict[str, Any]:
    return {key: new.argument(value) for key, value in node.kwargs.items() if key != "attn_mask"}


def _want_heads(net: Analysis, node: fx.Node, source: Any, heads: Tensor) -> None:
    state = net.state[source]
    net.want(source, None if state is None else heads)
    if state is not None:
        net.note_barrier(node, "attention reads all of its heads", int((state.known & heads).sum()))


def _taken(new: Rewrite, x: fx.Node, heads: Tensor, dim: int) -> Any:
    """Entries of a mask, whichever of its dimensions is followed."""
    state = new.net.state[x]
    if state is not None and state.dim != dim:
        return new.pick(new.full(x), dim, heads, new.net.shape(x)[dim])
    return new.take(x, heads, dim=dim).node


class Products(Product):
    """A product of two tensors: with a layer's weight, or head by head where attention is written out."""

    def _dim(self, net: Analysis, node: fx.Node) -> int | None:
        """The dimension along which both are a stack of matrices, if channels lie there."""
        if node.target is not aten.matmul.default or any(x in net.constants for x in node.args):
            return None
        shapes = [net.shape(x) for x in node.args]  # type: ignore[arg-type]
        dims = {state.dim for x in node.args if (state := net.state[x]) is not None}  # type: ignore[index]
        if len(shapes[0]) != len(shapes[1]) or len(dims) != 1:
            return None
        (dim,) = dims
        return dim if dim < len(shapes[0]) - 2 and str(shapes[0][dim]) == str(shapes[1][dim]) else None

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        dim = self._dim(net, node)
        return super().channels(net, node) if dim is None else live(net.shape(node)[dim], dim)

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        if self._dim(net, node) is None:
            return super().demand(net, node, must)
        for source in node.args:
            _want_heads(net, node, source, must)

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        dim = self._dim(new.net, node)
        if dim is None:
            return super().emit(new, node, must)
        heads = must.nonzero().flatten()
        factors = [new.take(x, heads, dim=dim).node for x in node.args]  # type: ignore[arg-type]
        return Packed(node=new.call(node.target, *factors), dim=dim, ids=heads)
