"""The architectures that recipes name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from bise.base.errors import BadInput
from bise.network.architectures.pretrained import bert, resnet18
from bise.network.architectures.small import MLP, SimpleConvNet
from bise.network.weights import read_state, start_from


def _small(kind: Callable[..., nn.Module]) -> Callable[..., tuple[nn.Module, str]]:
    def make(classes: int, weights: str | Path | None = None, **shape: Any) -> tuple[nn.Module, str]:
        model = kind(classes=classes, **shape)
        if weights is None:
            return model, "scratch"
        if str(weights) == "imagenet":
            raise BadInput(f"there are no ImageNet weights for {type(model).__name__}; use scratch or a file")
        return model, start_from(model, read_state(Path(weights)), head="fc", what=str(weights))

    return make


ARCHITECTURES: dict[str, Callable[..., tuple[nn.Module, str]]] = {
    "SimpleConvNet": _small(SimpleConvNet),
    "MLP": _small(MLP),
    "ResNet-18": resnet18,
    "BERT": bert,
}
"""{name: function of (classes, weights, shape) that gives the model, and where its weights come from}"""
