"""Layers and arithmetic: one small rule per operation. An operation without a rule keeps its full width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from bise.shrink.analysis import (
    Analysis,
    Channels,
    KeepFull,
    Packed,
    live,
    settled,
)
from bise.shrink.rewrite import Rewrite

aten = torch.ops.aten


class FullWidth:
    """The rule of what can't be seen through: inputs at full width with their constants, output not followed."""

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        return None

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        closed = 0
        for source in node.all_input_nodes:
            net.want_live(source)
            state = net.state[source]
            closed += 0 if state is None else int(state.known.sum())
        if node.op != "output":
            net.note_barrier(node, net.reasons.get(node, "this operation mixes channels"), closed)

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        args = [new.argument(a) for a in node.args]
        return Packed(node=new.call(node.target, *args, **{k: new.argument(v) for k, v in node.kwargs.items()}))


class Size:
    """Operations that look at an input's shape, type or device only: any width will do."""

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        return None

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        for source in node.all_input_nodes:
            state = net.state[source]
            if state is None:
                net.want(source)
            else:
                first = torch.zeros(state.count, dtype=torch.bool)
                first[0] = True
                net.want(source, first)

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        source: Any = node.args[0]
        if isinstance(node.meta["val"], int):
            return Packed(node=node.meta["val"])
        if source in new.net.constants:
            return Packed(node=new.again(node, new.constant(source)))
        return Packed(node=new.again(node, new.packed[source].node))


class Same:
    """An operation that keeps each channel to itself and at its place; `value` gives what it makes of constants."""

    def __init__(self, value: Callable[[fx.Node, Tensor], Tensor] | None = None) -> None:
        self.value = value

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        source: Any = node.args[0]
        state = net.state[source] if isinstance(source, fx.Node) else None
        if state is None:
            return None
        self.check(node, state.dim, len(net.shape(source)))
        value = state.value if self.value is None else self.value(node, state.value)
        return settled(state.known, value, state.dim)

    def check(self, node: fx.Node, dim: int, rank: int) -> None:
        """Refuse uses that touch the channel dimension."""

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        for source in node.all_input_nodes[1:]:
            net.want_live(source)
        state, before = net.state[node], net.state[node.args[0]]  # type: ignore[index]
        net.want(node.args[0], None if state is None else must)
        if state is not None and before is not None:
            reason = "constants don't stay constant here"
            net.note_barrier(node, reason, int((must & before.known & ~state.known).sum()))

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        source: Any = node.args[0]
        if new.net.state[node] is None:
            return FullWidth().emit(new, node, must)
        packed = new.take(source, must.nonzero().flatten(), any_order=True)
        return Packed(node=new.again(node, packed.node), dim=packed.dim, ids=packed.ids)


def computed(node: fx.Node, value: Tensor) -> Tensor:
    """What a pointwise operation makes of constants: the operation itself, on them."""
    return node.target(value, *node.args[1:], **node.kwargs)  # type: ignore[operator,no-any-return]


class Spatial(Same):
    """Pooling and its like: the channels are dimension 1 of a batch of maps."""

    def check(self, node: fx.Node, dim: int, rank: int) -> None:
        if dim != 1 or rank < 3:
            raise KeepFull("its channels are not where a convolution puts them")


def pooled(node: fx.Node, value: Tensor) -> Tensor:
    """Averages that count padding as zeros leave only the constant zero constant."""
    padding: Any = node.args[3] if len(node.args) > 3 else 0
    counted = node.args[5] if len(node.args) > 5 else True
    padded = bool(padding) and any(torch.as_tensor(padding).flatten().tolist())
    return torch.where(value == 0, value, torch.nan) if padded and counted else value


def padded(node: fx.Node, value: Tensor) -> Tensor:
    """Padding with a number leaves only that number constant; reflected and repeated borders leave all."""
    mode = node.args[2] if len(node.args) > 2 else node.kwargs.get("mode", "constant")
    fill: Any = node.args[3] if len(node.args) > 3 else node.kwargs.get("value")
    return value if mode != "constant" else torch.where(value == float(fill or 0.0), value, torch.nan)


class Padding(Same):
    def check(self, node: fx.Node, dim: int, rank: int) -> None:
        amounts: Any = node.args[1]
        behind = rank - 1 - dim
        if any(amounts[2 * behind : 2 * behind + 2]):
            raise KeepFull("it pads the channel dimension")


class Along(Same):
    """Softmax and its like: fine along any dimension but the channels', though no constant survives."""

    def check(self, node: fx.Node, dim: int, rank: int) -> None:
        along: Any = node.args[1]
        if any(d % rank == dim for d in (along if isinstance(along, (list, tuple)) else [along])):
            raise KeepFull("it runs over the channels")


def unknown(node: fx.Node, value: Tensor) -> Tensor:
    return torch.full_like(value, torch.nan)


class Rolled(Same):
    def check(self, node: fx.Node, dim: int, rank: int) -> None:
        dims: Any = node.args[-1]
        if len(node.args) < (3 if node.target is aten.roll.default else 2) or any(d % rank == dim for d in dims):
            raise KeepFull("it moves channels")


class PerChannel(Same):
    """BatchNorm in eval mode and PReLU: each channel has its own entry in each of the parameters."""

    def __init__(self, places: tuple[int, ...]) -> None:
        super().__init__()
        self.places = places

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        source: Any = node.args[0]
        state = net.state[source]
        if state is None:
            return None
        if state.dim != 1:
            raise KeepFull("its channels are not where a convolution puts them")
        args: list[Any] = list(node.args)
        for place in self.places:
            if isinstance(args[place], fx.Node):
                args[place] = net.parameter(args[place], node).to("cpu", torch.float64)
        if node.target is aten.batch_norm.default and (args[5] or args[3] is None):
            raise KeepFull("it uses the statistics of the batch")
        args[0] = state.value.unsqueeze(0)
        return settled(state.known, node.target(*args)[0], 1)  # type: ignore[operator]

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        if new.net.state[node] is None:
            return FullWidth().emit(new, node, must)
        source: Any = node.args[0]
        packed = new.take(source, must.nonzero().flatten(), any_order=True)
        assert packed.ids is not None
        args: list[Any] = [packed.node, *node.args[1:]]
        for place in self.places:
            entry = args[place]
            if isinstance(entry, fx.Node):
                one = new.net.constants[entry].numel() == 1
                args[place] = new.constant(entry) if one else new.constant(entry, (0, packed.ids))
        return Packed(node=new.call(node.target, *args), dim=1, ids=packed.ids)


class Layer:
    """Convolution and linear layers: weight [outputs, inputs of a group, …]."""

    def __init__(self, linear: bool = False) -> None:
        self.linear = linear

    def _parts(self, net: Analysis, node: fx.Node) -> tuple[Any, Tensor, Any, int, bool]:
        """Input node, weight, bias node, groups, and whether zeros are padded."""
        args: list[Any] = list(node.args)
        padding = args[4] if len(args) > 4 else node.kwargs.get("padding", 0)
        groups = args[6] if len(args) > 6 else node.kwargs.get("groups", 1)
        bias = args[2] if len(args) > 2 else node.kwargs.get("bias")
        pads = padding == "same" if isinstance(padding, str) else any(torch.as_tensor(padding).flatten().tolist())
        return args[0], net.constants[args[1]], bias, 1 if self.linear else groups, not self.linear and bool(pads)

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        source: Any = node.args[0]
        net.parameter(node.args[1], node)
        x, weight, bias, groups, pads = self._parts(net, node)
        if bias is not None:
            net.parameter(bias, node)
        rank = len(net.shape(x))
        dim = rank - 1 if self.linear else rank - (weight.dim() - 1)
        state = net.state[source]
        if state is not None and state.dim != dim:
            raise KeepFull("its input's channels are in another dimension")
        outputs = weight.shape[0]
        if state is None or not state.known.any():
            return live(outputs, dim)
        width, each = weight.shape[1], outputs // groups
        known_in = state.known & ((state.value == 0) | (not pads))
        known = known_in.view(groups, width).all(1).repeat_interleave(each)
        if not known.any():
            return live(outputs, dim)
        value = self._sums(weight, state.value, groups)
        if bias is not None:
            value = value + net.constants[bias].to("cpu", torch.float64)
        return settled(known, value, dim)

    def _sums(self, weight: Tensor, value: Tensor, groups: int) -> Tensor:
        """Σ over inputs and taps of weight · constant, for each output [outputs]."""
        kernel = weight.to("cpu", torch.float64).flatten(2).sum(2) if weight.dim() > 2 else weight.cpu().double()
        by_group = kernel.view(groups, -1, weight.shape[1]) * value.view(groups, 1, -1)
        return by_group.sum(2).flatten()

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        x, weight, _, groups, _ = self._parts(net, node)
        state = net.state[x]
        if groups > 1 and must.any():
            net.notes[node] = plan = _by_group(must, state, weight, groups)
            if state is None:
                return net.want(x)
            wanted = torch.zeros(state.count, dtype=torch.bool)
            wanted[plan[0].flatten()] = True
            net.want(x, wanted)
            reason = f"groups={groups} need equal widths, and constants under zero padding are no constants"
            net.note_barrier(node, reason, int((state.known & wanted).sum()))
        else:
            net.want_live(x)

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        net = new.net
        x, weight, bias, groups, pads = self._parts(net, node)
        state = net.state[node]
        assert state is not None
        outputs = must.nonzero().flatten()
        rest: list[Any] = [new.argument(a) for a in node.args[3:]]
        if groups > 1:
            inputs, kept = net.notes[node]
            packed = new.take(x, inputs.flatten(), dim=state.dim)
            outputs, rest[3] = kept.flatten(), inputs.shape[0]
            filters = self._group_weight(new, node, inputs, kept, weight)
            offset: Any = None
        else:
            packed = new.packed[x]
            ids = torch.arange(weight.shape[1]) if packed.ids is None else packed.ids
            filters = new.constant(node.args[1], (0, outputs), (1, ids))  # type: ignore[arg-type]
            offset = self._folded(net, x, weight, ids)
        old_bias = None if bias is None else new.constant(bias, (0, outputs))
        out = dict(dim=state.dim, ids=outputs)
        if offset is None:
            return Packed(node=new.call(node.target, packed.node, filters, old_bias, *rest), **out)
        if not pads:
            total = self._sums(weight, offset, 1)[outputs]
            total = total if bias is None else total + net.constants[bias].to("cpu", torch.float64)[outputs]
            new_bias = new.buffer(total, "bias", derived=True)
            return Packed(node=new.call(node.target, packed.node, filters, new_bias, *rest), **out)
        plain = new.call(node.target, packed.node, filters, old_bias, *rest)
        border = self._with_border(new, node, packed.node, weight, offset, outputs, rest)
        return Packed(node=new.call(aten.add.Tensor, plain, border), **out)

    def _folded(self, net: Analysis, x: fx.Node, weight: Tensor, ids: Tensor) -> Tensor | None:
        """The constants of the inputs that are gone [inputs], or None where all are zero."""
        state = net.state[x]
        if state is None:
            return None
        gone = state.known.clone()
        gone[ids] = False
        offset = torch.where(gone, state.value, 0.0)
        return offset if bool((offset != 0).any()) else None

    def _with_border(
        self, new: Rewrite, node: fx.Node, x: Any, weight: Tensor, offset: Tensor, outputs: Tensor, rest: list[Any]
    ) -> fx.Node:
        """What constant inputs add under zero padding: one channel of ones through their summed filters."""
        kernel = weight.to("cpu", torch.float64)[outputs]
        shape = [1, -1] + [1] * (weight.dim() - 2)
        summed = (kernel * offset.view(shape)).sum(1, keepdim=True)
        one = new.call(aten.slice.Tensor, new.call(aten.slice.Tensor, x, 0, 0, 1), 1, 0, 1)
        ones = new.call(aten.ones_like.default, one)
        return new.call(node.target, ones, new.buffer(summed, "border", derived=True), None, *rest)

    def _group_weight(self, new: Rewrite, node: fx.Node, inputs: Tensor, kept: Tensor, weight: Tensor) -> fx.Node:
        """The filters of the kept outputs; each group its own kept inputs."""
        name: Any = node.args[1]
        if inputs.shape[1] == weight.shape[1]:
            return new.constant(name, (0, kept.flatten()))
        local = (inputs % weight.shape[1]).repeat_interleave(kept.shape[1], 0)
        rows = weight.index_select(0, kept.flatten().to(weight.device))
        index = local.view(*local.shape, *[1] * (weight.dim() - 2)).expand(*local.shape, *weight.shape[2:])
        return new.sliced(name, torch.gather(rows, 1, index.to(weight.device)))


def _by_group(must: Tensor, state: Channels | None, weight: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """(inputs [groups left, equal number], outputs [groups left, equal number]) of a grouped convolution.

    Groups that nobody reads go; the others keep as many inputs and outputs as the one that needs most.
    """
    width, each = weight.shape[1], weight.shape[0] // groups
    wanted = must.view(groups, each)
    left = wanted.any(1)
    needed = torch.ones(groups, width, dtype=torch.bool) if state is None else (~state.known | (state.value != 0)).view(groups, width)
    if state is None:
        left = torch.ones_like(left)
    inputs = _equal(needed[left]) + left.nonzero() * width
    outputs = _equal(wanted[left]) + left.nonzero() * each
    return inputs, outputs


def _equal(needed: Tensor) -> Tensor:
    """Positions of what is needed, row by row, filled up to the longest row with others, in ascending order."""
    count = max(1, int(needed.sum(1).max()))
    order = needed.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :count]
    return order.sort(1)[0]


class Embedding:
    """A table whose columns are channels: unread columns go."""

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        weight = net.parameter(node.args[0], node)
        return live(weight.shape[1], len(net.shape(node)) - 1)

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        net.want_live(node.args[1])

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        ids = must.nonzero().flatten()
        table: Any = node.args[0]
        out = new.again(node, new.constant(table, (1, ids)))
        return Packed(node=out, dim=len(new.net.shape(node)) - 1, ids=ids)


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
        return settled(known, value, dim)

    def _axis(self, net: Analysis, node: fx.Node) -> tuple[int | None, int]:
        """The channel dimension that the followed operands agree on, else the one that a gate's mask shows."""
        rank = len(net.shape(node))
        found = set()
        for x in node.args[:2]:
            if not isinstance(x, fx.Node):
                continue
            state = net.state[x]
            if state is not None:
                found.add((state.dim + rank - len(net.shape(x)), state.count))
        if not found:
            for x in node.args[:2]:
                if isinstance(x, fx.Node) and x in net.from_masks:
                    wide = [d for d, n in enumerate(net.constants[x].shape) if n > 1]
                    found |= {(d + rank - net.constants[x].dim(), net.constants[x].shape[d]) for d in wide}
        if not found:
            return None, 0
        if len(found) > 1 or next(iter(found))[1] != net.shape(node)[next(iter(found))[0]]:
            raise KeepFull("its operands have their channels in different dimensions")
        return next(iter(found))

    def _operand(self, net: Analysis, node: fx.Node, x: Any, dim: int, count: int) -> tuple[Tensor, Tensor]:
        """(known, value) by channel."""
        everywhere = torch.ones(count, dtype=torch.bool)
        if not isinstance(x, fx.Node):
            return everywhere, torch.full((count,), float(x), dtype=torch.float64)
        if net.state[x] is not None:
            return net.state[x].known, net.state[x].value  # type: ignore[union-attr]
        place = self._place(net, node, x, dim)
        if x in net.constants:
            tensor = net.constants[x].to("cpu", torch.float64)
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
            mine = net.state[x]
            if mine is None:
                net.want(x)
            elif mine.known[must].all() and self._carried(net, node, x, must):
                dropped.add(x)
            else:
                wanted = must & ~mine.known
                net.want(x, wanted if wanted.any() else must)
                if not wanted.any():
                    net.note_barrier(node, "only constants give this result its shape", int(must.sum()))
        net.notes[node] = dropped

    def _carried(self, net: Analysis, node: fx.Node, x: fx.Node, must: Tensor) -> bool:
        """Whether the other operand is a tensor of the output's shape, so that this one may be mere constants."""
        for other in node.args[:2]:
            if isinstance(other, fx.Node) and other is not x and other not in net.constants:
                state = net.state[other]
                computed_there = state is None or not state.known[must].all()
                if computed_there and [str(s) for s in net.shape(other)] == [str(s) for s in net.shape(node)]:
                    return True
        return False

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        net = new.net
        state = net.state[node]
        if state is None:
            return FullWidth().emit(new, node, must)
        ids = self._order(new, node, must.nonzero().flatten())
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
        return bool(known[ids].all() and (value[ids] == neutral).all())

    def _order(self, new: Rewrite, node: fx.Node, wanted: Tensor) -> Tensor:
        """The wanted channels, in the order in which an operand already holds just them, if one does."""
        for x in node.args[:2]:
            packed = new.packed.get(x) if isinstance(x, fx.Node) else None
            if packed is not None and packed.ids is not None and torch.equal(packed.ids.sort()[0], wanted):
                return packed.ids
        return wanted

    def _emitted(self, new: Rewrite, node: fx.Node, x: Any, dim: int, ids: Tensor) -> Any:
        if not isinstance(x, fx.Node):
            return x
        net = new.net
        if net.state[x] is not None:
            if x in net.notes[node]:
                rank = len(net.shape(node))
                return new.vector(net.state[x].value[ids], rank, dim)  # type: ignore[union-attr]
            return new.take(x, ids).node
        place = self._place(net, node, x, dim)
        if place is None:
            return new.full(x)
        if x in net.constants:
            return new.constant(x, (place, ids))
        return new.take(x, ids, dim=place).node


FULL_WIDTH = FullWidth()
_POINTWISE = (
    "relu relu6 leaky_relu gelu silu hardswish hardsigmoid hardtanh tanh sigmoid elu selu celu mish softplus "
    "log_sigmoid softsign exp neg abs sqrt rsqrt erf sin cos clamp clamp_min square reciprocal threshold"
)
RULES: dict[Any, Any] = {}
for _name in _POINTWISE.split():
    if hasattr(aten, _name):
        RULES[getattr(aten, _name).default] = Same(computed)
RULES[aten.pow.Tensor_Scalar] = Same(computed)
for _target in (aten.clone, aten.alias, aten.detach, aten._to_copy):
    RULES[_target.default] = Same()
for _n in "123":
    for _name in (f"max_pool{_n}d", f"adaptive_avg_pool{_n}d"):
        RULES[getattr(aten, _name).default] = Spatial()
    RULES[getattr(aten, f"avg_pool{_n}d").default] = Spatial(pooled)
    RULES[getattr(aten, f"conv{_n}d").default] = Layer()
    RULES[getattr(aten, f"conv{_n}d").padding] = Layer()
RULES |= {
    aten.linear.default: Layer(linear=True),
    aten.batch_norm.default: PerChannel((1, 2, 3, 4)),
    aten.prelu.default: PerChannel((1,)),
    aten.pad.default: Padding(padded),
    aten.softmax.int: Along(unknown),
    aten.roll.default: Rolled(),
    aten.flip.default: Rolled(),
    aten.embedding.default: Embedding(),
    aten.sym_size.int: Size(),
    aten.new_zeros.default: Size(),
    aten.new_ones.default: Size(),
    aten.new_full.default: Size(),
    aten.new_empty.default: Size(),
}
for _target in (aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor, aten.div.Tensor):
    RULES[_target] = Arithmetic()
