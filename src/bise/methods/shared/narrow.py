"""A network of the same architecture that sees single pixels alone, and so learns colours and textures only."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from bise.base.errors import BadInput
from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.stages import drawn_by


def narrowed(model: nn.Module) -> nn.Module:
    """The model with each convolution's kernel cut to 1 × 1, in place, its strides kept and its weights drawn anew."""
    found = [(name, layer) for name, layer in model.named_modules() if type(layer) is nn.Conv2d]
    if not any(max(layer.kernel_size) > 1 for _, layer in found):
        raise BadInput(
            f"{type(model).__name__} has no convolution with a kernel larger than 1, so that no narrower network can"
            " stand for its bias; this method is for such networks"
        )
    for name, layer in found:
        if max(layer.kernel_size) == 1:
            continue
        where, _, key = name.rpartition(".")
        narrow = nn.Conv2d(
            layer.in_channels,
            layer.out_channels,
            1,
            stride=cast(tuple[int, int], layer.stride),
            groups=layer.groups,
            bias=layer.bias is not None,
            device=layer.weight.device,
        )
        setattr(model.get_submodule(where), key, narrow)
    return model


def narrow_network(start: Start, setting: Setting) -> nn.Module:
    """A fresh narrow network, with weights of its own, on the setting's device."""
    with drawn_by(setting.seed):
        return narrowed(fresh(start, torch.device("cpu"), 1)).to(setting.device)
