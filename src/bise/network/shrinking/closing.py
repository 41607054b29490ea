"""Closed gates brought forward into the layers before them: filters of zeros, so that a channel may stay as a zero."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from bise.network.shrinking.analysis import Analysis, readers
from bise.network.shrinking.capture import Captured
from bise.network.shrinking.channel_rules import Along, PerChannel, Same
from bise.network.shrinking.layer_rules import Layer, Product
from bise.network.shrinking.shape_rules import Moved, View
from bise.network.shrinking.sum_rules import Arithmetic

aten = torch.ops.aten


def closed_at_layers(net: Analysis) -> Captured:
    """The same network under the same masks, which closes units where they are made, if nothing else reads them: with
    zeros in the place of filters, biases, and factors and terms of BatchNorm.

    `net` has been through its forward pass; its graph and its tensors stay as they are.
    """
    closing = _Closing(net)
    for node in net.captured.graph.nodes:
        masks = [x for x in node.all_input_nodes if x in net.from_masks]
        state = net.state.get(node)
        if node.target is aten.mul.Tensor and len(masks) == 1 and len(node.all_input_nodes) == 2 and state is not None:
            closed = net.constants[masks[0]].flatten().cpu() == 0
            if closed.numel() == state.count and bool(state.known[closed].all()):
                (made,) = (x for x in node.all_input_nodes if x is not masks[0])
                closing.close(made, closed, masks[0])
    return replace(net.captured, tensors=closing.tensors, graph=closing.gated())


class _Closing:
    """Walks from a gate to what makes its units, and puts zeros there."""

    def __init__(self, net: Analysis) -> None:
        self.net = net
        self.tensors = dict(net.captured.tensors)
        self.gates: dict[fx.Node, dict[fx.Node, fx.Node]] = {}
        """{sum: {operand: the mask that it is to be multiplied with before}}."""

    def close(self, node: Any, closed: Tensor, mask: fx.Node) -> None:
        """Make these channels of a node zeros where that can be done; its only reader doesn't mind."""
        net = self.net
        state = net.state.get(node) if isinstance(node, fx.Node) else None
        if state is None or state.count != closed.numel() or not closed.any() or len(readers(node)) > 1:
            return
        rule, first = net.rule_of.get(node), node.args[0]
        if isinstance(rule, PerChannel) and node.target is aten.batch_norm.default:
            if self._zero(node, [(node.args[1], 0), (node.args[2], 0)], closed):
                self.close(first, closed, mask)
        elif isinstance(rule, Layer):
            self._zero(node, [(part, 0) for part in _weights(node)], closed)
        elif isinstance(rule, Product):
            _, weight, bias = rule._parts(node)
            self._zero(node, [(weight, 1), *([] if bias is None else [(bias, 0)])], closed)
        elif isinstance(rule, Arithmetic):
            self._sum(node, rule, closed, mask)
        elif isinstance(rule, View) and (before := net.state.get(first)) is not None:
            self.close(first, closed.view(before.count, -1).all(1), mask)
        elif isinstance(rule, Moved) or (isinstance(rule, Same) and not isinstance(rule, Along)):
            zero = torch.zeros(closed.numel(), dtype=torch.float64)
            if getattr(rule, "value", None) is None or bool((rule.value(node, zero) == 0).all()):  # type: ignore[union-attr,misc]
                self.close(first, closed, mask)

    def _sum(self, node: fx.Node, rule: Arithmetic, closed: Tensor, mask: fx.Node) -> None:
        """Both operands, but no divisor; one that others read too gets a gate of its own on the way to a sum."""
        state = self.net.state[node]
        assert state is not None
        operands: Any = node.args[: 1 if node.target is aten.div.Tensor else 2]
        for x in (x for x in operands if isinstance(x, fx.Node) and x not in self.net.constants):
            if rule.followed(self.net, node, x, state.dim) is None:
                continue
            shared = node.target is aten.add.Tensor and len(readers(x)) > 1
            if not shared:
                self.close(x, closed, mask)
            elif self.net.constants[mask].dim() == len(self.net.shape(x)) == len(self.net.shape(node)):
                self.gates.setdefault(node, {})[x] = mask

    def gated(self) -> fx.Graph:
        """A copy of the graph with these gates in it."""
        graph = fx.Graph()
        new: dict[fx.Node, Any] = {}
        # what follows from masks alone comes first: a sum stands before the gate behind it
        ready = lambda node: node.op != "placeholder" and (node not in self.net.from_masks) + 1  # noqa: E731
        for node in sorted(self.net.captured.graph.nodes, key=ready):
            if node.op == "output":
                graph.output(fx.map_arg(node.args[0], new.__getitem__))
                continue
            closed = {}
            for x, mask in self.gates.get(node, {}).items():
                closed[x] = graph.call_function(aten.mul.Tensor, (new[x], new[mask]))
                closed[x].meta = {**node.meta, "val": x.meta["val"]}
            new[node] = graph.node_copy(node, lambda n: closed.get(n, new[n]))  # noqa: B023
        return graph

    def _zero(self, node: fx.Node, parts: list[tuple[Any, int]], closed: Tensor) -> bool:
        """Put zeros into these entries of a layer's own parameters, if all of them are its own."""
        places = [(part, dim) for part, dim in parts if isinstance(part, fx.Node)]
        own = all(part.name in self.tensors and len(part.users) == 1 for part, _ in places)
        if not own or len(places) < len(parts) or not places:
            return False
        for part, dim in places:
            tensor = self.tensors[part.name].clone()
            tensor.index_fill_(dim, closed.nonzero().flatten().to(tensor.device), 0)
            self.tensors[part.name] = tensor
        return True


def _weights(layer: fx.Node) -> list[Any]:
    """The weight, and the bias if there is one."""
    bias = layer.args[2] if len(layer.args) > 2 else layer.kwargs.get("bias")
    return [layer.args[1], *([] if bias is None else [bias])]
