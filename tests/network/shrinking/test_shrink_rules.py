"""Every rule by brute force: a small network around one operation, all masks of four units, shrunk against masked."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from bise.network.placement import place
from bise.network.shrinking.capture import Captured, capture
from bise.network.shrinking.removal import rewritten
from bise.network.shrinking.rules import RULES
from bise.network.shrinking.verify import TOLERANCE, difference, in_float64
from bise.network.subnetwork import Subnetwork

UNITS = 4


class Shift(nn.Module):
    """Makes closed channels constants other than zero."""

    def __init__(self, amount: float) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.linspace(0, 2 * amount, UNITS).view(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.shift


class Net(nn.Module):
    """conv -> gate -> (shift) -> operation -> whatever the case puts behind it."""

    def __init__(self, tail: nn.Module, amount: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, UNITS, 3, padding=1)
        self.act = nn.ReLU()
        self.shift = Shift(amount) if amount else nn.Identity()
        self.tail = tail

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(self.shift(self.act(self.conv(x))))


class Then(nn.Module):
    """A function of the gated map, with layers behind it that read its channels."""

    def __init__(self, function: Callable[..., Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.layers)


class Times(nn.Module):
    """A function of the gated map and of matrices that are no layer's."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function
        self.first, self.second = nn.Parameter(torch.randn(UNITS, 5)), nn.Parameter(torch.randn(5, 3))
        self.bias = nn.Parameter(torch.randn(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.first, self.second, self.bias)


class Turned(Times):
    """The same with matrices that are stored as a linear layer's are."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__(function)
        self.first, self.second = nn.Parameter(torch.randn(5, UNITS)), nn.Parameter(torch.randn(3, 5))


def conv(inputs: int = UNITS, outputs: int = 5, **options: object) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1, **options)  # type: ignore[arg-type]


def linear(inputs: int = UNITS, outputs: int = 3) -> nn.Linear:
    return nn.Linear(inputs, outputs)


def norm() -> nn.BatchNorm2d:
    """A vector of factors and one of terms, of which none is zero."""
    return nn.BatchNorm2d(UNITS)


def pointwise(function: Callable[[Tensor], Tensor]) -> Callable[[], nn.Module]:
    return lambda: Then(lambda x, head: head(function(x)), conv())


def on_map(function: Callable[[Tensor], Tensor], width: int = UNITS) -> Callable[[], nn.Module]:
    return lambda: Then(lambda x, head: head(function(x)), conv(width))


def on_features(function: Callable[[Tensor], Tensor], width: int = UNITS) -> Callable[[], nn.Module]:
    return lambda: Then(lambda x, head: head(function(x)), linear(width))


def squeeze_excite(x: Tensor, down: nn.Module, up: nn.Module, head: nn.Module) -> Tensor:
    return head(x * torch.sigmoid(up(torch.relu(down(x.mean((2, 3), keepdim=True))))))


def response_norm(x: Tensor, scale: nn.Parameter, shift: nn.Parameter) -> Tensor:
    """As in ConvNeXt V2."""
    norm = x.norm(dim=(2, 3), keepdim=True)
    scaled = x * norm / (norm.mean(1, keepdim=True) + 1e-6)
    return x + torch.addcmul(shift.view(1, -1, 1, 1), scale.view(1, -1, 1, 1), scaled, value=0.5)


def spatial_gate(x: Tensor, other: nn.Module, positions: nn.Module, head: nn.Module) -> Tensor:
    """As in gMLP: a layer over the positions gives the factors."""
    factors = positions(F.layer_norm(other(x).flatten(2), (64,)))
    return head(x.flatten(2).transpose(1, 2) * factors.transpose(1, 2))


def shuffle(x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


def _pools(x: Tensor, rank: str) -> Tensor:
    for kind, size in (("max_pool", 2), ("adaptive_avg_pool", 2), ("adaptive_max_pool", 2), ("avg_pool", 2)):
        x = getattr(F, kind + rank)(x, size)
    return x


def _resized(x: Tensor, *modes: str) -> Tensor:
    for mode in modes:
        x = F.interpolate(x, scale_factor=2, mode=mode)
    return x


def new_tensors(x: Tensor) -> Tensor:
    empty = torch.ops.aten.new_empty(x, [8, 8])
    return x.new_ones(8, 8) + x.new_zeros(8, 8) + x.new_full((8, 8), 0.5) + torch.where(empty == empty, 0.0, 0.0)


def attention(x: Tensor, head: nn.Module) -> Tensor:
    tokens = x.flatten(2).transpose(1, 2).unflatten(2, (2, 2)).transpose(1, 2)
    out = F.scaled_dot_product_attention(tokens, tokens, tokens)
    return head(out.transpose(1, 2).flatten(2))


def embedded(x: Tensor, table: nn.Module, mix: nn.Module) -> Tensor:
    return mix(table(torch.arange(UNITS).expand(x.shape[0], UNITS)) * x.mean((2, 3)).unsqueeze(1))


POINTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    name: getattr(torch.ops.aten, name)
    for name in (
        *("relu", "relu6", "gelu", "silu", "hardswish", "hardsigmoid", "hardtanh", "tanh", "sigmoid", "elu", "selu"),
        *("celu", "mish", "softplus", "log_sigmoid", "exp", "neg", "abs", "erf", "sin", "cos", "square"),
    )
}
POINTWISE |= {
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "sqrt": lambda x: x.abs().sqrt(),
    "rsqrt": lambda x: x.abs().rsqrt().clamp(max=9.0),  # infinite at a closed gate: must be computed, not folded
    "reciprocal": lambda x: x.abs().add(1).reciprocal(),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "clamp_min": lambda x: torch.ops.aten.clamp_min(x, 0.2),
    "threshold": lambda x: F.threshold(x, 0.1, 0.7),
    "pow": lambda x: x**2,
    "dropout": lambda x: F.dropout(x, 0.5, training=False),
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(),
    "alias": lambda x: torch.ops.aten.alias(x),
    "detach": lambda x: x.detach(),
    "add a number": lambda x: x + 1,
    "div": lambda x: x / 3.0,
    "sub": lambda x: x - 0.25,
    "rsub": lambda x: 1.0 - x,
    "mul": lambda x: x * 2.0,
}
SPATIAL: dict[str, Callable[[Tensor], Tensor]] = {
    "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "avg_pool2d padded": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "avg_pool2d padded, not counted": lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 3),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 3),
    "pad zeros": lambda x: F.pad(x, (1, 1, 1, 1)),
    "pad value": lambda x: F.pad(x, (1, 0, 2, 1), value=0.3),
    "pad reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "pad circular": lambda x: F.pad(x, (1, 1, 1, 1), mode="circular"),
    "pad replicate": lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
    "softmax over positions": lambda x: x.softmax(3),
    "roll": lambda x: x.roll((1, 2), (2, 3)),
    "flip": lambda x: x.flip(3),
    "slice": lambda x: x[:, :, 1:],
    "permute back": lambda x: x.permute(0, 2, 3, 1).relu().permute(0, 3, 1, 2),
    "transpose back": lambda x: x.transpose(1, 3).relu().transpose(1, 3),
    "unsqueeze and squeeze": lambda x: x.unsqueeze(1).relu().squeeze(1),
    "shuffle": shuffle,
}
FEATURES: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "mean": (lambda x: x.mean((2, 3)), UNITS),
    "amax": (lambda x: x.amax((2, 3)), UNITS),
    "amin": (lambda x: x.amin((2, 3)), UNITS),
    "sum": (lambda x: x.sum((2, 3)), UNITS),
    "norm": (lambda x: x.norm(dim=(2, 3)), UNITS),
    "resized": (lambda x: _resized(x, "nearest", "bilinear", "bicubic").mean((2, 3)), UNITS),
    "resized sequences": (lambda x: _resized(x.flatten(2), "nearest", "linear").mean(2), UNITS),
    "resized volumes": (
        lambda x: _resized(x.unflatten(2, (2, 4)), "nearest", "trilinear").mean((2, 3, 4)),
        UNITS,
    ),
    "select": (lambda x: x[:, :, 1, 2], UNITS),
    "flatten": (lambda x: F.adaptive_avg_pool2d(x, 2).flatten(1), 4 * UNITS),
    "reshape": (lambda x: F.adaptive_avg_pool2d(x, 2).transpose(2, 3).reshape(x.shape[0], -1), 4 * UNITS),
    "squeeze two": (lambda x: F.adaptive_avg_pool2d(x, 1).squeeze((2, 3)), UNITS),
    "pools of sequences": (lambda x: _pools(x.flatten(2), "1d").mean(2), UNITS),
    "pools of volumes": (lambda x: _pools(x.unflatten(2, (2, 4)), "3d").mean((2, 3, 4)), UNITS),
    "flatten one": (lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1), UNITS),
    "squeeze": (lambda x: F.adaptive_avg_pool2d(x, 1).squeeze(3).squeeze(2), UNITS),
    "expand": (lambda x: x.mean((2, 3)).unsqueeze(1).expand(-1, 3, UNITS), UNITS),
    "tokens": (lambda x: x.flatten(2).transpose(1, 2), UNITS),
}


def heads_of_attention(x: Tensor, layer: nn.Module) -> Tensor:
    """Each channel is a head, once in torch's function and once written out."""
    h = x.flatten(2).transpose(1, 2).unflatten(2, (UNITS, 1)).transpose(1, 2)
    attended = F.scaled_dot_product_attention(h, h, h) + (h @ h.transpose(2, 3)).softmax(3) @ h
    return layer(attended.transpose(1, 2).flatten(2))


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "conv": conv,
    "conv strided, dilated": lambda: nn.Conv2d(UNITS, 5, 3, stride=2, padding=2, dilation=2),
    "conv same": lambda: nn.Conv2d(UNITS, 5, 3, padding="same"),
    "conv unpadded": lambda: nn.Conv2d(UNITS, 5, 3, bias=False),
    "conv two deep": lambda: nn.Sequential(conv(outputs=6), nn.BatchNorm2d(6), nn.ReLU(), conv(6, bias=False)),
    "depthwise": lambda: nn.Sequential(conv(outputs=UNITS, groups=UNITS), nn.BatchNorm2d(UNITS), nn.ReLU6(), conv()),
    "depthwise, two each": lambda: nn.Sequential(conv(outputs=2 * UNITS, groups=UNITS), conv(2 * UNITS)),
    "grouped": lambda: nn.Sequential(conv(outputs=6, groups=2), nn.SiLU(), conv(6)),
    "conv1d": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(UNITS, 5, 3, padding=1), nn.AdaptiveAvgPool1d(2)),
    "conv3d": lambda: nn.Sequential(nn.Unflatten(2, (2, 4)), nn.Conv3d(UNITS, 5, 3, padding=1), nn.MaxPool3d(2)),
    "conv1d same": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(UNITS, 5, 3, padding="same")),
    "conv3d same": lambda: nn.Sequential(nn.Unflatten(2, (2, 4)), nn.Conv3d(UNITS, 5, 3, padding="same")),
    "new tensors": lambda: Then(lambda x, a: a(x * new_tensors(x)), conv()),
    "batch norm": lambda: nn.Sequential(nn.BatchNorm2d(UNITS), conv()),
    "prelu": lambda: nn.Sequential(nn.PReLU(UNITS, 0.3), conv()),
    "prelu, one slope": lambda: nn.Sequential(nn.PReLU(), conv()),
    "squeeze-and-excite": lambda: Then(squeeze_excite, conv(outputs=2), conv(2, UNITS), conv()),
    "residual": lambda: Then(lambda x, a, b: b(x + a(x)), conv(outputs=UNITS), conv()),
    "residual, difference": lambda: Then(lambda x, a, b: b(a(x) - x), conv(outputs=UNITS), conv()),
    "concatenation": lambda: Then(lambda x, a, b: b(torch.cat([x, a(x), x], 1)), conv(), conv(2 * UNITS + 5)),
    "concatenation of rows": lambda: Then(lambda x, a: a(torch.cat([x, x.relu()], 2)), conv()),
    "chunk": lambda: Then(lambda x, a, b: a(x.chunk(2, 1)[0]) + b(x.chunk(2, 1)[1]), conv(2), conv(2)),
    "split": lambda: Then(lambda x, a, b: a(x.split([1, 3], 1)[0]) + b(x.split([1, 3], 1)[1]), conv(1), conv(3)),
    "one channel repeated": lambda: Then(
        lambda x, a, b: b(a(x).sigmoid().expand(-1, 6, -1, -1)), conv(outputs=1), conv(6)
    ),
    "one channel repeated in copies": lambda: Then(
        lambda x, a, b: b(a(x).repeat(1, 6, 1, 1) + a(x).repeat_interleave(6, 1)), conv(outputs=1), conv(6)
    ),
    "unbind": lambda: Then(lambda x, a: a(torch.stack(x.mean(3).transpose(1, 2).unbind(1))), linear()),
    "addcmul": lambda: Then(
        lambda x, n, a: a(torch.addcmul(n.bias.view(1, -1, 1, 1), n.weight.view(1, -1, 1, 1), x)), norm(), conv()
    ),
    "a vector along the rows": lambda: Then(
        lambda x, rows, a: a(x * rows.weight.view(1, 1, -1, 1)), nn.PReLU(8), conv()
    ),
    "response norm": lambda: Then(lambda x, n, a: a(response_norm(x, n.weight, n.bias)), norm(), conv()),
    "spatial gate": lambda: Then(spatial_gate, conv(outputs=UNITS), nn.Linear(64, 64), linear()),
    "one map for all channels": lambda: Then(lambda x, a, b: b(x * a(x).sigmoid()), conv(outputs=1), conv()),
    "stack": lambda: Then(lambda x, a: a(torch.stack([x, x.flip(3)], -1).sum(-1)), conv()),
    "layer scale": lambda: Then(lambda x, a, b: b(a(x) * x), Shift(0.5), conv()),
    "embedding": lambda: Then(embedded, nn.Embedding(9, UNITS), linear()),
    "rows by a matrix": lambda: Times(lambda x, w, v, b: (x.flatten(2).transpose(1, 2) @ w + b).relu() @ v),
    "rows by transposed matrices": lambda: Turned(lambda x, w, v, b: (x.flatten(2).transpose(1, 2) @ w.T + b) @ v.t()),
    "rows by transposed matrices, and a vector": lambda: Turned(
        lambda x, w, v, b: torch.addmm(b, x.mean((2, 3)), w.transpose(0, 1)).relu().mm(v.permute(1, 0))
    ),
    "rows by two matrices": lambda: Times(lambda x, w, v, b: torch.addmm(b, x.mean((2, 3)), w).relu().mm(v)),
    "rows by a matrix, and a vector": lambda: Times(
        lambda x, w, v, b: torch.addmm(b, x.permute(0, 2, 3, 1).reshape(-1, UNITS), w).view(-1, 64, 5) @ v
    ),
}
KEEPS_WIDTH: dict[str, Callable[[], nn.Module]] = {
    "group norm": lambda: nn.Sequential(nn.GroupNorm(2, UNITS), conv()),
    "layer norm": lambda: Then(lambda x, n, a: a(n(x.permute(0, 2, 3, 1))), nn.LayerNorm(UNITS), linear()),
    "softmax over channels": on_map(lambda x: x.softmax(1)),
    "norm over channels": on_map(lambda x: x / (1 + x.norm(dim=1, keepdim=True))),
    "mean over channels": on_map(lambda x: x.mean([1], keepdim=True), 1),
    "one channel": on_map(lambda x: x[:, 1].unsqueeze(1), 1),
    "channels padded": on_map(lambda x: F.pad(x, (0, 0, 0, 0, 1, 0)), UNITS + 1),
    "channels rolled": on_map(lambda x: x.roll(1, 1)),
    "matmul": lambda: Then(lambda x: x.flatten(2) @ x.flatten(2).transpose(1, 2)),
    "attention": lambda: Then(attention, linear()),
    "heads of attention": lambda: Then(heads_of_attention, linear()),
    "transposed convolution": lambda: nn.ConvTranspose2d(UNITS, 5, 3),
    "unknown operation": on_map(lambda x: x.cumsum(1)),
    "heads": lambda: Then(lambda x, a: a(x.flatten(2).unflatten(1, (2, 2)).sum(1).transpose(1, 2)), linear(2)),
}
CASES: dict[str, Callable[[], nn.Module]] = {
    **{name: pointwise(function) for name, function in POINTWISE.items()},
    **{name: on_map(function) for name, function in SPATIAL.items()},
    **{name: on_features(function, width) for name, (function, width) in FEATURES.items()},
    **LAYERS,
    **KEEPS_WIDTH,
}
SEEN_THROUGH = (
    "stack",
    "spatial gate",
    "one map for all channels",
    "norm",
    "addcmul",
    "rows by transposed matrices",
    "rows by transposed matrices, and a vector",
)
"""Cases in which closed channels go, as long as one is open."""
_seen: set[object] = set()


def randomised(model: nn.Module) -> nn.Module:
    """BatchNorm with statistics, scale and shift as after training; everything else as it is."""
    random = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.copy_(torch.randn(module.num_features, generator=random))
            module.running_var.copy_(torch.rand(module.num_features, generator=random) + 0.5)
            module.weight.data.copy_(torch.randn(module.num_features, generator=random))
            module.bias.data.copy_(torch.randn(module.num_features, generator=random))
    return model


def gated(model: nn.Module, example: Tensor, patterns: list[str]) -> tuple[Subnetwork, Captured]:
    sub = Subnetwork(model, place(model, example, patterns=patterns).sites)
    return sub, capture(sub, example)


def compared(sub: Subnetwork, captured: Captured, x: Tensor) -> tuple[float, fx.GraphModule, int]:
    """(relative difference in float64, shrunk module, barriers) under the masks that the subnetwork has now."""
    masks = {number: gate.mask for number, gate in enumerate(sub.gates)}
    small, _, barriers = rewritten(captured, masks)  # type: ignore[arg-type]
    gap = difference(copy.deepcopy(sub).double(), in_float64(small), x.double())
    return gap, small, len(barriers)


BOTH = [
    *((name, 0.7) for name in CASES),
    *((name, 0.0) for name in LAYERS),
    *(pytest.param(name, 0.0, marks=pytest.mark.long) for name in KEEPS_WIDTH),
]
"""Closed channels of which some are another constant than zero, and all zero; one run does for what has no border, and
where channels are put back, zeros are put back like other constants."""


@pytest.mark.parametrize(("name", "amount"), BOTH)
def test_every_mask_of_four_units(name: str, amount: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8)
    sub, captured = gated(randomised(Net(CASES[name](), amount)).eval(), x, ["act"])
    _seen.update(node.target for node in captured.graph.nodes)
    full = sum(p.numel() for p in sub.network.parameters())
    for mask in itertools.product([True, False], repeat=UNITS):
        sub.gates[0].mask.copy_(torch.tensor(mask))  # type: ignore[operator,union-attr]
        gap, small, barriers = compared(sub, captured, x)
        assert gap <= TOLERANCE, (name, mask)
        if all(mask):
            assert sum(p.numel() for p in small.parameters()) == full
        elif name in KEEPS_WIDTH:
            assert barriers, f"{name} keeps its full width and must say so"
        elif not barriers or (name in SEEN_THROUGH and any(mask)):
            assert not barriers
            assert sum(p.numel() for p in small.parameters()) < full, f"{name}: nothing was removed for {mask}"


def test_every_rule_was_met() -> None:
    """Runs behind the cases above: a rule without a case is not tested."""
    if len(_seen) < 20:
        pytest.skip("the cases were not run")
    assert {str(target) for target in set(RULES) - _seen} == set()


def test_an_operation_without_a_rule_is_not_said_to_mix_channels() -> None:
    x = torch.randn(2, 3, 8, 8)
    _, captured = gated(Net(on_map(lambda x: x.maximum(x.flip(3)))(), 0.0).eval(), x, ["act"])
    _, _, (barrier,) = rewritten(captured, {0: torch.arange(UNITS) > 0})
    assert (barrier.operation, barrier.reason) == ("maximum", "there is no rule for this operation")
