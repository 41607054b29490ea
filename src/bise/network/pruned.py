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
    """A plain module that computes what `model` does, without the filters and inputs of layers whose weights are zero.

    A subnetwork loses its closed units as well. What torch.nn.utils.prune masks is zero; your model isn't changed.

    Args:
        model: Any module, or a subnetwork.
        example: A batch of at least two samples, [n, …] or a dict of such tensors.
        align: Fill widths up to multiples of this with filters of zeros; "auto" times some and keeps the fastest.
        streams: Make each segment of a residual stream as "narrow" as can be, or leave all of them the "union" of what
            any of them needs, so that sums need no index; "auto" times both. None is "narrow", or what align="auto"
            finds.
        fold_batchnorm: Compute BatchNorm within the layer before it.
        on_barrier: "keep" leaves zeros in place that can't be taken out, and lists where; "raise" makes this an error.

    Returns:
        The smaller module, compared with `model` in float64; `.shrink_report` says how that went.

    Raises:
        BadInput: An option is unknown, the model can't run on the example, or a barrier is met that is to be an error.

    Example:
        >>> from torch.nn.utils import prune
        >>> net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
        >>> _ = prune.ln_structured(net[0], "weight", amount=4, n=2, dim=0)
        >>> bise.shrink(net, torch.randn(4, 8)).get_parameter("0.weight").shape
        torch.Size([2, 8])
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
