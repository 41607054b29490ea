import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from bise.measure.groups import group_accuracy, subset_accuracy, wilson

Z = 1.959963984540054


def flags(*pairs: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Cell i with pairs[i] = (correct, n) samples."""
    correct = [k < hits for hits, n in pairs for k in range(n)]
    cell = [i for i, (_, n) in enumerate(pairs) for _ in range(n)]
    return torch.tensor(correct, dtype=torch.bool), torch.tensor(cell, dtype=torch.int64)


def adjusted_variance(hits: int, n: int) -> float:
    p = (hits + Z * Z / 2) / (n + Z * Z)
    return p * (1 - p) / n


@settings(deadline=None)
@given(st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_scipys(pair):
    correct, n = pair
    expected = binomtest(correct, n).proportion_ci(0.95, method="wilson")
    assert wilson(correct, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


@settings(deadline=None)
@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_proportion_and_stays_in_the_unit_interval(pair):
    correct, n = pair
    low, high = wilson(correct, n)
    assert 0 <= low <= correct / n <= high <= 1
    assert low < high


def test_wilson_by_hand_with_another_z():
    # z = 1, 1 of 2: centre (0.5 + 0.25) / 1.5, half sqrt(0.125 + 0.0625) / 1.5
    half = math.sqrt(0.1875) / 1.5
    assert wilson(1, 2, z=1.0) == pytest.approx((0.5 - half, 0.5 + half))


def test_wilson_without_samples_is_nan():
    assert all(math.isnan(end) for end in wilson(0, 0))


@pytest.mark.parametrize(("correct", "n"), [(3, 2), (-1, 2), (0, -1)])
def test_wilson_refuses_impossible_counts(correct, n):
    with pytest.raises(ValueError, match=rf"{correct} of n = {n}"):
        wilson(correct, n)


def test_group_accuracy_by_hand():
    correct, cell = flags((8, 8), (1, 4), (0, 0), (6, 8))
    result = group_accuracy(correct, cell, {0: "a", 1: "b", 2: "empty", 3: "c"})
    assert result.accuracy == 15 / 20
    assert result.by_group == {"a": 1.0, "b": 0.25, "c": 0.75}
    assert list(result.by_group) == ["a", "b", "c"]
    assert result.n_by_group == {"a": 8, "b": 4, "c": 8}
    assert result.unbiased == pytest.approx(2 / 3)
    assert (result.worst_group, result.worst_group_name) == (0.25, "b")

    assert result.interval["accuracy"] == wilson(15, 20)
    assert result.interval["worst_group"] == wilson(1, 4)
    assert result.interval_by_group == {"a": wilson(8, 8), "b": wilson(1, 4), "c": wilson(6, 8)}
    half = Z * math.sqrt(adjusted_variance(8, 8) + adjusted_variance(1, 4) + adjusted_variance(6, 8)) / 3
    assert result.interval["unbiased"] == pytest.approx((2 / 3 - half, 2 / 3 + half))


def test_the_order_of_samples_does_not_matter():
    correct, cell = flags((3, 5), (2, 9), (7, 7))
    shuffled = torch.randperm(len(cell), generator=torch.Generator().manual_seed(0))
    names = {0: "a", 1: "b", 2: "c"}
    assert group_accuracy(correct[shuffled], cell[shuffled], names) == group_accuracy(correct, cell, names)


def test_a_group_is_the_mean_of_its_cells_not_of_its_samples():
    correct, cell = flags((90, 100), (1, 2), (0, 0), (3, 10))
    names = dict(enumerate("pqrs"))
    result = group_accuracy(correct, cell, names, {0: "one", 1: "one", 2: "one", 3: "two"})
    assert result.by_group == pytest.approx({"one": 0.7, "two": 0.3})
    assert result.n_by_group == {"one": 102, "two": 10}
    assert result.unbiased == pytest.approx(0.5)
    assert (result.worst_group, result.worst_group_name) == (pytest.approx(0.3), "two")
    assert result.accuracy == 94 / 112

    variance_one = (adjusted_variance(90, 100) + adjusted_variance(1, 2)) / 4
    half = Z * math.sqrt(variance_one)
    assert result.interval_by_group["one"] == pytest.approx((0.7 - half, min(1, 0.7 + half)))
    assert result.interval_by_group["two"] == wilson(3, 10)
    half = Z * math.sqrt((variance_one + adjusted_variance(3, 10)) / 4)
    assert result.interval["unbiased"] == pytest.approx((0.5 - half, 0.5 + half))


def test_perfect_cells_still_have_an_interval():
    correct, cell = flags((5, 5), (5, 5))
    low, high = group_accuracy(correct, cell, {0: "a", 1: "b"}).interval["unbiased"]
    assert high == 1
    assert 0.7 < low < 0.9


def test_one_cell_makes_all_averages_equal():
    correct, cell = flags((3, 7))
    result = group_accuracy(correct, cell, {0: "a"})
    assert result.accuracy == result.unbiased == result.worst_group == 3 / 7
    assert set(result.interval.values()) == {wilson(3, 7)}


def test_of_several_worst_groups_the_first_is_named():
    correct, cell = flags((2, 2), (1, 2), (1, 2))
    assert group_accuracy(correct, cell, {0: "x", 1: "w", 2: "a"}).worst_group_name == "w"


@pytest.mark.parametrize(
    ("truth", "sizes"),
    [
        ([0.95, 0.6, 0.8], [20, 50, 100]),
        ([0.75] * 40, [5] * 40),
        ([0.8] * 40, [2] * 40),
        ([0.6] * 40, [10] * 40),
        ([0.9, 0.9, 0.9, 0.5], [1000, 1000, 1000, 1]),
    ],
    ids=["a few", "cells of five", "of two", "of ten", "one of one"],
)
def test_the_unbiased_interval_covers_the_truth(truth, sizes):
    cell = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    generator = torch.Generator().manual_seed(0)
    names = {i: str(i) for i in range(len(sizes))}
    covered = 0
    for _ in range(500):
        correct = torch.rand(len(cell), generator=generator) < torch.tensor(truth)[cell]
        low, high = group_accuracy(correct, cell, names).interval["unbiased"]
        covered += low <= math.fsum(truth) / len(truth) <= high
    # Nominal 0.95; the standard deviation of the share over 500 draws is 0.01.
    assert covered / 500 >= 0.92
    assert min(sizes) < 20 or covered / 500 <= 0.99  # small cells may have too wide an interval


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=60))
def test_averages_are_ordered_and_inside_their_intervals(samples):
    correct = torch.tensor([hit for hit, _ in samples])
    cell = torch.tensor([c for _, c in samples])
    result = group_accuracy(correct, cell, {c: str(c) for c in range(6)}, {c: str(c % 3) for c in range(6)})
    assert result.worst_group <= result.unbiased + 1e-12
    assert sum(result.n_by_group.values()) == len(samples)
    for name, value in [("accuracy", result.accuracy), ("unbiased", result.unbiased)]:
        low, high = result.interval[name]
        assert 0 <= low <= value <= high <= 1
    assert result.by_group.keys() == result.n_by_group.keys() == result.interval_by_group.keys()


def test_errors_name_the_cell():
    correct, cell = flags((1, 2), (1, 2))
    with pytest.raises(ValueError, match="names: no name for cell 1"):
        group_accuracy(correct, cell, {0: "a"})
    with pytest.raises(ValueError, match=r"groups: no group for cell 1 \(b\)"):
        group_accuracy(correct, cell, {0: "a", 1: "b"}, {0: "g"})
    with pytest.raises(ValueError, match="'a' names 2 cells"):
        group_accuracy(correct, cell, {0: "a", 1: "a"})


def test_errors_name_the_tensor():
    correct, cell = flags((1, 2), (1, 2))
    names = {0: "a", 1: "b"}
    with pytest.raises(TypeError, match=r"correct: dtype torch\.float32"):
        group_accuracy(correct.float(), cell, names)
    with pytest.raises(TypeError, match=r"cell: dtype torch\.float32"):
        group_accuracy(correct, cell.float(), names)
    with pytest.raises(ValueError, match=r"lengths \[3, 4\]"):
        group_accuracy(correct[:3], cell, names)
    with pytest.raises(ValueError, match="0 samples"):
        group_accuracy(correct[:0], cell[:0], names)
    with pytest.raises(ValueError, match=r"correct: shape \[4, 1\]"):
        group_accuracy(correct[:, None], cell, names)


def test_subset_accuracy_by_hand():
    correct = torch.tensor([True, False, True, True])
    mask = torch.tensor([True, True, True, False])
    assert subset_accuracy(correct, mask) == (2 / 3, wilson(2, 3), 3)


def test_subset_accuracy_of_nothing_is_nan():
    accuracy, interval, n = subset_accuracy(torch.tensor([True]), torch.tensor([False]))
    assert math.isnan(accuracy)
    assert all(math.isnan(end) for end in interval)
    assert n == 0
