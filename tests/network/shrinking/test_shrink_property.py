"""Random networks under random masks: shrunk equals masked. One capture serves many masks, so that it is quick."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from bise.network.shrinking.verify import TOLERANCE
from test_shrink_rules import compared, gated, randomised

MASKS = 16
"""Masks for each random network."""


class Block(nn.Module):
    """One step of a random network; what it does to the stream is drawn."""

    def __init__(self, draw: st.DrawFn, width: int) -> None:
        super().__init__()
        kinds = ["plain", "residual", "concatenate", "branches", "excite", "depthwise", "pool"]
        self.kind = draw(st.sampled_from(kinds))
        self.inner = draw(st.integers(1, 5))
        mode = draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"]))
        kernel, bias = draw(st.sampled_from([1, 3])), draw(st.booleans())
        groups = width if self.kind == "depthwise" else 1
        inner = width if self.kind in ("residual", "depthwise", "excite", "branches") else self.inner
        self.conv = nn.Conv2d(width, inner, kernel, padding=kernel // 2, padding_mode=mode, bias=bias, groups=groups)
        self.norm = nn.BatchNorm2d(inner) if draw(st.booleans()) else nn.Identity()
        self.act = draw(st.sampled_from([nn.ReLU, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Hardswish]))()
        self.other = nn.Conv2d(width, inner, 3, padding=1, bias=bias) if self.kind == "branches" else None
        self.squeeze = nn.Linear(width, inner) if self.kind == "excite" else None
        self.stream = nn.Identity()
        self.width = width + inner if self.kind == "concatenate" else inner

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(self.norm(self.conv(x)))
        if self.kind == "residual":
            h = h + x
        elif self.kind == "concatenate":
            h = torch.cat([x, h], 1)
        elif self.other is not None:
            h = h * 0.5 + self.other(x)
        elif self.squeeze is not None:
            h = h * self.squeeze(x.mean((2, 3))).sigmoid()[:, :, None, None]
        elif self.kind == "pool":
            h = nn.functional.avg_pool2d(h, 2, stride=1, padding=1)
        return self.stream(h)


class Random(nn.Module):
    def __init__(self, draw: st.DrawFn) -> None:
        super().__init__()
        width = draw(st.integers(2, 6))
        self.stem = nn.Conv2d(2, width, 3, padding=1)
        self.blocks = nn.ModuleList()
        for _ in range(draw(st.integers(1, 4))):
            self.blocks.append(Block(draw, width))
            width = self.blocks[-1].width
        self.flat = draw(st.booleans())
        self.pool = nn.AdaptiveAvgPool2d(2 if self.flat else 1)
        self.fc = nn.Linear(width * (4 if self.flat else 1), 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.fc(self.pool(x).flatten(1))


@st.composite
def networks(draw: st.DrawFn) -> tuple[nn.Module, int]:
    seed = draw(st.integers(0, 2**31))
    torch.manual_seed(seed)
    return randomised(Random(draw)).eval(), seed


@pytest.mark.parametrize("networks_drawn", [10, pytest.param(60, marks=pytest.mark.long)])
def test_shrunk_equals_masked(networks_drawn: int) -> None:
    """So many networks under 16 masks each."""
    profile = settings(
        max_examples=networks_drawn, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    profile(given(networks())(shrunk_equals_masked))()


def shrunk_equals_masked(drawn: tuple[nn.Module, int]) -> None:
    model, seed = drawn
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 2, 6, 6, generator=random)
    sub, captured = gated(model, x, ["blocks.*.act", "blocks.*.stream"])
    full = sum(p.numel() for p in model.parameters())
    for number in range(MASKS):
        share = (number + 1) / MASKS  # from a few units to nearly all of them closed
        for gate in sub.gates:
            gate.mask.copy_(torch.rand(gate.mask.shape, generator=random) > share * 0.95)  # type: ignore[operator,union-attr]
        gap, small, _ = compared(sub, captured, x)
        assert gap <= TOLERANCE, [block.kind for block in model.blocks]  # type: ignore[union-attr]
        assert sum(p.numel() for p in small.parameters()) <= full
