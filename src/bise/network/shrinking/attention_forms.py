"""Attention in a captured graph in normal forms, so that rules can follow heads from outputs to weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from math import prod
from typing import Any

import torch
from torch import Tensor, fx

from bise.network.shrinking.normal_forms import expression, replaced, same

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
_ATTENTION = aten.scaled_dot_product_attention.default
_MATMULS = (aten.matmul.default,)


def apart(x: Tensor, sizes: list[Any], dim: int) -> Tensor:
    """A view that cuts channels apart; those of them that go together, such as a head's, lie along `dim`."""
    return x.reshape(sizes)


def attention_forms(graph: fx.Graph, masks: Collection[str]) -> None:
    """Gated weights as gated inputs, empty parts of concatenations dropped, heads apart from the batch, and views that
    cut channels into heads marked; `masks` are the placeholders of gates."""
    for form in (_gated_weight, _empty_parts, _heads_beside_batch):
        for node in list(graph.nodes):
            if node.op == "call_function" and not node._erased:
                form(graph, node, masks)
    _mark(graph)
    graph.eliminate_dead_code()
    graph.lint()


def _gated_weight(graph: fx.Graph, node: fx.Node, masks: Collection[str]) -> None:
    """linear(x, w · g) with a gate's g along the inputs becomes linear(x · g, w)."""
    if node.target is not aten.linear.default:
        return
    x, weight, *bias = node.args
    if not isinstance(weight, fx.Node) or weight.target is not aten.mul.Tensor or len(weight.users) > 1:
        return
    own, gate = weight.args
    if not isinstance(gate, fx.Node) or not isinstance(own, fx.Node) or own.op != "placeholder":
        return
    if not _from_masks(gate, masks) or list(gate.meta["val"].shape) != [1, own.meta["val"].shape[1]]:
        return
    with graph.inserting_before(node):
        gated = graph.call_function(aten.mul.Tensor, (x, gate))
    gated.meta = {**weight.meta, "val": aten.mul.Tensor(x.meta["val"], gate.meta["val"])}  # type: ignore[union-attr]
    node.args = (gated, own, *bias)


def _from_masks(node: fx.Node, masks: Collection[str]) -> bool:
    """Whether a tensor is computed from gates alone."""
    if node.op == "placeholder":
        return node.name in masks
    return bool(node.all_input_nodes) and all(_from_masks(source, masks) for source in node.all_input_nodes)


def _empty_parts(graph: fx.Graph, node: fx.Node, _: Collection[str]) -> None:
    """A cache of keys that holds nothing yet is [0], which torch concatenates with anything."""
    if node.target is not aten.cat.default:
        return
    parts: Any = node.args[0]
    left = [part for part in parts if list(part.meta["val"].shape) != [0]]
    if not left or len(left) == len(parts):
        return
    if len(left) == 1:
        node.replace_all_uses_with(left[0])
        graph.erase_node(node)
    else:
        node.args = (left, *node.args[1:])


def _heads_beside_batch(graph: fx.Graph, node: fx.Node, _: Collection[str]) -> None:
    """[L, N, H·d] → [L, N·H, d] → [N·H, L, d] → [N, H, L, d], as torch's own attention has it, becomes a view and a
    permutation."""
    if node.target not in _VIEWS or len(node.users) != 1:
        return
    (swap,) = node.users
    if swap.target is not aten.transpose.int or sorted(swap.args[1:]) != [0, 1] or len(swap.users) != 1:  # type: ignore[type-var]
        return
    (last,) = swap.users
    x: Any = node.args[0]
    if last.target not in _VIEWS:
        return
    before, middle, after = (n.meta["val"].shape for n in (x, node, last))
    sizes: Any = last.args[1]
    if (len(before), len(middle), len(after)) != (3, 3, 4) or -1 in sizes:
        return
    batch, heads, length, each = after
    pairs = ((before[0], length), (before[1], batch), (before[2], heads * each), (middle[0], length))
    if not all(same(a, b) for a, b in pairs) or not same(middle[2], each):
        return
    order = (1, 2, 0, 3)
    with graph.inserting_before(last):
        split = graph.call_function(aten.view.default, (x, [sizes[2], sizes[0], sizes[1], sizes[3]]))
    val = x.meta["val"].reshape(length, batch, heads, each)
    split.meta = {**last.meta, "val": val}
    replaced(graph, last, aten.permute.default, (split, list(order)))


def _mark(graph: fx.Graph) -> None:
    """Every view that cuts channels apart on the way to attention says which of its dimensions holds the heads."""
    seen: set[tuple[fx.Node, int]] = set()
    for node in list(graph.nodes):
        if node.op == "call_function":
            for source in _factors(node):
                _mark_before(graph, source, source.meta["val"].dim() - 3, seen)


def _factors(node: fx.Node) -> Iterator[fx.Node]:
    """What attention multiplies head by head: tensors with their heads in the third dimension from the end."""
    if node.target is _ATTENTION:
        found = node.args[:3]
    elif node.target in _MATMULS and len(node.args) == 2:
        found = node.args
    else:
        return
    ranks = [x.meta["val"].dim() if isinstance(x, fx.Node) else 0 for x in found]
    if min(ranks) > 3:
        yield from found  # type: ignore[misc]


def _mark_before(graph: fx.Graph, node: fx.Node, dim: int, seen: set[tuple[fx.Node, int]]) -> None:
    """Follow a dimension of heads backwards, and mark the views that make it."""
    if (node, dim) in seen or node.op != "call_function":
        return
    seen.add((node, dim))
    if node.target in (*_VIEWS, apart):
        source: Any = node.args[0]
        before, after = source.meta["val"].shape, node.meta["val"].shape
        place = _origin(before, after, dim)
        if place is None:
            return
        if _is_cut(before[place], after[dim]):
            node = replaced(graph, node, apart, (source, node.args[1], dim))
            seen.add((node, dim))
        _mark_before(graph, source, place, seen)
        return
    for source, place in _BEFORE.get(node.target, _aligned)(node, dim):
        if 0 <= place < source.meta["val"].dim():
            _mark_before(graph, source, place, seen)


def _origin(before: Any, after: Any, dim: int) -> int | None:
    """The dimension of a view's input that its output's `dim` comes from, as a whole, a part, or with others behind."""
    for place in range(len(before)):
        lead = product(before[:place])
        if not isinstance(before[place], int):
            continue
        for first in range(dim + 1):
            if product(after[:first]) == lead and all(isinstance(n, int) for n in after[first : dim + 1]):
                inner = prod(after[first : dim + 1])
                if before[place] % inner == 0 or (first == dim and inner % before[place] == 0 and before[place] > 1):
                    return place
    return None


def _is_cut(whole: Any, part: Any) -> bool:
    return isinstance(whole, int) and isinstance(part, int) and whole > part


def product(sizes: Any) -> Any:
    """What sizes come to, where some are symbols too."""
    total: Any = 1
    for size in sizes:
        total = total * expression(size)
    return total


Places = Iterator[tuple[fx.Node, int]]


def _aligned(node: fx.Node, dim: int) -> Places:
    """Operations element by element, and all others whose outputs lie as their inputs do."""
    rank = node.meta["val"].dim() if isinstance(node.meta.get("val"), Tensor) else 0
    shape = node.meta["val"].shape if rank else ()
    for source in node.all_input_nodes:
        value = source.meta.get("val")
        if not isinstance(value, Tensor):
            continue
        place = dim - (rank - value.dim())
        if 0 <= place < value.dim() and same(value.shape[place], shape[dim]):
            yield source, place


def _first(node: fx.Node) -> tuple[fx.Node, int]:
    source: Any = node.args[0]
    return source, source.meta["val"].dim()


def _transposed(node: fx.Node, dim: int) -> Places:
    source, rank = _first(node)
    a, b = (int(d) % rank for d in node.args[1:3])  # type: ignore[arg-type]
    yield source, b if dim == a else a if dim == b else dim


def _permuted(node: fx.Node, dim: int) -> Places:
    source, rank = _first(node)
    yield source, int(node.args[1][dim]) % rank  # type: ignore[index,arg-type]


def _unsqueezed(node: fx.Node, dim: int) -> Places:
    source, rank = _first(node)
    made = int(node.args[1]) % (rank + 1)  # type: ignore[arg-type]
    if made != dim:
        yield source, dim - (made < dim)


def _squeezed(node: fx.Node, dim: int) -> Places:
    source, rank = _first(node)
    named: Any = node.args[1]
    gone = sorted(d % rank for d in (named if isinstance(named, (list, tuple)) else [named]))
    for one in gone:
        dim += one <= dim
    yield source, dim


def _selected(node: fx.Node, dim: int) -> Places:
    source, rank = _first(node)
    yield source, dim + (int(node.args[1]) % rank <= dim)  # type: ignore[arg-type]


def _nowhere(node: fx.Node, dim: int) -> Places:
    yield from ()


_BEFORE: dict[Any, Callable[[fx.Node, int], Places]] = {
    aten.transpose.int: _transposed,
    aten.permute.default: _permuted,
    aten.unsqueeze.default: _unsqueezed,
    aten.squeeze.dim: _squeezed,
    aten.squeeze.dims: _squeezed,
    aten.select.int: _selected,
    aten.linear.default: _nowhere,
    aten.addmm.default: _nowhere,
    aten.mm.default: _nowhere,
    aten.matmul.default: _nowhere,
    aten.embedding.default: _nowhere,
    _ATTENTION: _nowhere,
}
"""Which dimension of which input an output's dimension is."""
