"""The real models that several tests go through: (model in eval mode, example input)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bise.network.architectures.small import MLP, SimpleConvNet
from bise.network.architectures.vision import torchvision


def random_statistics(model: nn.Module) -> nn.Module:
    """BatchNorm as after training: statistics, γ and β that are neither 0 nor 1."""
    generator = torch.Generator().manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.copy_(torch.randn(module.num_features, generator=generator) * 0.3)
            module.running_var.copy_(torch.rand(module.num_features, generator=generator) + 0.5)
            with torch.no_grad():
                module.weight.copy_(torch.randn(module.num_features, generator=generator))
                module.bias.copy_(torch.randn(module.num_features, generator=generator) * 0.3)
    return model.eval()


def images(size: int, n: int = 3) -> torch.Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(1))


def tokens(vocabulary: int = 100) -> dict[str, torch.Tensor]:
    ids = torch.randint(0, vocabulary, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def resnet18() -> tuple[nn.Module, Any]:
    torchvision()
    from torchvision.models import resnet18

    return resnet18(num_classes=10), images(64)


def timm_resnet18() -> tuple[nn.Module, Any]:
    torchvision()
    import timm

    return timm.create_model("resnet18", num_classes=10), images(64)


def small_bert() -> tuple[nn.Module, Any]:
    torchvision()  # transformers imports it, so it needs the same care
    from transformers import BertConfig, BertForSequenceClassification

    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return BertForSequenceClassification(BertConfig(vocab_size=100, **shape)), tokens()


MODELS: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "SimpleConvNet": lambda: (SimpleConvNet(), images(28)),
    "MLP": lambda: (MLP(), images(28)),
    "torchvision resnet18": resnet18,
    "timm resnet18": timm_resnet18,
    "small BERT": small_bert,
}


def make(name: str) -> tuple[nn.Module, Any]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, example = MODELS[name]()
    return random_statistics(model), example
