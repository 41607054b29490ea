"""Models whose filters are zero already: pruned by torch, or by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import bise
from bise.network.architectures.reference import as_if_trained
from bise.network.shrinking.verify import TOLERANCE


def convnet() -> nn.Sequential:
    """conv 3 → 8, BatchNorm, conv 8 → 6 without padding, linear 6 → 3."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.ReLU())
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
    return as_if_trained(model, pictures())  # type: ignore[return-value]


def pictures() -> Tensor:
    return torch.randn(4, 3, 10, 10, generator=torch.Generator().manual_seed(1))


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def test_filters_pruned_by_torch_are_gone_and_the_model_is_left_alone() -> None:
    model, x = convnet(), pictures()
    prune.ln_structured(model[0], "weight", amount=5, n=2, dim=0)
    prune.ln_structured(model[3], "weight", amount=2, n=1, dim=0)
    expected, before = model(x), set(model.state_dict())
    small = bise.shrink(model, x)
    torch.testing.assert_close(small(x), expected)
    found = shapes(small)
    assert found["0.weight"] == (3, 3, 3, 3)
    assert found["3.weight"] == (4, 3, 3, 3)
    assert found["7.weight"] == (3, 4)
    assert max(small.shrink_report.differences.values()) <= TOLERANCE  # type: ignore[union-attr]
    assert set(model.state_dict()) == before
    assert "0.weight_orig" in before
    assert torch.equal(model(x), expected)


def test_inputs_that_nobody_reads_take_their_filters_along() -> None:
    model, x = convnet(), pictures()
    prune.ln_structured(model[3], "weight", amount=5, n=2, dim=1)
    small = bise.shrink(model, x)
    torch.testing.assert_close(small(x), model(x))
    assert shapes(small)["0.weight"] == (3, 3, 3, 3)
    assert shapes(small)["3.weight"] == (6, 3, 3, 3)


def test_factors_of_batchnorm_that_are_zero() -> None:
    """γ = 0 leaves β behind: a constant, which goes into the next layer's bias."""
    model, x = convnet(), pictures()
    with torch.no_grad():
        model[1].weight[:6] = 0  # type: ignore[index,operator]
    small = bise.shrink(model, x)
    torch.testing.assert_close(small(x), model(x))
    assert shapes(small)["0.weight"] == (2, 3, 3, 3)
    assert shapes(small)["3.weight"] == (6, 2, 3, 3)


@pytest.mark.parametrize("align", [1, 4, "auto"])
def test_zeros_written_by_hand_are_exact_at_every_width(align: int) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(5, 12), nn.GELU(), nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 2)).eval()
    with torch.no_grad():
        for layer, rows in ((0, [0, 3, 4, 7, 11]), (2, [1, 8])):
            model[layer].weight[rows] = 0  # type: ignore[index,operator]
            model[layer].bias[rows[:1]] = 0  # type: ignore[index,operator]
    x = torch.randn(3, 5)
    small = bise.shrink(model, x, align=align)
    assert max(small.shrink_report.differences.values()) <= TOLERANCE  # type: ignore[union-attr]
    torch.testing.assert_close(small(x), model(x))
    assert shapes(small)["0.weight"][0] < 12


def test_nothing_zero_takes_nothing_away() -> None:
    model, x = convnet(), pictures()
    assert shapes(bise.shrink(model, x)) == shapes(model)


def test_all_filters_of_a_layer() -> None:
    model, x = convnet(), pictures()
    with torch.no_grad():
        model[0].weight.zero_()  # type: ignore[operator]
        model[0].bias.zero_()  # type: ignore[operator]
    torch.testing.assert_close(bise.shrink(model, x)(x), model(x))


def test_a_subnetwork_loses_closed_units() -> None:
    model, x = convnet(), pictures()
    sub = bise.subnetwork(model, {"2": torch.arange(8) > 3}, example=x)
    assert shapes(bise.shrink(sub, x)) == shapes(sub.shrink(x))
