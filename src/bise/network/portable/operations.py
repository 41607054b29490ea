"""The operations that a network in a folder may consist of: those of ATen that compute, by name, and no others."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten

_BY_DEFAULT = (
    *("relu", "relu_", "relu6", "leaky_relu", "leaky_relu_", "gelu", "silu", "silu_", "hardswish", "hardswish_"),
    *("hardsigmoid", "hardtanh", "hardtanh_", "tanh", "sigmoid", "elu", "selu", "celu", "mish", "softplus", "prelu"),
    *("log_sigmoid", "exp", "log", "neg", "abs", "sqrt", "rsqrt", "erf", "sin", "cos", "square", "reciprocal"),
    *("threshold", "clamp", "clamp_min", "clamp_max", "floor", "ceil", "round", "sign", "isnan", "isinf"),
    *("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d"),
    *("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
    *("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "pixel_shuffle", "channel_shuffle"),
    *("conv1d", "conv2d", "conv3d", "linear", "addmm", "mm", "bmm", "baddbmm", "matmul", "embedding", "batch_norm"),
    *("addcmul", "addcmul_"),
    *("layer_norm", "group_norm", "instance_norm", "rms_norm", "scaled_dot_product_attention"),
    *("linalg_vector_norm", "amax", "amin", "mean", "sum", "cumsum", "bitwise_not", "logical_not", "logical_and"),
    *(
        "logical_or",
        "logical_xor",
        "maximum",
        "minimum",
        "index_select",
        "index_add",
        "gather",
        "where",
        "tril",
        "triu",
    ),
    *("constant_pad_nd", "pad", "slice_scatter", "select_scatter", "view", "_unsafe_view", "reshape", "expand"),
    *(
        "expand_as",
        "view_as",
        "reshape_as",
        "permute",
        "unsqueeze",
        "squeeze",
        "cat",
        "stack",
        "roll",
        "flip",
        "repeat",
    ),
    *("movedim", "contiguous", "clone", "alias", "detach", "_to_copy", "arange", "full", "zeros", "ones", "empty"),
    *("eye", "new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like", "full_like", "scalar_tensor"),
    *("lift_fresh_copy", "_assert_tensor_metadata", "dropout", "feature_dropout", "type_as", "chunk", "unfold"),
    *("softmax", "log_softmax", "_softmax", "unbind", "one_hot", "meshgrid", "outer", "dot", "t", "numel"),
)
_OVERLOADS = (
    *("add.Tensor", "add.Scalar", "add_.Tensor", "sub.Tensor", "sub.Scalar", "rsub.Scalar", "mul.Tensor", "mul.Scalar"),
    *("div.Tensor", "div.Scalar", "div.Tensor_mode", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar"),
    *("ge.Scalar", "gt.Scalar", "le.Scalar", "lt.Scalar", "eq.Scalar", "ne.Scalar", "ge.Tensor", "gt.Tensor"),
    *("le.Tensor", "lt.Tensor", "eq.Tensor", "ne.Tensor", "__and__.Tensor", "__or__.Tensor", "bitwise_and.Tensor"),
    *("bitwise_or.Tensor", "where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar", "masked_fill.Scalar"),
    *("masked_fill.Tensor", "fill.Scalar", "fill.Tensor", "index.Tensor", "softmax.int", "log_softmax.int"),
    *("mean.dim", "sum.dim_IntList", "any.dim", "all.dim", "argmax.default", "max.dim", "min.dim", "var.correction"),
    *("std.correction", "transpose.int", "squeeze.dim", "squeeze.dims", "select.int", "slice.Tensor", "split.Tensor"),
    *(
        "split_with_sizes.default",
        "unbind.int",
        "flatten.using_ints",
        "unflatten.int",
        "arange.start",
        "norm.ScalarOpt_dim",
    ),
    *("arange.start_step", "sym_size.int", "to.dtype", "to.device", "to.dtype_layout", "conv1d.padding"),
    *("conv2d.padding", "conv3d.padding", "upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_linear1d.vec"),
    *("upsample_bilinear2d.vec", "upsample_bicubic2d.vec", "upsample_trilinear3d.vec", "upsample_nearest3d.vec"),
    *("clamp.Tensor", "remainder.Scalar", "floor_divide.default", "repeat_interleave.self_int", "masked_fill_.Scalar"),
    *("index_put.default", "scatter.value", "scatter.src", "any.default", "all.default", "einsum.default"),
)


def _table() -> dict[str, Callable[..., Any]]:
    """{name: operation}; one that this torch lacks is left out."""
    found: dict[str, Callable[..., Any]] = {}
    for name in (*(f"{name}.default" for name in _BY_DEFAULT), *_OVERLOADS):
        packet, _, overload = name.partition(".")
        made = getattr(getattr(aten, packet, None), overload, None)
        if made is not None:
            found[f"aten.{name}"] = made
    counted = ("add", "sub", "mul", "floordiv", "mod", "neg", "eq", "ne", "lt", "le", "gt", "ge", "and_", "getitem")
    found |= {f"operator.{name}": getattr(operator, name) for name in counted}
    found |= {"torch._assert": torch._assert, "torch.sym_max": torch.sym_max, "torch.sym_min": torch.sym_min}
    return found


OPERATIONS = _table()
"""{name: what it computes}; each takes tensors, numbers and words, and reads and writes nothing else."""
NAMES = {operation: name for name, operation in OPERATIONS.items()}
