"""Layers with weights: convolution, linear, embedding."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from bise.network.shrinking.analysis import Analysis, Channels, KeepFull, Packed, known_channels, live
from bise.network.shrinking.rewrite import Rewrite

aten = torch.ops.aten


class Layer:
    """Convolution and linear layers: weight [outputs, inputs of a group, …]."""

    def __init__(self, linear: bool = False) -> None:
        self.linear = linear

    def _parts(self, net: Analysis, node: fx.Node) -> tuple[Any, Tensor, Any, int, bool]:
        """Input node, weight, bias node, groups, and whether zeros are padded."""
        args: list[Any] = list(node.args)
        padding = args[4] if len(args) > 4 else node.kwargs.get("padding", 0)
        groups: Any = args[6] if len(args) > 6 else node.kwargs.get("groups", 1)
        bias: Any = args[2] if len(args) > 2 else node.kwargs.get("bias")
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
        known, value = empty_rows(weight), torch.zeros(outputs, dtype=torch.float64)
        if state is not None and state.known.any():
            width, each = weight.shape[1], outputs // groups
            known_in = state.known & ((state.value == 0) | (not pads))
            constant = known_in.view(groups, width).all(1).repeat_interleave(each)
            known |= constant
            if constant.any():
                value = torch.where(constant, self._sums(weight, state.value, groups), value)
        if not known.any():
            return live(outputs, dim)
        if bias is not None:
            value = value + net.constants[bias].to("cpu", torch.float64)
        return known_channels(known, value, dim)

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
            border = "a constant under zero padding is none at the border"
            reason = border if weight.shape[1] == 1 else f"groups={groups} need equal widths"
            net.note_barrier(node, reason, int((state.known & wanted).sum()))
        else:
            rows = weight if must.all() else weight.index_select(0, must.nonzero().flatten().to(weight.device))
            net.want_live(x, None if state is None else ~empty_rows(rows.transpose(0, 1)), adapts=True)

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
            packed = new.whole(x)
            ids = torch.arange(weight.shape[1]) if packed.ids is None else packed.ids
            filters = new.constant(node.args[1], (0, outputs), (1, ids))  # type: ignore[arg-type]
            offset = gone_constants(net, x, ids)
        old_bias = None if bias is None else new.constant(bias, (0, outputs))
        if offset is None:
            return Packed(node=new.call(node.target, packed.node, filters, old_bias, *rest), dim=state.dim, ids=outputs)
        if not pads:
            total = self._sums(weight, offset, 1)[outputs]
            total = total if bias is None else total + net.constants[bias].to("cpu", torch.float64)[outputs]
            new_bias = new.buffer(total, "bias", derived=True)
            return Packed(node=new.call(node.target, packed.node, filters, new_bias, *rest), dim=state.dim, ids=outputs)
        plain = new.call(node.target, packed.node, filters, old_bias, *rest)
        border = self._with_border(new, node, packed.node, weight, offset, outputs, rest)
        return Packed(node=new.call(aten.add.Tensor, plain, border), dim=state.dim, ids=outputs)

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


def empty_rows(weight: Tensor) -> Tensor:
    """Which rows hold nothing but zeros: filters that were pruned, or columns that nobody reads [rows]."""
    first = weight
    while first.dim() > 1:  # mostly the first entry of each is enough to tell
        first = first.select(1, 0)
    empty = first == 0
    if empty.any():
        maybe = empty.nonzero().flatten()
        empty[maybe] = (weight[maybe] == 0).flatten(1).all(1)
    return empty.cpu()


def gone_constants(net: Analysis, x: fx.Node, ids: Tensor) -> Tensor | None:
    """The constants of the channels of `x` that are gone, all but `ids`; None where they are zero."""
    state = net.state[x]
    if state is None:
        return None
    gone = state.known.clone()
    gone[ids] = False
    offset = torch.where(gone, state.value, 0.0)
    return offset if bool((offset != 0).any()) else None


def _by_group(must: Tensor, state: Channels | None, weight: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """(inputs [groups left, equal number], outputs [groups left, equal number]) of a grouped convolution.

    Groups that nobody reads go; the others keep as many inputs and outputs as the one that needs most.
    """
    width, each = weight.shape[1], weight.shape[0] // groups
    wanted = must.view(groups, each)
    left = wanted.any(1)
    if state is None:  # an input that can't be narrowed: all groups stay
        left, needed = torch.ones_like(left), torch.ones(groups, width, dtype=torch.bool)
    else:
        needed = (~state.known | (state.value != 0)).view(groups, width)
    inputs = _equal(needed[left]) + left.nonzero() * width
    outputs = _equal(wanted[left]) + left.nonzero() * each
    return inputs, outputs


def _equal(needed: Tensor) -> Tensor:
    """Positions of what is needed, row by row, filled up to the longest row with others, in ascending order."""
    count = max(1, int(needed.sum(1).max()))
    order = needed.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :count]
    return order.sort(1)[0]


class Product:
    """x · weight with weight [inputs, outputs], and a bias where it is addmm: layers of GPT-2, and ones written out."""

    def _parts(self, node: fx.Node) -> tuple[Any, Any, Any]:
        """Input, weight and bias nodes."""
        args: list[Any] = list(node.args)
        return (args[1], args[2], args[0]) if node.target is aten.addmm.default else (args[0], args[1], None)

    def channels(self, net: Analysis, node: fx.Node) -> Channels | None:
        x, weight, bias = self._parts(node)
        kernel = net.parameter(weight, node)
        dim = len(net.shape(x)) - 1
        if kernel.dim() != 2 or dim < 1 or node.kwargs:
            raise KeepFull("it is no product of rows by a matrix")
        if bias is not None and net.parameter(bias, node).shape != kernel.shape[1:]:
            raise KeepFull("it doesn't add one number to each channel")
        state = net.state[x]
        if state is not None and state.dim != dim:
            raise KeepFull("its input's channels are in another dimension")
        if state is None or not state.known.all():
            return live(kernel.shape[1], dim)
        return known_channels(torch.ones(kernel.shape[1], dtype=torch.bool), self._sums(net, node, state.value), dim)

    def _sums(self, net: Analysis, node: fx.Node, value: Tensor) -> Tensor:
        """What inputs that are `value` come to, for each output, the bias with it."""
        _, weight, bias = self._parts(node)
        total = value @ net.constants[weight].to("cpu", torch.float64)
        return total if bias is None else total + net.constants[bias].to("cpu", torch.float64)

    def demand(self, net: Analysis, node: fx.Node, must: Tensor) -> None:
        net.want_live(self._parts(node)[0], adapts=True)

    def emit(self, new: Rewrite, node: fx.Node, must: Tensor) -> Packed:
        x, weight, bias = self._parts(node)
        packed, outputs = new.whole(x), must.nonzero().flatten()
        ids = torch.arange(new.net.constants[weight].shape[0]) if packed.ids is None else packed.ids
        kernel = new.constant(weight, (0, ids), (1, outputs))
        dim = len(new.net.shape(x)) - 1
        offset = gone_constants(new.net, x, ids)
        if offset is not None:
            added: Any = new.buffer(self._sums(new.net, node, offset)[outputs], "bias", derived=True)
        else:
            added = None if bias is None else new.constant(bias, (0, outputs))
        if added is None:
            out = new.call(node.target, packed.node, kernel)
        elif dim == 1:
            out = new.call(aten.addmm.default, added, packed.node, kernel)
        else:
            out = new.call(aten.add.Tensor, new.call(aten.matmul.default, packed.node, kernel), added)
        return Packed(node=out, dim=dim, ids=outputs)


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
