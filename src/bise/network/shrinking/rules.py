"""The table: one rule per ATen operation. What is not in it keeps its full width, and the report names it."""

from __future__ import annotations

import operator
from typing import Any

import torch

from bise.network.shrinking.analysis import Rule
from bise.network.shrinking.attention_forms import apart
from bise.network.shrinking.attention_rules import Apart, Attention, Products
from bise.network.shrinking.channel_rules import (
    Along,
    Padding,
    PerChannel,
    Rolled,
    Same,
    Size,
    Spatial,
    cast,
    computed,
    padded,
    pooled,
    unknown,
)
from bise.network.shrinking.layer_rules import Embedding, Layer, Product
from bise.network.shrinking.normal_forms import shuffled
from bise.network.shrinking.shape_rules import (
    Concatenate,
    Cut,
    Expand,
    First,
    Item,
    Permute,
    Reduce,
    Select,
    Shuffle,
    Squeeze,
    Total,
    Transpose,
    Unsqueeze,
    View,
)
from bise.network.shrinking.sum_rules import Arithmetic

aten = torch.ops.aten

_POINTWISE = (
    *("relu", "relu6", "leaky_relu", "gelu", "silu", "hardswish", "hardsigmoid", "hardtanh", "tanh", "sigmoid", "elu"),
    *("selu", "celu", "mish", "softplus", "log_sigmoid", "exp", "neg", "abs", "sqrt", "rsqrt", "erf", "sin", "cos"),
    *("clamp", "clamp_min", "square", "reciprocal", "threshold"),
)


def _table() -> dict[Any, Rule]:
    rules: dict[Any, Rule] = {getattr(aten, name).default: Same(computed) for name in _POINTWISE}
    for n in "123":
        rules[getattr(aten, f"max_pool{n}d").default] = Spatial()
        rules[getattr(aten, f"adaptive_avg_pool{n}d").default] = Spatial()
        rules[getattr(aten, f"adaptive_max_pool{n}d").default] = First()
        rules[getattr(aten, f"avg_pool{n}d").default] = Spatial(pooled)
        rules[getattr(aten, f"conv{n}d").default] = Layer()
        rules[getattr(aten, f"conv{n}d").padding] = Layer()
    for name in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "trilinear3d", "bicubic2d"):
        rules[getattr(aten, f"upsample_{name}").vec] = Spatial()
    rules |= {target: Arithmetic() for target in (aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor, aten.div.Tensor)}
    rules |= {target.default: Same() for target in (aten.clone, aten.alias, aten.detach)}
    rules[aten._to_copy.default] = Same(cast)
    rules |= {target.default: Size() for target in (aten.new_zeros, aten.new_ones, aten.new_full, aten.new_empty)}
    return rules


RULES: dict[Any, Rule] = _table() | {
    aten.linear.default: Layer(linear=True),
    aten.addmm.default: Product(),
    aten.mm.default: Product(),
    aten.matmul.default: Products(),
    aten.scaled_dot_product_attention.default: Attention(),
    apart: Apart(),
    aten.embedding.default: Embedding(),
    aten.batch_norm.default: PerChannel((1, 2, 3, 4)),
    aten.prelu.default: PerChannel((1,)),
    aten.pow.Tensor_Scalar: Same(computed),
    aten.pad.default: Padding(padded),
    aten.softmax.int: Along(unknown),
    aten.roll.default: Rolled(),
    aten.flip.default: Rolled(),
    aten.sym_size.int: Size(),
    aten.permute.default: Permute(),
    aten.transpose.int: Transpose(),
    aten.unsqueeze.default: Unsqueeze(),
    aten.squeeze.dim: Squeeze(),
    aten.squeeze.dims: Squeeze(),
    aten.select.int: Select(),
    aten.mean.dim: Reduce(),
    aten.sum.dim_IntList: Total(),
    aten.linalg_vector_norm.default: Total(place=2),
    aten.amax.default: Reduce(),
    aten.amin.default: Reduce(),
    aten.expand.default: Expand(),
    aten.view.default: View(),
    aten._unsafe_view.default: View(),
    aten.slice.Tensor: Cut(),
    shuffled: Shuffle(),
    aten.cat.default: Concatenate(),
    operator.getitem: Item(),
}
