"""The last linear layer: whether it can be fitted anew by itself, and how new values come into it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bise.base.errors import BadInput
from bise.network.placement import Placement, one_bottleneck
from bise.network.subnetwork import Subnetwork
from bise.network.trace import Trace
from bise.network.twin import named_tensors

CLOSE = 1e-3
"""How far, relative to the largest logit, W z + c in float64 may be from what the network computes."""


@dataclass(frozen=True, kw_only=True)
class LastLayer:
    """A module that computes the logits as W z + c, and nothing else."""

    name: str
    tensors: tuple[str, ...]
    """The names of W and, where there is one, c."""
    outputs: int

    @property
    def bias(self) -> bool:
        return len(self.tensors) > 1

    def values(self, sub: Subnetwork) -> tuple[Tensor, ...]:
        """W [outputs, d] and, where there is one, c [outputs] of a network."""
        everything = named_tensors(sub.network)
        return tuple(everything[name] for name in self.tensors)

    @torch.no_grad()
    def put(self, sub: Subnetwork, weight: Tensor, bias: Tensor) -> None:
        """Write both into a network that owns them, rounded to its precision."""
        for tensor, value in zip(self.values(sub), (weight, bias), strict=False):
            tensor.copy_(value)
            if not tensor.isfinite().all():
                raise BadInput(
                    f"the fitted {self.name} has values beyond what {str(tensor.dtype).removeprefix('torch.')} holds;"
                    " turn the model to float32 first"
                )

    @torch.no_grad()
    def computes(self, sub: Subnetwork, z: Tensor, logits: Tensor) -> bool:
        """Whether `logits` [N, C] are W z + c, where a single output s stands for (0, s)."""
        weight, *bias = (tensor.double() for tensor in self.values(sub))
        own = z.to(weight.device).double() @ weight.T + (bias[0] if bias else 0)
        given = logits.to(own.device).double()
        given = given[:, 1:] if own.shape[1] == 1 and given.shape[1] == 2 else given
        if own.shape != given.shape:
            return False
        allowed = max(CLOSE, 8 * torch.finfo(self.values(sub)[0].dtype).eps)
        return bool((own - given).abs().max() <= allowed * torch.maximum(own.abs().max(), given.abs().max()))


def last_layer(sub: Subnetwork, trace: Trace, named: str | None) -> LastLayer:
    """The module that the bottleneck feeds; refused where it is no linear layer, or isn't used by itself alone."""
    found = Placement(sites=(), bottlenecks=tuple(trace.last_linears()), moved=trace.moved, left_out=())
    name = one_bottleneck(found, sub.network, named or sub.bottleneck)
    module = dict(sub.network.named_modules())[name]
    weight, bias = (module._parameters.get(key) for key in ("weight", "bias"))
    if weight is None or weight.dim() != 2 or not weight.is_floating_point():
        raise BadInput(
            f"{name} is a {type(module).__name__}, and only a linear layer with a weight [classes, features] of its own"
            " can be fitted anew; finetune this network instead"
        )
    calls = sum(call.path == name for call in trace.calls)
    if calls != 1:
        raise BadInput(
            f"{name} runs {calls} times in one forward pass, and a last layer that is fitted anew may run only once;"
            " finetune this network instead"
        )
    own = {f"{name}.weight": weight} | ({} if bias is None else {f"{name}.bias": bias})
    for key, tensor in own.items():
        for other, value in named_tensors(sub.network).items():
            if other not in own and value.numel() and value.data_ptr() == tensor.data_ptr():
                raise BadInput(
                    f"{key} is tied to {other}, so that a last layer fitted anew would change that too; untie the two,"
                    " or finetune this network instead"
                )
    return LastLayer(name=name, tensors=tuple(own), outputs=len(weight))
