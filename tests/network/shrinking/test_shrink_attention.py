"""Closed heads go from query, key, value and output: exactly, under random masks, at any length."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, fx, nn

from attention_models import GROUPED, HEADS, MODELS, TEXT, WIDTH, made, text_model, words
from bise.network.placement import place
from bise.network.shrinking.capture import Captured, as_module, capture
from bise.network.shrinking.removal import rewritten
from bise.network.shrinking.verify import TOLERANCE, as_float64, difference, in_float64
from bise.network.shrinking.widths import Widths
from bise.network.subnetwork import Subnetwork

QUICK = ("BERT, attention written out", "LLaMA, grouped queries", "torch's encoder", "ViT (timm)")
EACH = WIDTH // HEADS


@functools.cache
def captured_of(name: str) -> tuple[Subnetwork, Captured, Any, int]:
    """(subnetwork, capture, example, number of the gate on heads); one capture serves every mask."""
    model, x, projection, _ = made(name)
    sub = Subnetwork(model, place(model, x).sites)
    number = next(i for i, site in enumerate(sub.sites) if site.name == f"{projection}:in")
    return sub, capture(sub, x), x, number


def shrunk(sub: Subnetwork, captured: Captured) -> fx.GraphModule:
    small, _, barriers = rewritten(captured, {i: gate.mask for i, gate in enumerate(sub.gates)})  # type: ignore[misc]
    assert not barriers
    return small


def gap(sub: Subnetwork, captured: Captured, small: nn.Module, x: Any) -> float:
    """The difference in float64, with the captured graph in the place of a model that rounds to float32 by itself."""
    for number, place_of_mask in captured.gates.items():
        captured.tensors[place_of_mask] = sub.gates[number].mask  # type: ignore[assignment]
    return difference(in_float64(as_module(captured)), in_float64(small), as_float64(x))


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def only_heads(sub: Subnetwork, number: int, mask: Tensor) -> None:
    for i, gate in enumerate(sub.gates):
        gate.mask.copy_(mask if i == number else torch.ones_like(gate.mask))  # type: ignore[operator,arg-type]


def removed_by(name: str, closed: int, units: int) -> int:
    """Parameters of closed heads, by hand: rows of query, key and value with their biases, columns of the output."""
    biases = {"LLaMA": 0, "LLaMA, grouped queries": 0}.get(name, 3)
    if units == HEADS:
        return closed * EACH * (4 * WIDTH + biases)
    each = WIDTH // units  # two heads of queries for one of key and value
    return closed * (each * 2 * WIDTH + EACH * 2 * WIDTH + (each + 2 * EACH) * (biases > 0))


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in MODELS if name not in QUICK)]
)
def test_shrunk_equals_masked_for_every_mask_of_heads(name: str) -> None:
    sub, captured, x, number = captured_of(name)
    units = sub.sites[number].units
    full = parameters(sub.network)
    for code in range(2**units):
        mask = torch.tensor([bool(code >> bit & 1) for bit in range(units)])
        only_heads(sub, number, mask)
        small = shrunk(sub, captured)
        assert gap(sub, captured, small, x) <= TOLERANCE, mask
        closed = units - int(mask.sum())
        if closed < units:  # one head left is among them
            assert full - parameters(small) == removed_by(name, closed, units), mask
        else:  # the whole attention is gone, but for what the projection adds by itself
            assert full - parameters(small) >= removed_by(name, closed, units)
            assert not any(node.target is torch.ops.aten.softmax.int for node in small.graph.nodes)
            assert not any("scaled_dot_product" in str(node.target) for node in small.graph.nodes)


@pytest.mark.parametrize(
    "name", [*QUICK[1:3], *(pytest.param(name, marks=pytest.mark.long) for name in MODELS if name not in QUICK[1:3])]
)
def test_closed_heads_are_exact_at_other_widths(name: str) -> None:
    """Fewer widths than heads have channels, more, and unions: of all units, every third one closed."""
    sub, captured, x, _ = captured_of(name)
    for gate in sub.gates:
        gate.mask.copy_(torch.arange(len(gate.mask)) % 3 > 0)  # type: ignore[operator,arg-type]
    masks = {i: gate.mask for i, gate in enumerate(sub.gates)}
    for widths in (Widths(multiple=3), Widths(multiple=8), Widths(multiple=4, union=True)):
        small, _, _ = rewritten(captured, masks, widths)  # type: ignore[arg-type]
        assert gap(sub, captured, small, x) <= TOLERANCE, widths


@pytest.mark.parametrize("name", QUICK[:2])
def test_shrunk_equals_masked_for_random_masks_of_all_units(name: str) -> None:
    sub, captured, x, _ = captured_of(name)
    sizes = [site.units for site in sub.sites]

    @settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.tuples(*(st.lists(st.booleans(), min_size=n, max_size=n) for n in sizes)))
    def holds(masks: tuple[list[bool], ...]) -> None:
        for gate, mask in zip(sub.gates, masks, strict=True):
            gate.mask.copy_(torch.tensor(mask))  # type: ignore[operator,union-attr]
        assert gap(sub, captured, shrunk(sub, captured), x) <= TOLERANCE

    holds()


@pytest.mark.parametrize(
    "name", ["GPT-2", *(pytest.param(name, marks=pytest.mark.long) for name in ("BERT", "Qwen2, grouped queries"))]
)
def test_a_shrunk_network_takes_sentences_of_any_length(name: str) -> None:
    model, x, _, _ = made(name)
    sub = Subnetwork(model, place(model, x).sites)
    for gate in sub.gates:
        gate.mask[::2] = False  # type: ignore[index]
    small = sub.shrink(x)  # which compares in float64, at other lengths too
    assert small.shrink_report.held == ()  # type: ignore[union-attr]
    assert any("length" in case for case in small.shrink_report.differences)  # type: ignore[union-attr]
    for length in (1, 5, 12, 23):
        for samples in (1, 4):
            y = words(length, samples)
            assert torch.allclose(small(**y), sub(**y).logits, atol=1e-5)


def test_every_parameter_is_a_slice_and_the_heads_are_the_open_ones() -> None:
    model, x, projection, _ = made("LLaMA, grouped queries")
    sub = Subnetwork(model, tuple(site for site in place(model, x).sites if projection in site.name))
    sub.gates[0].mask[0] = False  # type: ignore[index]
    small = dict(sub.shrink(x).named_parameters())
    attention = projection.removesuffix("o_proj")
    weights = dict(model.named_parameters())
    for layer, width in (("q_proj", 2 * EACH), ("k_proj", EACH), ("v_proj", EACH)):
        key = f"{attention}{layer}.weight"
        assert torch.equal(small[key], weights[key][width:])
    assert torch.equal(small[f"{projection}.weight"], weights[f"{projection}.weight"][:, 2 * EACH :])


def test_masks_of_channels_inside_a_head_stay_exact() -> None:
    """Query, key and value gated by hand, channel by channel: a head keeps all its channels, and the report says so."""
    model, x, projection, _ = made("BERT")
    own = projection.replace("output.dense", "self")
    sub = Subnetwork(model, place(model, x, patterns=[f"{own}.query", f"{own}.value", f"{projection}:in"]).sites)
    random = torch.Generator().manual_seed(0)
    for gate in sub.gates:
        gate.mask.copy_(torch.rand(WIDTH, generator=random) < 0.6)  # type: ignore[operator,union-attr]
    report: Any = sub.shrink(x).shrink_report
    assert max(report.differences.values()) <= TOLERANCE
    assert any("a head keeps all its channels" in str(barrier) for barrier in report.barriers)


def test_heads_that_share_keys_in_one_function() -> None:
    """torch's own grouped queries, which repeat keys inside of attention."""

    class Grouped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.kv, self.o = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
            self.fc = nn.Linear(WIDTH, 3)

        def forward(self, x: Tensor) -> Tensor:
            q = self.q(x).unflatten(2, (HEADS, EACH)).transpose(1, 2)
            k, v = (t.unflatten(2, (2, EACH)).transpose(1, 2) for t in self.kv(x).chunk(2, 2))
            h = nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
            return self.fc(self.o(h.transpose(1, 2).flatten(2)).mean(1))

    torch.manual_seed(0)
    model, x = Grouped().eval(), torch.randn(3, 5, WIDTH)
    sites = place(model, x).sites
    assert [(site.name, site.units, site.spread) for site in sites] == [("o:in", 2, 2 * EACH)]
    for mask in ([True, False], [False, True]):
        sub = Subnetwork(model, sites, masks={"o:in": torch.tensor(mask)})
        report: Any = sub.shrink(x).shrink_report
        assert max(report.differences.values()) <= TOLERANCE
        gone = report.parameters_before - report.parameters_after
        one_group = (2 * EACH + EACH + EACH) * (WIDTH + 1) + 2 * EACH * WIDTH  # rows of q, k and v, and columns of o
        assert gone == one_group


@pytest.mark.long
def test_heads_of_several_layers() -> None:
    shape: dict[str, Any] = {**TEXT, **GROUPED, "num_hidden_layers": 3}
    torch.manual_seed(0)
    model, x = text_model("Llama", **shape).eval(), words()
    sub = Subnetwork(copy.deepcopy(model), place(model, x).sites)
    random = torch.Generator().manual_seed(0)
    for gate in sub.gates:
        gate.mask.copy_(torch.rand(gate.mask.shape, generator=random) < 0.5)  # type: ignore[operator,union-attr]
    report: Any = sub.shrink(x).shrink_report
    assert report.barriers == ()
    assert report.held == ()
