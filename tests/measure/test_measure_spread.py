"""How much accuracy differs between groups of a class: by hand, and by draws without a difference."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
import torch

from bise.measure.gaps import newcombe
from bise.measure.spread import LEAST, Tally, agreement, spreads


def counted(table):
    """Labels of {(class, group): (right, all)}."""
    y, right, group = [], [], []
    for (label, number), (hits, of) in table.items():
        y += [label] * of
        group += [number] * of
        right += [True] * hits + [False] * (of - hits)
    return Tally.count(torch.tensor(y), torch.tensor(right), torch.tensor(group))


def test_the_spread_of_two_classes_is_what_a_hand_makes_of_it():
    tally = counted({(0, 0): (90, 100), (0, 1): (50, 100), (1, 0): (80, 100), (1, 1): (40, 50)})
    (found,) = spreads([tally])
    assert found is not None
    # class 0: mean 0.7, variance 0.04, by chance 0.7 · 0.3 · 1 / 200; class 1: no difference, by chance 0.8 · 0.2 / 150
    expected = ((0.04 - 0.21 / 200) + (0 - 0.16 / 150)) / 2
    assert found.value == pytest.approx(math.sqrt(expected))
    assert found.difference == pytest.approx(0.4)
    assert found.where == (0, 0, 1)
    assert found.rates == pytest.approx((0.9, 0.5))
    assert found.shown
    z = NormalDist().inv_cdf(1 - 0.025 / 2)  # two classes of one pair each
    low, _ = newcombe(torch.tensor([90, 50]), torch.tensor([100, 100]), z)
    assert found.interval[0] == pytest.approx(float(low[0, 1]))


def test_the_more_is_looked_at_the_lower_the_lower_end():
    one = counted({(0, 0): (70, 100), (0, 1): (55, 100)})
    alone, together = spreads([one])[0], spreads([one] * 40)[0]
    assert alone is not None
    assert together is not None
    assert alone.shown
    assert not together.shown
    assert alone.interval[1] == together.interval[1]


def test_groups_that_are_small_or_unknown_are_not_compared():
    assert spreads([counted({(0, 0): (9, 9 + 90), (0, 1): (0, LEAST - 1)})]) == [None]
    assert spreads([counted({(0, 0): (50, 100), (1, 1): (50, 100)})]) == [None], "one group in each class"
    assert spreads([counted({(0, 0): (50, 100), (0, -1): (0, 100)})]) == [None]


def test_without_a_difference_few_candidates_of_many_tables_are_shown():
    generator = torch.Generator().manual_seed(0)
    shown = 0
    for _ in range(100):
        y = torch.randint(0, 2, (400,), generator=generator)
        right = torch.rand(400, generator=generator) < 0.7
        groups = [torch.randint(0, 3, (400,), generator=generator) for _ in range(10)]
        found = spreads([Tally.count(y, right, group) for group in groups])
        shown += any(one is not None and one.shown for one in found)
    assert shown <= 5 + 3 * math.sqrt(100 * 0.05 * 0.95)  # 95 % intervals for all ten together


def test_agreement_is_scikit_learns_where_both_are_known():
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(1)
    one = torch.randint(-1, 4, (300,), generator=generator)
    other = torch.where(
        torch.rand(300, generator=generator) < 0.5, one, torch.randint(-1, 3, (300,), generator=generator)
    )
    both = (one >= 0) & (other >= 0)
    expected = metrics.adjusted_mutual_info_score(one[both].tolist(), other[both].tolist())
    assert agreement(one, other) == pytest.approx(expected)
    assert agreement(one, 3 - one.clamp(min=0)) == pytest.approx(1)
    assert agreement(one, torch.full((300,), -1)) == 0
