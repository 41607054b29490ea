"""The gradient towards large kernels: torch's own, on any shape; and training with it on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.grad import conv2d_weight

import bise
from bise.engine.convolutions import large_kernels, weight_gradient
from bise.engine.inputs import Inputs
from bise.engine.training import fit
from bise.methods.finetuning import owning
from test_paths import pictures
from test_steps import GPU


@pytest.mark.parametrize(
    ("kernel", "padding"), [((7, 7), (3, 3)), ((5, 3), (0, 2)), ((1, 5), (1, 0)), ((4, 6), (2, 2))]
)
def test_the_gradient_is_torchs(kernel, padding):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 6, 11, 9, generator=generator)
    weight = torch.randn(8, 6, *kernel, generator=generator)
    output = torch.nn.functional.conv2d(x, weight, padding=padding)
    towards = torch.randn(output.shape, generator=generator)
    expected = conv2d_weight(x.double(), weight.shape, towards.double(), padding=padding)
    found = weight_gradient(x, towards, padding, kernel)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), expected, atol=1e-4)


def network():
    torch.manual_seed(0)
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3))
    return nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), *head)


def changed(model):
    return [name for name, module in model.named_modules() if "forward" in vars(module)]


def test_nothing_of_it_is_left_on_the_network(monkeypatch):
    monkeypatch.setattr("bise.engine.convolutions._suits", lambda layer: layer.in_channels == 64)  # on a CPU none does
    model = network()
    with large_kernels(model):
        assert changed(model) == ["2"]
    assert changed(model) == []


@pytest.mark.parametrize("device", [GPU])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", r"ignore:::torch\.")  # torch.compile's own
def test_training_by_it_is_training(monkeypatch, device, compiled):
    data = pictures()
    losses = []
    for channels in (64, 1000):  # with 1000, no layer is large enough
        monkeypatch.setattr("bise.engine.convolutions.FEWEST_CHANNELS", channels)
        sub = owning(network().to(device))
        config = bise.TrainConfig(epochs=4, lr=0.05, precision="bf16", compile=compiled)
        rows = fit(sub, Inputs(data, torch.device(device)), bise.data.labels(data), config)
        losses.append(torch.tensor([row["loss"] for row in rows]))
    assert torch.allclose(*losses, rtol=0.02)
    assert losses[0][-1] < losses[0][0]
