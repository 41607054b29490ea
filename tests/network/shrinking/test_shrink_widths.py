"""Closed channels that stay as zeros: exact at every width, of slices and zeros alone, and without index operations."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, fx, nn

import bise
from bise.base.errors import BadInput
from bise.network.shrinking.analysis import Analysis
from bise.network.shrinking.capture import capture
from bise.network.shrinking.channel_rules import FULL_WIDTH
from bise.network.shrinking.closing import closed_at_layers
from bise.network.shrinking.removal import rewritten
from bise.network.shrinking.rules import RULES
from bise.network.shrinking.verify import TOLERANCE, as_float64, check, difference, in_float64
from bise.network.shrinking.widths import Widths
from bise.network.subnetwork import Subnetwork
from test_shrink_models import close, made, masks_of
from test_shrink_property import networks
from test_shrink_rules import CASES, Net, gated, randomised

aten = torch.ops.aten
WHOLE = ("BERT", "resnet18", "mobilenet_v3_small", "regnet_y_400mf", "densenet121", "ViT (transformers)", "swin_t")
INDEX = (aten.index_select.default, aten.index.Tensor, aten.constant_pad_nd.default)
EVERY = [Widths(union=True), Widths(multiple=3), Widths(multiple=4), Widths(multiple=4, union=True)]
QUICK = (
    "depthwise, two each",
    "grouped",
    "batch norm",
    "residual",
)


def index_operations(small: fx.GraphModule) -> int:
    return sum(node.target in INDEX for node in small.graph.nodes)


def widths_of(small: nn.Module) -> dict[str, int]:
    return {name: p.shape[0] for name, p in small.named_parameters() if p.dim() == 4}


@pytest.mark.parametrize("networks_drawn", [2, pytest.param(60, marks=pytest.mark.long)])
def test_every_width_of_random_networks(networks_drawn: int) -> None:
    profile = settings(
        max_examples=networks_drawn, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    profile(given(networks(), st.sampled_from([0.3, 0.5, 0.9]))(exact_at_every_width))()


def exact_at_every_width(drawn: tuple[nn.Module, int], closed: float) -> None:
    model, seed = drawn
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 2, 6, 6, generator=random)
    sub, captured = gated(model, x, ["blocks.*.act", "blocks.*.stream"])
    close(sub, closed, random)
    masked = copy.deepcopy(sub).double()
    for widths in EVERY:
        small, _, _ = rewritten(captured, masks_of(sub), widths)
        assert difference(masked, in_float64(small), x.double()) <= TOLERANCE, widths
        assert sum(p.numel() for p in small.parameters()) <= sum(p.numel() for p in model.parameters())
        slices_and_zeros(small, model)


def slices_and_zeros(small: nn.Module, model: nn.Module) -> None:
    """Every entry of a parameter is one of the model's parameter of that name, or zero."""
    original = dict(model.named_parameters())
    for name, value in small.named_parameters():
        allowed = torch.cat([original[name].detach().flatten(), torch.zeros(1)])
        assert torch.isin(value.detach(), allowed).all(), name


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.long) for n in CASES])
def test_every_rule_at_other_widths(name: str) -> None:
    """Around each operation, masks of one to three open units of four, filled up to two and to four, and as unions."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8)
    sub, captured = gated(randomised(Net(CASES[name](), 0.7)).eval(), x, ["act"])
    masked = copy.deepcopy(sub).double()
    for mask in ([True, False, False, False], [False, True, True, False], [True, False, True, True]):
        for both in (sub, masked):
            both.gates[0].mask.copy_(torch.tensor(mask))  # type: ignore[operator,union-attr]
        for widths in (Widths(multiple=2), Widths(multiple=4), Widths(multiple=4, union=True)):
            small, _, _ = rewritten(captured, masks_of(sub), widths)
            assert difference(masked, in_float64(small), x.double()) <= TOLERANCE, (mask, widths)


@pytest.mark.long
@pytest.mark.parametrize("name", WHOLE)
def test_whole_models(name: str) -> None:
    sub, x = made(name)
    captured = capture(sub, x)
    random = torch.Generator().manual_seed(1)
    for share in (0.3, 0.7):
        close(sub, share, random)
        masked = copy.deepcopy(sub).double()
        for widths in (Widths(multiple=8), Widths(multiple=32, union=True)):
            small, _, _ = rewritten(captured, masks_of(sub), widths)
            gaps = check(masked, in_float64(small), as_float64(x), captured)
            assert max(gaps.values()) <= TOLERANCE, widths
            slices_and_zeros(small, sub.network)


class Residual(nn.Module):
    """A stage of three blocks on a stream of its own, as in a ResNet."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.inner = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))
        self.back = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(3))
        self.acts = nn.ModuleList(nn.ReLU() for _ in range(7))
        self.fc = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.acts[0](self.norm(self.first(x)))
        for i, (inner, back, norm) in enumerate(zip(self.inner, self.back, self.norms, strict=True)):
            x = self.acts[2 + 2 * i](norm(back(self.acts[1 + 2 * i](inner(x)))) + x)
        return self.fc(x.mean((2, 3)))


def staged() -> tuple[Subnetwork, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 6, 6)
    model = randomised(Residual()).eval()
    stream = {
        "acts.0": [0, 1, 2, 3],
        "acts.2": [0, 1, 4],
        "acts.4": [2, 4, 5],
        "acts.6": [0, 5],
    }
    masks = {f"acts.{i}": torch.arange(12) < 5 for i in (1, 3, 5)}
    masks |= {name: torch.isin(torch.arange(12), torch.tensor(kept)) for name, kept in stream.items()}
    return bise.subnetwork(model, masks, example=x), x


def test_a_stream_keeps_the_union_and_needs_no_index() -> None:
    """By hand: the segments keep {0, 1, 2, 3}, {0, 1, 4}, {2, 4, 5} and {0, 5}, so that the union is the first six."""
    sub, x = staged()
    narrow, _, _ = rewritten(capture(sub, x), masks_of(sub))
    assert index_operations(narrow) > 0
    assert widths_of(narrow)["back.0.weight"] == 3
    union = sub.shrink(x, streams="union")
    assert isinstance(union, fx.GraphModule)
    assert index_operations(union) == 0
    found = widths_of(union)
    assert {found[name] for name in ("first.weight", "back.0.weight", "back.1.weight", "back.2.weight")} == {6}
    assert found["inner.0.weight"] == 5
    assert union.shrink_report.streams == "union"
    back = dict(union.named_parameters())["norms.0.weight"]
    assert (back != 0).tolist() == [True, True, False, False, True, False], "closed ones are zeros"
    assert sum(node.target is aten.addcmul_.default for node in union.graph.nodes) == 3
    slices_and_zeros(union, sub.network)


def test_widths_are_multiples_as_far_as_closed_channels_go() -> None:
    sub, x = staged()
    captured = capture(sub, x)
    four, eight, sixteen = (
        widths_of(rewritten(captured, masks_of(sub), widths)[0])
        for widths in (Widths(multiple=4), Widths(multiple=8), Widths(multiple=16, union=True))
    )
    assert (four["first.weight"], four["inner.0.weight"]) == (4, 8)
    assert eight["inner.1.weight"] == 8
    assert sixteen["inner.0.weight"] == 8, "12 channels are too few for 16"


def test_the_default_is_what_it_was() -> None:
    """Without alignment each layer has the units that are open, and nothing is zero that wasn't."""
    sub, x = staged()
    small, _, _ = rewritten(capture(sub, x), masks_of(sub))
    assert widths_of(small) == {
        "first.weight": 4,
        **{f"inner.{i}.weight": 5 for i in range(3)},
        **{"back.0.weight": 3, "back.1.weight": 3, "back.2.weight": 2},
    }
    assert not any((p == 0).any() for p in small.parameters())


def test_auto_keeps_the_fastest_and_tells_what_was_tried() -> None:
    sub, x = staged()
    small = sub.shrink(x, align="auto")
    report = small.shrink_report
    assert 2 <= len(report.tried) <= 6  # type: ignore[arg-type,union-attr]
    best = report.tried[0].worst  # type: ignore[index,union-attr]
    chosen = [one for one in report.tried if (one.align, one.streams) == (report.align, report.streams)]  # type: ignore[union-attr]
    assert len(chosen) == 1
    assert chosen[0].worst <= 1.03 * best
    assert report.times[0].batch == 2  # type: ignore[index,union-attr]
    assert "tried" in str(report)
    assert report.as_dict()["tried"][0]["ratios"]["eager"] == best  # type: ignore[operator,union-attr]
    assert max(report.differences.values()) <= TOLERANCE  # type: ignore[union-attr]


@pytest.mark.parametrize("align", [0, -8, 2.5, True, "eight"])
def test_an_alignment_that_is_none(align: object) -> None:
    sub, x = staged()
    with pytest.raises(BadInput, match="multiple"):
        sub.shrink(x, align=align)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="streams='wide'"):
        sub.shrink(x, streams="wide")  # type: ignore[arg-type]


def test_a_saved_network_loads_where_bise_is_not(tmp_path: Path) -> None:
    sub, x = staged()
    small = sub.shrink(x, align=8, streams="union")
    torch.save({"net": small, "x": x, "y": small(x)}, tmp_path / "small.pt")
    script = (
        "import sys; sys.modules['bise'] = None\n"
        "import torch\n"
        f"held = torch.load({str(tmp_path / 'small.pt')!r}, weights_only=False)\n"
        "torch.testing.assert_close(held['net'](held['x']), held['y'])\n"
        "assert held['net'].shrink_report['align'] == 8\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env={"PATH": "/usr/bin:/bin"}, cwd=tmp_path)


class Quotient(nn.Module):
    """A gate behind a quotient, whose divisor mustn't become zero."""

    def __init__(self) -> None:
        super().__init__()
        self.above, self.below, self.act, self.fc = nn.Linear(5, 8), nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.act(self.above(x) / self.below(x)))


def test_a_divisor_is_never_closed() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 5)
    sub = bise.subnetwork(Quotient().eval(), {"act": torch.arange(8) % 3 > 0}, example=x)
    net = Analysis(captured=capture(sub, x), rules=RULES, barrier=FULL_WIDTH)
    net.forward(masks_of(sub))
    closed = closed_at_layers(net)
    found = {name: closed.tensors[place] for place, name in closed.names.items()}
    assert (found["above.weight"] == 0).all(1).tolist() == [i % 3 == 0 for i in range(8)]
    assert (found["below.weight"] != 0).all()
    assert (sub.network.above.weight != 0).all(), "those of the model stay"  # type: ignore[operator,union-attr]
