"""Operations that keep each channel to itself: activations, pooling, padding, norms. And the rule of all others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from bise.network.shrinking.analysis import (
    Analysis,
    Channels,
    KeepFull,
    Packed,
    known_channels,
)
from bise.network.shrinking.rewrite import Rewrite

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
            net.note_barrier(node, net.reasons.get(node, "there is no rule for this operation"), closed)

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
        return known_channels(state.known, value, state.dim)

    def stream(self, net: Analysis, node: fx.Node) -> list[fx.Node]:
        return net.goes_on(node)

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
    return node.target(value, *node.args[1:], **node.kwargs)  # type: ignore[operator]


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
    divided = len(node.args) > 6 and node.args[6] is not None
    return torch.where(value == 0, value, torch.nan) if (padded and counted) or divided else value


def cast(node: fx.Node, value: Tensor) -> Tensor:
    """Whole numbers and flags are other constants than what they were made of."""
    kind: Any = node.kwargs.get("dtype")
    return value if kind is None or kind.is_floating_point else torch.full_like(value, torch.nan)


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
        known, value = state.known, node.target(*args)[0]  # type: ignore[operator]
        if node.target is aten.batch_norm.default and isinstance(args[1], Tensor):
            gone = args[1] == 0  # a factor that was pruned leaves the term
            known = known | gone
            value = torch.where(gone, 0.0 if args[2] is None else args[2], value)
        return known_channels(known, value, 1)

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


FULL_WIDTH = FullWidth()
