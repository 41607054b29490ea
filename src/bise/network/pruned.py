"""Models whose filters are zero, by torch.nn.utils.prune or by anybody: the same module, physically smaller."""

from __future__ import annotations

from typing import Any, Literal

from torch import nn
from torch.nn.utils import prune

from bise.network.subnetwork import Subnetwork
from bise.network.twin import twin


def shrink(
    model: nn.Module,
    example: Any,
    *,
    align: int | Literal["auto"] = 1,
    streams: Literal["narrow", "union", "auto"] | None = None,
    fold_batchnorm: bool = False,
    on_barrier: Literal["keep", "raise"] = "keep",
) -> nn.Module:
    """A plain module that computes what `model` does, without filters and inputs of layers whose weights are all zero.

    A subnetwork loses its closed units as well. What torch.nn.utils.prune masks is zero; the model stays as it is.
    """
    sub = model if isinstance(model, Subnetwork) else Subnetwork(permanent(model), ())
    return sub.shrink(example, align=align, streams=streams, fold_batchnorm=fold_batchnorm, on_barrier=on_barrier)


def permanent(model: nn.Module) -> nn.Module:
    """A twin whose pruned weights are zeros in the parameters themselves, where prune computes them in each forward."""
    copied = twin(model)
    for module in copied.modules():
        hooks = list(module._forward_pre_hooks.values())
        for name in [hook._tensor_name for hook in hooks if isinstance(hook, prune.BasePruningMethod)]:
            prune.remove(module, name)
    return copied
