"""What passes as rounding: a fixed bound, or the network's own noise; a wrong result never does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bise.network.placement import place
from bise.network.shrinking.capture import Captured, capture
from bise.network.shrinking.removal import rewritten
from bise.network.shrinking.verify import (
    HALF_THE_DIGITS,
    TIMES_NOISE,
    TOLERANCE,
    NotExact,
    allowed,
    check,
    difference,
    in_float64,
    noise,
)
from bise.network.subnetwork import Subnetwork


class Cancelling(nn.Module):
    """Large numbers that nearly cancel: what is left has lost as many digits as `digits` says."""

    def __init__(self, digits: int) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Linear(6, 40), nn.Sigmoid(), nn.Linear(40, 3)
        self.last.weight.data.mul_(10.0**digits)
        self.register_buffer("middle", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.act(self.first(x))) - self.middle


def cancelling(digits: int) -> tuple[Subnetwork, Captured, Tensor]:
    """A network of which every third unit is closed, in float64, on samples that are nearly the same."""
    torch.manual_seed(0)
    x = torch.randn(1, 6).repeat(4, 1).double() + 10.0 ** -(digits + 2) * torch.randn(4, 6).double()
    model = Cancelling(digits).double()
    with torch.no_grad():
        sub = Subnetwork(model, place(model, x).sites)
        sub.gates[0].mask[::3] = False  # type: ignore[index]
        model.middle.copy_(sub(x).mean(0) - 1.0)
    return sub, capture(sub, x), x


def shrunk(sub: Subnetwork, captured: Captured) -> Any:
    return in_float64(rewritten(captured, {0: sub.gates[0].mask})[0])  # type: ignore[dict-item]


def test_noise_is_what_the_last_digit_of_the_input_makes() -> None:
    """A linear network by hand: y = 10⁶ · (x₁ − x₂) = 1 for x₁ ≈ x₂ ≈ 1 moves by up to two units of 10⁶ · 2⁻⁵²."""
    layer = nn.Linear(2, 1, bias=False).double()
    layer.weight.data.copy_(torch.tensor([[1e6, -1e6]]))
    x = torch.tensor([[1.25, 1.25 - 1e-6]], dtype=torch.float64)
    ulp = 2.0**-52
    assert 0.4 * ulp * 1e6 <= noise(layer, x) <= 2.1 * ulp * 1e6
    plain = nn.Linear(2, 1).double()
    assert noise(plain, x) < 1e-14


def test_the_bound_is_the_fixed_one_unless_the_noise_is_larger_and_never_half_the_digits() -> None:
    assert allowed(0.0) == allowed(1e-16) == TOLERANCE == 1e-10
    assert allowed(1e-11) == TIMES_NOISE * 1e-11
    assert allowed(1e-3) == allowed(float("inf")) == HALF_THE_DIGITS == 2.0**-26


def test_rounding_of_a_network_that_loses_digits_is_none_of_ours() -> None:
    sub, captured, x = cancelling(digits=7)
    small = shrunk(sub, captured)
    assert TOLERANCE < difference(sub, small, x) < 1e-7  # sums in another order
    with pytest.raises(NotExact, match="at most 1e-10 is rounding"):
        check(sub, small, x, captured)
    found = check(sub, small, x, captured, by_noise=True)
    assert found.noise > TOLERANCE / TIMES_NOISE
    report: Any = sub.shrink(x).shrink_report
    assert report.noise == found.noise
    assert "what the input's last digit makes of the masked network alone" in str(report)
    assert TOLERANCE < max(report.differences.values()) <= allowed(report.noise)


@pytest.mark.parametrize("digits", [0, 6])
@pytest.mark.parametrize("wrong", ["a constant", "a weight", "a channel"])
def test_a_wrong_result_is_refused_all_the_same(digits: int, wrong: str) -> None:
    """Errors of rewriting, put into a right result: a constant forgotten, a weight, units in wrong order."""
    sub, captured, x = cancelling(digits)
    small = copy.deepcopy(shrunk(sub, captured))
    with torch.no_grad():
        weight, bias = small.last.weight, small.last.bias
        if wrong == "a constant":
            bias.add_(1e-7 * weight.abs().max())
        elif wrong == "a weight":
            weight[0, 0] *= 1 + 1e-6
        else:
            weight[:, :2] = weight[:, :2].flip(1)
    with pytest.raises(NotExact, match="the shrunk network differs from the masked one"):
        check(sub, small, x, captured, by_noise=True)


def test_a_network_without_numbers_in_its_input_is_shaken_at_its_embeddings() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.fc = nn.Embedding(9, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.words(x).mean(1))

    model, x = Words().double(), torch.arange(6).view(2, 3)
    before = model.words.weight.clone()
    assert 0 < noise(model, x) < 1e-14
    assert torch.equal(model.words.weight, before)
