"""A gate on one operand of a sum: scaled while it is added, in one operation."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

aten = torch.ops.aten


def close_in_sums(graph: fx.Graph) -> None:
    """a + b · mask as addcmul(a, b, mask)."""
    for node in list(graph.nodes):
        if node.target is not aten.add.Tensor or node.kwargs:
            continue
        for a, b in (node.args, node.args[::-1]):
            if isinstance(a, fx.Node) and _is_gated(b):
                with graph.inserting_before(node):
                    summed = graph.call_function(aten.addcmul.default, (a, *b.args))
                summed.meta = dict(node.meta)
                node.replace_all_uses_with(summed)
                break
    graph.eliminate_dead_code()


def _is_gated(node: Any) -> bool:
    """Whether it is a product with a mask that nobody else reads."""
    if not isinstance(node, fx.Node) or node.target is not aten.mul.Tensor or len(node.users) > 1:
        return False
    mask: Any = node.args[1]
    return isinstance(mask, fx.Node) and mask.op == "get_attr" and str(mask.target).startswith("constant_")
