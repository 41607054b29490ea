"""Whole classifiers: exact under random masks and with each site closed wholly; weights are slices of the original."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from bise.base.errors import BadInput
from bise.network.architectures.reference import REFERENCES, as_if_trained
from bise.network.placement import place
from bise.network.shrinking.capture import capture
from bise.network.shrinking.removal import rewritten
from bise.network.shrinking.verify import TOLERANCE, as_float64, check, difference, in_float64
from bise.network.subnetwork import Subnetwork, subnetwork
from test_shrink_rules import Net, conv

QUICK = ("SimpleConvNet", "MLP", "resnet18", "BERT", "ViT (transformers)")


def made(name: str) -> tuple[Subnetwork, Any]:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the libraries say while their own models are built
        model = as_if_trained(REFERENCES[name].make(), REFERENCES[name].batch(8))
    x = REFERENCES[name].batch(2)
    return Subnetwork(model, place(model, x).sites), x


def close(sub: Subnetwork, share: float, random: torch.Generator) -> None:
    for gate in sub.gates:
        gate.mask.copy_(torch.rand(gate.mask.shape, generator=random) >= share)  # type: ignore[operator,union-attr]


def masks_of(sub: Subnetwork) -> dict[int, Tensor]:
    return {number: gate.mask for number, gate in enumerate(sub.gates)}  # type: ignore[misc]


def exact_under_all_masks(name: str) -> None:
    sub, x = made(name)
    captured = capture(sub, x)
    random = torch.Generator().manual_seed(1)
    for share in (0.1, 0.5, 0.9):
        close(sub, share, random)
        small, _, _ = rewritten(captured, masks_of(sub))
        gaps = check(copy.deepcopy(sub).double(), in_float64(small), as_float64(x), captured)
        assert max(gaps.values()) <= TOLERANCE
        assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in sub.network.parameters())
    masked = copy.deepcopy(sub).double()
    for number in range(len(sub.gates)):
        for both in (sub, masked):
            for other, gate in enumerate(both.gates):
                gate.mask.fill_(other != number)  # type: ignore[operator,union-attr]
        small, _, _ = rewritten(captured, masks_of(sub))
        assert difference(masked, in_float64(small), as_float64(x)) <= TOLERANCE, sub.sites[number].name


@pytest.mark.parametrize("name", QUICK)
def test_exact(name: str) -> None:
    exact_under_all_masks(name)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in REFERENCES if name not in QUICK])
def test_exact_on_all_twenty(name: str) -> None:
    exact_under_all_masks(name)


@pytest.mark.parametrize("name", ["SimpleConvNet", "MLP", "BERT"])
def test_every_parameter_is_a_slice_bit_for_bit(name: str) -> None:
    sub, x = made(name)
    close(sub, 0.5, torch.Generator().manual_seed(3))
    for gate in sub.gates:
        gate.mask[0] = True  # type: ignore[index]  # a site without any would leave a constant behind
    small = sub.shrink(x)
    original = dict(sub.network.named_parameters())
    seen = dict(small.named_parameters())
    assert set(seen) <= set(original)
    for key, value in seen.items():
        entries = set(original[key].flatten().tolist())
        assert all(v in entries for v in value.flatten().tolist()), key
        if value.dim() == 1 and value.shape == original[key].shape:
            assert torch.equal(value, original[key])
    assert not any(key.startswith(("bias_", "border_", "constant_")) for key, _ in small.named_buffers())


def test_the_slices_are_the_open_units() -> None:
    """SimpleConvNet by hand: filters of open units, inputs of the open units before."""
    sub, x = made("SimpleConvNet")
    close(sub, 0.5, torch.Generator().manual_seed(4))
    seen = dict(sub.shrink(x).named_parameters())
    masks = list(sub.masks.values())
    full = dict(sub.network.named_parameters())
    before = torch.ones(3, dtype=torch.bool)
    for i, mask in enumerate(masks):
        assert torch.equal(seen[f"blocks.{i}.0.weight"], full[f"blocks.{i}.0.weight"][mask][:, before])
        assert torch.equal(seen[f"blocks.{i}.0.bias"], full[f"blocks.{i}.0.bias"][mask])
        assert torch.equal(seen[f"blocks.{i}.1.weight"], full[f"blocks.{i}.1.weight"][mask])
        before = mask
    assert torch.equal(seen["fc.weight"], full["fc.weight"][:, before])


def test_report_and_plain_module() -> None:
    sub, x = made("SimpleConvNet")
    close(sub, 0.5, torch.Generator().manual_seed(5))
    small = sub.shrink(x)
    assert isinstance(small, fx.GraphModule)
    report = small.shrink_report
    assert report.parameters_before == 531_210
    assert report.parameters_after == sum(p.numel() for p in small.parameters())
    assert set(report.differences) >= {"example", "random", "random, one sample", "random, another resolution"}
    assert max(report.differences.values()) <= TOLERANCE
    assert report.float32 < 1e-5
    assert report.barriers == ()
    assert small(x).shape == (2, 10)


def test_folded_batchnorm_is_exact_and_gone() -> None:
    sub, x = made("SimpleConvNet")
    close(sub, 0.5, torch.Generator().manual_seed(6))
    small = sub.shrink(x, fold_batchnorm=True)
    assert not any(node.target is torch.ops.aten.batch_norm.default for node in small.graph.nodes)  # type: ignore[union-attr]
    assert max(small.shrink_report.differences.values()) <= TOLERANCE  # type: ignore[union-attr]


def test_folding_takes_in_constants_that_shrinking_made() -> None:
    """A closed unit before a depthwise layer with BatchNorm is a constant behind it, for the next layer to read."""
    x = torch.randn(2, 3, 8, 8)
    tail = nn.Sequential(
        conv(outputs=4, groups=4), nn.BatchNorm2d(4), nn.Sigmoid(), nn.Conv2d(4, 5, 1, bias=False), nn.BatchNorm2d(5)
    )
    model = as_if_trained(Net(tail, 0.0), x)
    sub = subnetwork(model, {"act": [True, False, True, False]}, example=x)
    plain, folded = sub.shrink(x), sub.shrink(x, fold_batchnorm=True)
    assert any(key.startswith("bias_") for key, _ in plain.named_buffers())
    for small in (plain, folded):
        assert max(small.shrink_report.differences.values()) <= TOLERANCE  # type: ignore[union-attr]
        assert all(t.dtype != torch.float64 for t in small.state_dict().values())


def test_the_subnetwork_is_left_alone() -> None:
    sub, x = made("MLP")
    before = {key: value.clone() for key, value in sub.state_dict().items()}
    sub.train()
    modes = [module.training for module in sub.modules()]
    small = sub.shrink(x)
    assert [module.training for module in sub.modules()] == modes
    for parameter in small.parameters():
        parameter.data.zero_()
    assert all(torch.equal(before[key], value) for key, value in sub.state_dict().items())


def test_barrier_is_named_or_raised() -> None:
    x = torch.randn(2, 3, 8, 8)
    model = Net(nn.Sequential(nn.GroupNorm(2, 4), conv()), 0.0).eval()
    sub = subnetwork(model, {"act": [True, False, True, True]}, example=x)
    small = sub.shrink(x)
    (barrier,) = small.shrink_report.barriers  # type: ignore[union-attr,misc]
    assert barrier.module == "tail.0"
    assert barrier.channels == 1
    with pytest.raises(BadInput, match=r"tail\.0 \(group_norm\)"):
        sub.shrink(x, on_barrier="raise")
    with pytest.raises(BadInput, match="on_barrier='drop'"):
        sub.shrink(x, on_barrier="drop")  # type: ignore[arg-type]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.act = nn.ReLU()
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.conv(x))
        return self.head(self.conv(x).mean((2, 3)))


def test_shared_weight_is_a_barrier() -> None:
    x = torch.randn(2, 3, 8, 8)
    sub = subnetwork(Tied().eval(), {"act": [True, False, False]}, example=x)
    small = sub.shrink(x)
    assert [b.module for b in small.shrink_report.barriers] == ["conv"]  # type: ignore[union-attr]
    assert "shared" in small.shrink_report.barriers[0].reason  # type: ignore[union-attr]


class Rounding(nn.Module):
    """Rounds to float32 by itself, whatever precision it runs in."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.head = nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(self.first(x))
        return self.head(h.to(torch.float32).to(x.dtype))


def test_a_model_that_rounds_by_itself_still_passes_the_check() -> None:
    x = torch.randn(2, 6)
    sub = subnetwork(Rounding().eval(), {"act": [True, False, True, True]}, example=x)
    assert max(sub.shrink(x).shrink_report.differences.values()) <= TOLERANCE  # type: ignore[union-attr]


def test_a_batch_of_one_is_refused() -> None:
    sub, x = made("MLP")
    with pytest.raises(BadInput, match="batch of 1"):
        sub.shrink(x[:1])


class Flattening(nn.Module):
    """Filters that reach a linear layer through a view: each owns a run of features; the size is fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.hidden, self.fc = nn.Conv2d(3, 6, 3), nn.Linear(6 * 49, 20), nn.Linear(20, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.conv(x).relu(), 2)
        return self.fc(self.hidden(x.view(x.size(0), -1)).relu())


def test_a_picture_flattened_by_a_view() -> None:
    torch.manual_seed(0)
    model, x = Flattening().eval(), torch.randn(4, 3, 16, 16)
    masks = {"hidden:in": torch.tensor([True, False, True, False, False, True]), "fc:in": torch.arange(20) % 4 > 0}
    small = subnetwork(model, masks, example=x).shrink(x)
    assert max(small.shrink_report.differences.values()) <= TOLERANCE  # type: ignore[union-attr]
    # three filters, fifteen hidden units
    assert sum(p.numel() for p in small.parameters()) == 3 * 28 + (3 * 49 + 1) * 15 + (15 + 1) * 3


def test_a_buffer_that_counts_is_refused_by_name() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return self.body(x)

    with pytest.raises(BadInput, match="^calls: the forward pass updates this buffer"):
        subnetwork(Counting(), {"body.1": torch.arange(6) > 2}).shrink(torch.randn(3, 4))
