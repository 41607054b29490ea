import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binned_statistic

from bise.measure.calibration import calibration_by_group, expected_calibration_error, sureness_by_group

samples = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60)


def columns(rows):
    return torch.tensor([c for c, _ in rows], dtype=torch.float64), torch.tensor([hit for _, hit in rows])


def test_values_by_hand():
    confidence = torch.tensor([0.55, 0.6, 0.9, 0.8, 1.0], dtype=torch.float64)
    correct = torch.tensor([True, False, True, True, False])
    # Two bins hold (0, 0.5] and (0.5, 1]: accuracy 3/5, mean confidence 0.77.
    assert expected_calibration_error(confidence, correct, bins=2) == pytest.approx(0.17)
    # Four bins: (0.5, 0.75] has 1/2 and 0.575, (0.75, 1] has 2/3 and 0.9.
    expected = 2 / 5 * 0.075 + 3 / 5 * (0.9 - 2 / 3)
    assert expected_calibration_error(confidence, correct, bins=4) == pytest.approx(expected)


def test_a_bin_holds_its_upper_edge():
    confidence = torch.tensor([0.5, 0.25, 0.75, 1.0], dtype=torch.float64)
    correct = torch.tensor([False, True, True, False])
    # (0, 0.5] holds 0.5 and 0.25: |1 − 0.75|; (0.5, 1] holds the others: |1 − 1.75|.
    # Bins closed on the left would give 0.75 and 1.25.
    assert expected_calibration_error(confidence, correct, bins=2) == pytest.approx((0.25 + 0.75) / 4)


def test_a_confidence_of_zero_joins_the_first_bin():
    confidence = torch.tensor([0.0, 0.2], dtype=torch.float64)
    # Together |1 − 0.2| / 2; a bin of its own would give (1 + 0.2) / 2.
    assert expected_calibration_error(confidence, torch.tensor([True, False]), bins=2) == pytest.approx(0.4)


def test_fifteen_bins_are_scipys():
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(500, generator=generator, dtype=torch.float64)
    correct = torch.rand(500, generator=generator) < 0.6
    gap = (correct.double() - confidence).numpy()
    sums = binned_statistic(confidence.numpy(), gap, statistic="sum", bins=15, range=(0, 1)).statistic
    assert expected_calibration_error(confidence, correct) == pytest.approx(abs(sums).sum() / 500)


@settings(deadline=None)
@given(samples)
def test_one_bin_compares_the_averages(rows):
    confidence, correct = columns(rows)
    expected = abs(float(confidence.mean() - correct.double().mean()))
    assert expected_calibration_error(confidence, correct, bins=1) == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(samples, st.sampled_from([1, 2, 4, 8]), st.sampled_from([2, 4]))
def test_finer_bins_find_no_less(rows, bins, factor):
    # Powers of two, so that the edges of coarse bins are edges of fine ones without rounding.
    confidence, correct = columns(rows)
    coarse = expected_calibration_error(confidence, correct, bins=bins)
    fine = expected_calibration_error(confidence, correct, bins=bins * factor)
    assert coarse <= fine + 1e-12
    assert fine <= 1


def test_groups_are_measured_apart():
    confidence = torch.tensor([0.9, 0.9, 0.9, 0.9], dtype=torch.float64)
    correct = torch.tensor([True, False, True, False])
    cell = torch.tensor([4, 2, 4, 2])
    result = calibration_by_group(confidence, correct, cell, {2: "wrong", 3: "empty", 4: "right"})
    assert list(result) == ["wrong", "right"]
    assert result == pytest.approx({"wrong": 0.9, "right": 0.1})


def test_bins_reach_the_groups():
    confidence = torch.tensor([0.2, 0.8], dtype=torch.float64)
    correct, cell = torch.tensor([True, False]), torch.tensor([0, 0])
    assert calibration_by_group(confidence, correct, cell, {0: "a"}, bins=1) == pytest.approx({"a": 0.0})
    assert calibration_by_group(confidence, correct, cell, {0: "a"}, bins=2) == pytest.approx({"a": 0.8})


@pytest.mark.parametrize("value", [1.5, -0.1, math.nan])
def test_a_logit_is_refused(value):
    with pytest.raises(ValueError, match=r"confidence: .* is not a probability"):
        expected_calibration_error(torch.tensor([0.5, value]), torch.tensor([True, True]))


def test_errors_name_the_argument():
    with pytest.raises(ValueError, match="bins: 0"):
        expected_calibration_error(torch.tensor([0.5]), torch.tensor([True]), bins=0)
    with pytest.raises(ValueError, match="no name for cell 1"):
        calibration_by_group(torch.tensor([0.5]), torch.tensor([True]), torch.tensor([1]), {0: "a"})
    with pytest.raises(ValueError, match="'a' names several cells"):
        calibration_by_group(
            torch.tensor([0.5, 0.5]), torch.tensor([True, True]), torch.tensor([0, 1]), {0: "a", 1: "a"}
        )


def test_how_much_too_sure_by_hand():
    """Always 90 % sure, and right on 60 of 100 and on all 10: Wilson's intervals are 50.2 to 69.1 and 72.2 to 100 %."""
    correct = torch.tensor([True] * 60 + [False] * 40 + [True] * 10)
    cell = torch.tensor([0] * 100 + [3] * 10)
    found = sureness_by_group(torch.full((110,), 0.9), correct, cell, {0: "a", 3: "b"})
    assert (found["a"].confidence, found["a"].too_sure) == pytest.approx((0.9, 0.3))
    assert found["a"].interval == pytest.approx((0.9 - 0.6906, 0.9 - 0.5020), abs=1e-4)
    assert found["b"].too_sure == pytest.approx(-0.1)
    assert found["b"].interval == pytest.approx((-0.1, 0.9 - 0.7225), abs=1e-4)


def test_the_interval_holds_0_for_a_network_that_is_right_as_often_as_it_is_sure():
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(200, 200, generator=generator)
    correct = torch.rand(200, 200, generator=generator) < confidence
    cell = torch.arange(200).repeat_interleave(200)
    found = sureness_by_group(confidence.flatten(), correct.flatten(), cell, {i: str(i) for i in range(200)})
    assert sum(one.interval[0] <= 0 <= one.interval[1] for one in found.values()) >= 0.95 * 200
