"""The two small architectures of the paper: SimpleConvNet for BiasedMNIST, an MLP for Multi-Color MNIST."""

from __future__ import annotations

from torch import Tensor, nn

from bise.base.checking import check_choice


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
