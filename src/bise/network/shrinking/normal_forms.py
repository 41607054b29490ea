"""A captured graph put into a few normal forms, so that each rule of shrinking knows one way to write an operation."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

aten = torch.ops.aten

_CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range", "_assert_async")
_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


def normalise(graph: fx.Graph) -> None:
    """Checks dropped, BatchNorm as one node, splits as slices, channel shuffles as one permutation, products with a
    transposed matrix as linear layers, addcmul as a product and a sum, stacks as concatenations."""
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if any(check in str(node.target) for check in _CHECKS) and not node.users:
            graph.erase_node(node)
    for form in (_batch_norm, _split, _shuffle, _linear, _addcmul, _stack):
        for node in list(graph.nodes):
            if node.op == "call_function" and node.graph is graph and not node._erased:
                form(graph, node)
    graph.eliminate_dead_code()
    graph.lint()


def replaced(graph: fx.Graph, old: fx.Node, target: Callable[..., Any], args: tuple[Any, ...]) -> fx.Node:
    """Another node in the place of one that gives the same."""
    with graph.inserting_before(old):
        new = graph.call_function(target, args)
    new.meta = dict(old.meta)
    old.replace_all_uses_with(new)
    graph.erase_node(old)
    return new


def _batch_norm(graph: fx.Graph, node: fx.Node) -> None:
    if node.target is not aten._native_batch_norm_legit_no_training.default:
        return
    x, weight, bias, mean, variance, momentum, epsilon = node.args
    for user in list(node.users):
        if user.target is operator.getitem and user.args[1] == 0:
            args = (x, weight, bias, mean, variance, False, momentum, epsilon, False)
            user.meta = {**node.meta, "val": user.meta["val"]}
            replaced(graph, user, aten.batch_norm.default, args)


_SPLITS = (aten.split.Tensor, aten.split_with_sizes.default, aten.chunk.default, aten.unbind.int)


def _split(graph: fx.Graph, node: fx.Node) -> None:
    if node.target not in _SPLITS or any(user.target is not operator.getitem for user in node.users):
        return
    x: Any = node.args[0]
    rank = x.meta["val"].dim()
    position = 1 if node.target is aten.unbind.int else 2
    dim = int(node.args[position] if len(node.args) > position else node.kwargs.get("dim", 0)) % rank  # type: ignore[arg-type]
    if node.target is aten.unbind.int:
        for user in list(node.users):
            replaced(graph, user, aten.select.int, (x, dim, user.args[1]))
        return
    widths = [part.shape[dim] for part in node.meta["val"]]
    if not all(isinstance(width, int) for width in widths):
        return
    for user in list(node.users):
        which: Any = user.args[1]
        start = sum(widths[:which])
        replaced(graph, user, aten.slice.Tensor, (x, dim, start, start + widths[which]))


def shuffled(x: Tensor, dim: int, order: tuple[int, ...]) -> Tensor:
    """Channels in another order: what view, transpose and view back come to in a channel shuffle."""
    return x.index_select(dim, torch.tensor(order, device=x.device))


def _shuffle(graph: fx.Graph, node: fx.Node) -> None:
    """view [N, g, C/g, …] -> transpose -> (clone) -> view [N, C, …] becomes one permutation of C."""
    if node.target not in _VIEWS or len(node.users) != 1:
        return
    (swap,) = node.users
    if swap.target is not aten.transpose.int or len(swap.users) != 1 or sorted(swap.args[1:]) != [1, 2]:  # type: ignore[type-var]
        return
    (last,) = swap.users
    if last.target is aten.clone.default and len(last.users) == 1:
        (last,) = last.users
    if last.target not in _VIEWS:
        return
    x: Any = node.args[0]
    before, split, after = (n.meta["val"].shape for n in (x, node, last))
    if len(before) != len(after) or len(split) != len(before) + 1 or len(before) < 2:
        return
    if not all(same(a, b) for a, b in zip(before, after, strict=True)):
        return
    if not all(isinstance(n, int) for n in (before[1], *split[1:3])) or split[1] * split[2] != before[1]:
        return
    order = torch.arange(before[1]).view(split[1], split[2]).t().reshape(-1).tolist()
    replaced(graph, last, shuffled, (x, 1, tuple(order)))


def _linear(graph: fx.Graph, node: fx.Node) -> None:
    """x · wᵀ (+ b) becomes linear(x, w, b): the rules look for a layer's own weight; a transposed one is computed."""
    if node.target not in (aten.matmul.default, aten.mm.default, aten.addmm.default) or node.kwargs:
        return
    args: list[Any] = list(node.args)
    bias = args.pop(0) if node.target is aten.addmm.default else None
    x, turned = args
    weight = _untransposed(turned)
    if weight is None or x.meta["val"].dim() < 2:
        return
    if bias is None:
        replaced(graph, node, aten.linear.default, (x, weight))
    elif bias.meta["val"].shape == weight.meta["val"].shape[:1]:
        replaced(graph, node, aten.linear.default, (x, weight, bias))


def _untransposed(node: fx.Node) -> Any:
    """The matrix that this is the transpose of, where that one is not computed itself; else None."""
    places: Any = None
    if node.target is aten.t.default:
        places = (1, 0)
    elif node.target is aten.permute.default:
        places = node.args[1]
    elif node.target is aten.transpose.int and node.args[1] != node.args[2]:
        places = sorted((int(d) % 2 for d in node.args[1:3]), reverse=True)  # type: ignore[arg-type]
    if places is None or [d % 2 for d in places] != [1, 0]:
        return None
    matrix: Any = node.args[0]
    return matrix if matrix.op == "placeholder" and matrix.meta["val"].dim() == 2 else None


def _addcmul(graph: fx.Graph, node: fx.Node) -> None:
    if node.target is not aten.addcmul.default:
        return
    x, product, *others = [*node.args, *node.kwargs.values()]
    for other in others:  # the second tensor, and a number where the product is scaled
        with graph.inserting_before(node):
            made = graph.call_function(aten.mul.Tensor, (product, other))
        val = aten.mul.Tensor(*fx.map_arg(made.args, lambda n: n.meta["val"]))
        made.meta, product = {**node.meta, "val": val}, made
    replaced(graph, node, aten.add.Tensor, (x, product))


def _stack(graph: fx.Graph, node: fx.Node) -> None:
    if node.target is not aten.stack.default:
        return
    parts: Any = node.args[0]
    dim: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    dim %= node.meta["val"].dim()
    spread = []
    for part in parts:
        with graph.inserting_before(node):
            made = graph.call_function(aten.unsqueeze.default, (part, dim))
        made.meta = {**node.meta, "val": aten.unsqueeze.default(part.meta["val"], dim)}
        spread.append(made)
    replaced(graph, node, aten.cat.default, (spread, dim))


def same(a: Any, b: Any) -> bool:
    """Whether two sizes are one, without adding a guard where they are symbols."""
    return bool(expression(a) == expression(b))


def expression(size: Any) -> Any:
    return size if isinstance(size, int) else size.node.expr
