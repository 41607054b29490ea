"""Arithmetic on two tensors: residual sums, gates, squeeze-and-excite, layer scale."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from bise.network.shrinking.analysis import Analysis, Channels, KeepFull, Packed, known_channels
from bise.network.shrinking.channel_rules import FULL_WIDTH
from bise.network.shrinking.normal_forms import same
from bise.network.shrinking.rewrite import Rewrite

aten = torch.ops.aten

APART = "its operands have their channels in different dimensions"


class Arithmetic:
    """Two operands, channel by channel: residual sums, gates, squeeze-and-excite, layer scale."""

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        dim, count = self._axis(net, node)
        if dim is None:
            return None
        if node.kwargs.get("alpha", 1) != 1 or any(k not in ("alpha",) for k in node.kwargs):
            raise KeepFull("it scales or rounds one operand")
        pairs = [self._operand(net, node, x, dim, count) for x in node.args[:2]]
        (known_a, a), (known_b, b) = pairs
        known = known_a & known_b
        value = node.target(a, b) if isinstance(node.args[1], fx.Node) else node.target(a, node.args[1])  # type: ignore[operator]
        if node.target is aten.mul.Tensor:
            zero = (known_a & (a == 0)) | (known_b & (b == 0))
            known, value = known | zero, torch.where(zero, 0.0, value)
        return known_channels(known, value, dim)

    def _axis(self, net: Analysis, node: fx.Node) -> tuple[int | None, int]:
        """The channel dimension that the followed operands agree on, else the one that a gate's mask shows."""
        rank = len(net.shape(node))
        sources = [x for x in node.args[:2] if isinstance(x, fx.Node)]
        states = {x: state for x in sources if (state := net.state[x]) is not None}
        found = {(s.dim + rank - len(net.shape(x)), s.count): bool(s.known.any()) for x, s in states.items()}
        if not found:
            for x in sources:
                if x in net.from_masks:
                    wide = [d for d, n in enumerate(net.constants[x].shape) if n > 1]
                    found |= {(d + rank - net.constants[x].dim(), net.constants[x].shape[d]): True for d in wide}
        if not found:
            return None, 0
        fits = {axis: closed for axis, closed in found.items() if same(axis[1], net.shape(node)[axis[0]])}
        # where the dimensions differ, an operand of which nothing is closed loses nothing at full width
        chosen = list(fits) if len(fits) == 1 else [axis for axis, closed in fits.items() if closed]
        if len(chosen) != 1:
            raise KeepFull(APART)
        return chosen[0]

    def followed(self, net: Analysis, node: fx.Node, x: fx.Node, dim: int) -> Channels | None:
        """The channels of an operand, None where they are none of the output's."""
        state, rank = net.state[x], len(net.shape(node))
        if state is None or state.dim + rank - len(net.shape(x)) != dim or state.count != net.shape(node)[dim]:
            return None
        return state

    def _operand(self, net: Analysis, node: fx.Node, x: Any, dim: int, count: int) -> tuple[Tensor, Tensor]:
        """(known, value) by channel."""
        everywhere = torch.ones(count, dtype=torch.bool)
        if not isinstance(x, fx.Node):
            return everywhere, torch.full((count,), float(x), dtype=torch.float64)
        state = self.followed(net, node, x, dim)
        if state is not None:
            return state.known, state.value
        place = self._place(net, node, x, dim)
        constant = net.constants.get(x, _spread(net, x))
        if constant is not None:
            tensor = constant.to("cpu", torch.float64)
            if tensor.numel() == 1:
                return everywhere, tensor.flatten().expand(count)
            if place is not None and tensor.numel() == count == tensor.shape[place]:
                return everywhere, tensor.flatten()
        return ~everywhere, torch.zeros(count, dtype=torch.float64)

    def _place(self, net: Analysis, node: fx.Node, x: fx.Node, dim: int) -> int | None:
        """Where the channel dimension is in an operand of its own rank; None where it is broadcast."""
        shape = net.constants[x].shape if x in net.constants else net.shape(x)
        place = dim - (len(net.shape(node)) - len(shape))
        return None if place < 0 or shape[place] == 1 else place

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        state = net.state[node]
        sources = [x for x in node.args[:2] if isinstance(x, fx.Node)]
        if state is None:
            for x in sources:
                net.want_live(x)
            return
        dropped = set()
        for x in sources:
            mine, whole = self.followed(net, node, x, state.dim), net.state[x]
            if mine is None and whole is not None:
                net.want_live(x)
                net.note_barrier(node, APART, int(whole.known.sum()))
            elif mine is None:
                if _spread(net, x) is None or self._place(net, node, x, state.dim) is None:
                    net.want(x)
            elif mine.known[must].all() and self._carried(net, node, x, must):
                dropped.add(x)
            else:
                wanted = must & ~mine.known
                if not wanted.any():
                    net.note_barrier(node, "a constant is wanted here as a tensor", int(must.sum()))
                net.want(x, self._as_wide(net, node, wanted, must), adapts=None)
        net.notes[node] = dropped

    def _as_wide(self, net: Analysis, node: fx.Node, wanted: Tensor, must: Tensor) -> Tensor:
        """What an operand gives: its constants too, where it needed an index operation without and they are few."""
        count = int(wanted.sum())
        near = net.widths.multiple > 1 and int(must.sum()) <= net.widths.room(count)
        in_stream = net.widths.union and len(self.stream(net, node)) > 1
        return must if near or in_stream or not count else wanted

    def stream(self, net: Analysis, node: fx.Node) -> list[fx.Node]:
        """A sum and its operands; a product goes on where it is with constants, as of a gate."""
        state = net.state[node]
        if state is None:
            return [node]
        sources = [x for x in node.args[:2] if isinstance(x, fx.Node) and x not in net.notes.get(node, ())]
        parts = [x for x in sources if self.followed(net, node, x, state.dim) is not None]
        return [node] if len(parts) > 1 and node.target not in (aten.add.Tensor, aten.sub.Tensor) else [node, *parts]

    def _carried(self, net: Analysis, node: fx.Node, x: fx.Node, must: Tensor) -> bool:
        """Whether the other operand is a tensor of the output's shape, so that this one may be mere constants."""
        axis = net.state[node]
        assert axis is not None
        for other in node.args[:2]:
            if isinstance(other, fx.Node) and other is not x and other not in net.constants:
                state = self.followed(net, node, other, axis.dim)
                computed_there = state is None or not state.known[must].all()
                if computed_there and [str(s) for s in net.shape(other)] == [str(s) for s in net.shape(node)]:
                    return True
        return False

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        net = new.net
        state = net.state[node]
        if state is None:
            return FULL_WIDTH.emit(new, node, must)
        ids = self._order(new, node, state.dim, must.nonzero().flatten())
        operands = [self._emitted(new, node, x, state.dim, ids) for x in node.args[:2]]
        neutral = 1.0 if node.target in (aten.mul.Tensor, aten.div.Tensor) else 0.0
        swaps = node.target in (aten.mul.Tensor, aten.add.Tensor)
        for this, that in ((1, 0), (0, 1)):
            if (this == 1 or swaps) and self._neutral(net, node, node.args[this], state.dim, ids, neutral):
                return Packed(node=operands[that], dim=state.dim, ids=ids)
        return Packed(node=new.call(node.target, *operands), dim=state.dim, ids=ids)

    def _neutral(self, net: Analysis, node: fx.Node, x: Any, dim: int, ids: Tensor, neutral: float) -> bool:
        """Whether an operand changes nothing on these channels: an open gate, or a branch that is all zeros."""
        if not isinstance(x, fx.Node):
            return False
        other = node.args[0] if x is node.args[1] else node.args[1]
        if not isinstance(other, fx.Node) or other in net.constants:
            return False
        if [str(s) for s in net.shape(other)] != [str(s) for s in net.shape(node)]:
            return False
        if x not in net.from_masks and x not in net.notes[node]:
            return False
        known, value = self._operand(net, node, x, dim, net.shape(node)[dim])
        same = known & (value == neutral)
        if node.target is aten.mul.Tensor:  # a gate that closes what is zero already
            before, was = self._operand(net, node, other, dim, net.shape(node)[dim])
            same |= before & (was == 0)
        return bool(same[ids].all())

    def _order(self, new: Rewrite, node: fx.Node, dim: int, wanted: Tensor) -> Tensor:
        """The wanted channels, in the order in which an operand already holds just them, if one does."""
        for x in node.args[:2]:
            packed = new.packed.get(x) if isinstance(x, fx.Node) and self.followed(new.net, node, x, dim) else None
            if packed is not None and packed.ids is not None and torch.equal(packed.ids.sort()[0], wanted):
                return packed.ids
        return wanted

    def _emitted(self, new: Rewrite, node: fx.Node, x: Any, dim: int, ids: Tensor) -> Any:
        if not isinstance(x, fx.Node):
            return x
        net = new.net
        state = self.followed(net, node, x, dim)
        if state is not None:
            if x in net.notes[node]:
                return new.vector(state.value[ids], len(net.shape(node)), dim)
            return new.take(x, ids).node
        place = self._place(net, node, x, dim)
        if place is None:
            return new.full(x)
        if x in net.constants:
            return new.constant(x, (place, ids))
        spread = _spread(net, x)
        if spread is not None:
            sizes = [1] * spread.dim()
            sizes[place] = -1
            return new.call(aten.reshape.default, new.constant(x.args[0], (0, ids)), sizes)  # type: ignore[arg-type]
        return new.pick(new.full(x), place, ids, net.shape(x)[place])


def _spread(net: Analysis, x: fx.Node) -> Tensor | None:
    """A parameter's vector as it was viewed to lie along one dimension, as in weight.view(1, -1, 1, 1)."""
    vector: Any = x.args[0] if x.target is aten.view.default else None
    if vector not in net.constants or net.constants[vector].dim() != 1:
        return None
    sizes = list(net.shape(x))
    wide = [n for n in sizes if n != 1]
    return net.constants[vector].view(sizes) if wide == [net.constants[vector].numel()] else None
