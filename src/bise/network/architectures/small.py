"""The two small architectures of the paper: SimpleConvNet for BiasedMNIST, an MLP for Multi-Color MNIST; the demo's."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bise.base.checking import check_choice

DIGIT_WIDTHS = (24, 48, 96)


class SimpleConvNet(nn.Module):
    """Four 7 × 7 convolutions with BatchNorm and ReLU, global average pooling, one linear layer (531,210 weights).

    `last` is the fourth block's activation: "relu", as the paper says, or "tanh", as the authors' code has it.
    """

    def __init__(
        self,
        classes: int = 10,
        *,
        widths: tuple[int, ...] = (16, 32, 64, 128),
        kernel: int = 7,
        last: str = "relu",
    ) -> None:
        super().__init__()
        check_choice("last", last, ("relu", "tanh"))
        channels = (3, *widths)
        kinds = [nn.ReLU] * (len(widths) - 1) + [{"relu": nn.ReLU, "tanh": nn.Tanh}[last]]
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, kernel, padding=kernel // 2), nn.BatchNorm2d(b), kind())
            for a, b, kind in zip(channels, widths, kinds, strict=False)
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(widths[-1], classes)
        for block in self.blocks:
            nn.init.kaiming_normal_(block[0].weight, mode="fan_out", nonlinearity="relu")  # type: ignore[index]

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.fc(self.pool(x).flatten(1))


class MLP(nn.Module):
    """Three hidden layers of 100 ReLU units on flattened inputs (256,510 weights for 28 × 28 × 3)."""

    def __init__(self, inputs: int = 2352, classes: int = 10, *, hidden: tuple[int, ...] = (100, 100, 100)) -> None:
        super().__init__()
        widths = (inputs, *hidden)
        self.hidden = nn.ModuleList(
            nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in zip(widths, hidden, strict=False)
        )
        self.fc = nn.Linear(hidden[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in self.hidden:
            x = layer(x)
        return self.fc(x)


def digit_net(seed: int = 0) -> nn.Module:
    """A small convnet for 16 × 16 digits, its weights drawn from `seed`."""
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they were
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for before, width in zip((3, *DIGIT_WIDTHS), DIGIT_WIDTHS, strict=False):
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*layers[:-1], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(DIGIT_WIDTHS[-1], 10))
