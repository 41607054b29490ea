"""BatchNorm folded into the convolution or linear layer before it, for deployment."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

aten = torch.ops.aten
_LAYERS = (aten.conv1d.default, aten.conv2d.default, aten.conv3d.default, aten.linear.default)


def fold(module: fx.GraphModule) -> set[str]:
    """Fold in place every BatchNorm whose input is a layer that nobody else reads; names of the new buffers."""
    made: set[str] = set()
    for node in list(module.graph.nodes):
        if node.op != "call_function" or node.target is not aten.batch_norm.default:
            continue
        layer: Any = node.args[0]
        if layer.op != "call_function" or layer.target not in _LAYERS or len(layer.users) > 1 or _by_token(layer):
            continue
        if all(_is_stored(value) for value in (*layer.args[1:3], *node.args[1:5])):
            made |= _fold_one(module, layer, node)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    module.recompile()
    _drop_unused(module)
    return made


def _is_stored(value: Any) -> bool:
    """Whether it is a tensor of the module, or none; under weight_norm and the like a weight is computed."""
    return value is None or (isinstance(value, fx.Node) and value.op == "get_attr")


def _by_token(layer: fx.Node) -> bool:
    """Whether a linear layer's outputs are [samples, tokens, channels]: BatchNorm behind it is over the tokens."""
    made = layer.meta.get("was")
    return layer.target is aten.linear.default and made is not None and made.dim() > 2


def _fold_one(module: fx.GraphModule, layer: fx.Node, norm: fx.Node) -> set[str]:
    """(W · s, (b − μ) · s + β) with s = γ / √(σ² + ε), in float64."""
    args: list[Any] = list(layer.args) + [None] * (3 - len(layer.args))
    weight, bias = _value(module, args[1]), _value(module, args[2])
    gamma, beta, mean, variance = (_value(module, a) for a in norm.args[1:5])
    assert weight is not None
    assert mean is not None
    assert variance is not None
    epsilon: Any = norm.args[7]
    scale = (variance + epsilon).rsqrt() * (1.0 if gamma is None else gamma)
    shift = (-mean if bias is None else bias - mean) * scale + (0.0 if beta is None else beta)
    names = {f"folded_weight_{norm.name}": weight * _tall(scale, weight), f"bias_{norm.name}": shift}
    with module.graph.inserting_before(layer):
        for place, (name, tensor) in enumerate(names.items(), start=1):
            module.register_buffer(name, tensor)
            args[place] = module.graph.get_attr(name)
    layer.args = tuple(args)
    norm.replace_all_uses_with(layer)
    module.graph.erase_node(norm)
    return set(names)


def _tall(scale: Tensor, weight: Tensor) -> Tensor:
    return scale.view(-1, *[1] * (weight.dim() - 1))


def _value(module: fx.GraphModule, node: Any) -> Tensor | None:
    if node is None:
        return None
    path, _, leaf = str(node.target).rpartition(".")
    return getattr(module.get_submodule(path), leaf).detach().double()


def _drop_unused(module: fx.GraphModule) -> None:
    used = {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}
    for path, child in module.named_modules():
        for store in (child._parameters, child._buffers):
            for key in list(store):
                if (f"{path}.{key}" if path else key) not in used:
                    del store[key]
    module.delete_all_unused_submodules()
