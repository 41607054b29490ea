"""Networks written by hand with the widths of a shrunk one, as somebody would write them who needs no masks."""

from __future__ import annotations

import copy
import re
from typing import Any

from torch import Tensor, nn


def native(name: str, small: nn.Module, dense: nn.Module) -> nn.Module:
    """A network of the shrunk one's widths; a residual stream has one width, that of its widest segment."""
    widths = {key: tuple(p.shape) for key, p in small.named_parameters() if p.dim() > 1}
    if name.startswith("resnet"):
        return ResNet(widths, [len(getattr(dense, f"layer{n}")) for n in range(1, 5)])
    if name == "SimpleConvNet":
        return convnet(widths)
    return thinner(small, dense)


def convnet(widths: dict[str, tuple[int, ...]]) -> nn.Module:
    layers: list[nn.Module] = []
    before = 3
    for key in sorted(key for key in widths if re.fullmatch(r"blocks\.\d\.0\.weight", key)):
        out, _, kernel, _ = widths[key]
        layers += [nn.Conv2d(before, out, kernel, padding=kernel // 2), nn.BatchNorm2d(out), nn.ReLU()]
        before = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


class _Block(nn.Module):
    """Convolutions with BatchNorm, and a sum with what came in, or with a projection of it."""

    def __init__(self, inputs: int, shapes: list[tuple[int, int]], stride: int, strided: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = inputs
        for n, (out, kernel) in enumerate(shapes):
            step = stride if n == strided else 1
            layers += [nn.Conv2d(before, out, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(out)]
            layers += [nn.ReLU(inplace=True)] if n < len(shapes) - 1 else []
            before = out
        self.layers = nn.Sequential(*layers)
        same = inputs == before and stride == 1
        projection = (nn.Conv2d(inputs, before, 1, stride, bias=False), nn.BatchNorm2d(before))
        self.down = None if same else nn.Sequential(*projection)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.layers(x) + (x if self.down is None else self.down(x)))


class ResNet(nn.Module):
    def __init__(self, widths: dict[str, tuple[int, ...]], blocks: list[int]) -> None:
        super().__init__()
        stem, classes = widths["conv1.weight"][0], widths["fc.weight"][0]
        layers: list[nn.Module] = [nn.Conv2d(3, stem, 7, 2, 3, bias=False), nn.BatchNorm2d(stem), nn.ReLU(inplace=True)]
        layers.append(nn.MaxPool2d(3, 2, 1))
        before = stem
        for stage, count in enumerate(blocks, start=1):
            names = [[f"layer{stage}.{n}.conv{k}.weight" for k in (1, 2, 3)] for n in range(count)]
            shapes = [[(widths[key][0], widths[key][2]) for key in keys if key in widths] for keys in names]
            stream = max(one[-1][0] for one in shapes)
            for n, one in enumerate(shapes):
                stride, strided = (2 if stage > 1 and n == 0 else 1), (1 if len(one) == 3 else 0)
                layers.append(_Block(before, [*one[:-1], (stream, one[-1][1])], stride, strided))
                before = stream
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def thinner(small: nn.Module, dense: nn.Module) -> nn.Module:
    """The transformer's own code with narrower feed-forward layers: its attention has no gates in this benchmark."""
    made = copy.deepcopy(dense)
    shapes = {key: tuple(p.shape) for key, p in small.named_parameters() if p.dim() == 2}
    modules: dict[str, Any] = dict(made.named_modules())
    for path, module in list(modules.items()):
        if isinstance(module, nn.Linear) and (shape := shapes.get(f"{path}.weight")) not in (None, module.weight.shape):
            parent, _, leaf = path.rpartition(".")
            new = nn.Linear(shape[1], shape[0], bias=module.bias is not None)
            setattr(modules[parent], leaf, new.to(module.weight))
    return made.eval()
