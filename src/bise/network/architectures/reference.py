"""Twenty classifiers, as their libraries write them, that placement and shrinking are held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput
from bise.network.architectures.small import MLP, SimpleConvNet
from bise.network.architectures.vision import torchvision
from bise.network.outputs import call


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A classifier with untrained weights, and a batch that it takes."""

    name: str
    make: Callable[[], nn.Module]
    batch: Callable[[int], Any]
    """Batch size -> inputs."""


def _pictures(size: int) -> Callable[[int], Tensor]:
    return lambda n: torch.randn(n, 3, size, size)


def _tokens(n: int) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(5, 90, (n, 12)), "attention_mask": torch.ones(n, 12, dtype=torch.long)}


def _vision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        torchvision()
        from torchvision import models

        return getattr(models, name)(weights=None, num_classes=10, **options)

    return make


def _timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        torchvision()
        try:
            import timm
        except ModuleNotFoundError as error:
            raise BadInput("timm is not installed; install the extra: pip install 'bise[vision]'") from error
        return timm.create_model(name, pretrained=False, num_classes=10, **options)

    return make


def _text(family: str, **config: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        torchvision()  # transformers imports it where it is installed
        try:
            import transformers
        except ModuleNotFoundError as error:
            raise BadInput("transformers is not installed; install the extra: pip install 'bise[text]'") from error
        kind = "ImageClassification" if family == "ViT" else "SequenceClassification"
        made = getattr(transformers, f"{family}For{kind}")(getattr(transformers, f"{family}Config")(**config))
        return made

    return make


_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "num_labels": 3,
}
_CONVNETS = (
    *("resnet18", "resnet50", "vgg11_bn", "densenet121", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0"),
    *("regnet_y_400mf", "shufflenet_v2_x1_0", "convnext_tiny"),
)


def _all() -> list[Reference]:
    size = 64
    return [
        Reference(name="SimpleConvNet", make=SimpleConvNet, batch=_pictures(28)),
        Reference(name="MLP", make=MLP, batch=_pictures(28)),
        *(Reference(name=name, make=_vision(name), batch=_pictures(size)) for name in _CONVNETS),
        Reference(name="vit_b_16", make=_vision("vit_b_16", image_size=size), batch=_pictures(size)),
        Reference(name="swin_t", make=_vision("swin_t"), batch=_pictures(size)),
        Reference(name="timm resnet18", make=_timm("resnet18"), batch=_pictures(size)),
        Reference(
            name="timm vit_tiny_patch16_224", make=_timm("vit_tiny_patch16_224", img_size=size), batch=_pictures(size)
        ),
        Reference(name="BERT", make=_text("Bert", vocab_size=99, **_SMALL), batch=_tokens),
        Reference(
            name="DistilBERT",
            make=_text("DistilBert", vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=64, num_labels=3),
            batch=_tokens,
        ),
        Reference(name="RoBERTa", make=_text("Roberta", vocab_size=99, **_SMALL), batch=_tokens),
        Reference(
            name="ViT (transformers)",
            make=_text("ViT", image_size=32, patch_size=8, **_SMALL),
            batch=lambda n: {"pixel_values": torch.randn(n, 3, 32, 32)},
        ),
    ]


REFERENCES: dict[str, Reference] = {reference.name: reference for reference in _all()}


def as_if_trained(model: nn.Module, x: Any, seed: int = 0) -> nn.Module:
    """Give BatchNorm random statistics, γ and β, and weights that start at zero some size, so that errors show.

    The statistics are those of the batch `x`, shaken: drawn from nowhere, they would drown the input in deep networks.
    """
    random = torch.Generator().manual_seed(seed)
    norms = [m for m in model.modules() if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))]
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.abs().max() < 1e-4:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=random))
        for norm in norms:
            norm.momentum = 1.0
            norm.weight.copy_(1 + 0.2 * torch.randn(norm.num_features, generator=random))
            norm.bias.copy_(0.5 * torch.randn(norm.num_features, generator=random))
        if norms:
            call(model.train(), x)
        for norm in norms:
            assert norm.running_mean is not None
            assert norm.running_var is not None
            norm.momentum = 0.1
            shift = torch.randn(norm.num_features, generator=random)
            norm.running_mean.add_(0.3 * norm.running_var.sqrt() * shift)
            norm.running_var.mul_(0.5 + torch.rand(norm.num_features, generator=random))
    return model.eval()
