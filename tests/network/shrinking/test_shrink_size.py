"""Counts against numbers worked out by hand and against the paper's."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bise.network.architectures.reference import REFERENCES
from bise.network.architectures.small import MLP, SimpleConvNet
from bise.network.size import latency, parameters, size, sparsity
from test_shrink_models import close, made


def test_macs_by_hand() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 25, 4)
    )
    seen = size(model, torch.randn(2, 3, 5, 5))
    assert seen.by_layer == {"0": 2 * 25 * 8 * 27, "4": 2 * 200 * 4}
    assert seen.macs == 2 * (25 * 8 * 27 + 800)
    assert seen.flops == 2 * seen.macs
    assert seen.parameters == 8 * 27 + 16 + 804
    assert seen.paper == seen.macs + 2 * (2 * 8 * 25)
    assert seen.fused == 8 * 27 + 8 + 804


def test_grouped_convolution_and_attention_by_hand() -> None:
    assert size(nn.Conv2d(8, 8, 3, groups=8), torch.randn(1, 8, 5, 5)).macs == 9 * 8 * 9

    class Attention(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x)

    assert size(Attention(), torch.randn(2, 3, 7, 16)).macs == 2 * 3 * 7 * 7 * 16 * 2


def test_the_papers_four_networks() -> None:
    resnet18 = REFERENCES["resnet18"].make()
    cases = (
        (SimpleConvNet(), 28, 1e6, 415.4),
        (resnet18, 32, 1e6, 37.1),
        (resnet18, 224, 1e6, 1818.6),
        (MLP(), 28, 1e3, 256.2),
    )
    for model, side, unit, paper in cases:
        assert round(size(model, torch.randn(1, 3, side, side)).paper / unit, 1) == paper


def test_text_models_are_counted_on_values() -> None:
    sub, x = made("BERT")
    seen = size(sub.network, x)
    rows, width, inner, heads = 2 * 12, 32, 64, 4
    layer = rows * (4 * width * width + 2 * width * inner) + 2 * heads * 12 * 12 * (width // heads) * 2
    assert seen.macs == 2 * layer + 2 * (width * width + width * 3)


def test_sparsity_in_three_countings() -> None:
    sub, x = made("SimpleConvNet")
    close(sub, 0.5, torch.Generator().manual_seed(7))
    small = sub.shrink(x)
    dense, shrunk = size(sub.network, x), size(small, x)
    seen = sparsity(sub.masks, dense, shrunk)
    kept, total = sub.units
    assert seen.units == pytest.approx(100 * (1 - kept / total))
    assert seen.physical == pytest.approx(100 * (1 - parameters(small) / 531_210))
    folded = sub.shrink(x, fold_batchnorm=True)
    assert seen.paper == pytest.approx(100 * (1 - parameters(folded) / (531_210 - 2 * 240)))


def test_latency_takes_turns() -> None:
    order: list[str] = []

    class Named(nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            order.append(self.name)
            return x

    seen = latency(Named("a"), Named("b"), torch.randn(3, 2), rounds=2, warmup=1)
    assert order == ["b", "a", "a", "b", "b", "a"]
    assert (seen.rounds, seen.batch, seen.device) == (2, 3, "cpu")
