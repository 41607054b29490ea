"""Gaps with their intervals: published intervals, fairlearn's values, and coverage by simulation."""

from __future__ import annotations

import math

import fairlearn.metrics as oracle
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bise.measure.fairness import demographic_parity_difference, equalized_odds_difference, true_positive_gaps
from bise.measure.gaps import gaps, newcombe
from bise.measure.groups import Z95


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((56, 70), (48, 80), (0.0524, 0.3339)),
        ((9, 10), (3, 10), (0.1705, 0.8090)),
        ((6, 7), (2, 7), (0.0582, 0.8062)),
        ((5, 56), (0, 29), (-0.0381, 0.1926)),
        ((0, 10), (0, 20), (-0.1611, 0.2775)),
        ((10, 10), (0, 20), (0.6791, 1.0)),
    ],
)
def test_newcombes_own_examples(one, other, expected):
    """Statistics in Medicine 17 (1998), 873 to 890, table II, method 10."""
    low, high = newcombe(torch.tensor([one[0], other[0]]), torch.tensor([one[1], other[1]]), Z95)
    assert (float(low[0, 1]), float(high[0, 1])) == pytest.approx(expected, abs=6e-5)
    assert (float(low[1, 0]), float(high[1, 0])) == pytest.approx((-expected[1], -expected[0]), abs=6e-5)


label = st.integers(0, 2)


@settings(deadline=None)
@given(st.lists(st.tuples(label, label, label), min_size=4, max_size=60))
def test_values_are_those_of_the_differences_and_their_rates(rows):
    y, predicted, b = torch.tensor(rows).unbind(1)
    assume(len(b.unique()) > 1)
    found = gaps(y, predicted, b=b)
    expected = (
        (found.demographic_parity, demographic_parity_difference(y, predicted, b=b)),
        (found.equalized_odds, equalized_odds_difference(y, predicted, b=b)),
        *((found.true_positive[c], gap) for c, gap in true_positive_gaps(y, predicted, b=b).items()),
    )
    for gap, value in expected:
        if math.isnan(value):
            assert gap is None
            continue
        assert gap.value == pytest.approx(value, abs=1e-12)
        assert gap.interval[0] <= gap.value <= gap.interval[1]
        assert 0 <= gap.interval[0] <= gap.interval[1] <= 1
        among = {"given": y == y, "right": y == gap.answer, "wrong": y != gap.answer}[gap.kind]
        for end, rate in zip((gap.high, gap.low), gap.rates, strict=True):
            mine = predicted[among & (b == end)] == gap.answer
            assert rate == pytest.approx(float(mine.double().mean()), abs=1e-12)
        assert gap.rates[0] - gap.rates[1] == pytest.approx(gap.value, abs=1e-12)


def test_two_classes_are_fairlearns():
    generator = torch.Generator().manual_seed(0)
    y, b = torch.randint(2, (2, 500), generator=generator)
    predicted = torch.where(torch.rand(500, generator=generator) < 0.7 + 0.2 * b, y, 1 - y)
    found = gaps(y, predicted, b=b)
    given = y.numpy(), predicted.numpy()
    for gap, theirs in (
        (found.demographic_parity, oracle.demographic_parity_difference),
        (found.equalized_odds, oracle.equalized_odds_difference),
    ):
        assert gap.value == pytest.approx(theirs(*given, sensitive_features=b.numpy()), abs=1e-12)
    frame = oracle.MetricFrame(
        metrics=oracle.true_positive_rate, y_true=given[0], y_pred=given[1], sensitive_features=b.numpy()
    )
    assert found.true_positive[1].value == pytest.approx(frame.difference(), abs=1e-12)
    # of two groups and two classes, demographic parity is one difference: Newcombe's interval as it is
    counts = [int((predicted[b == k] == 1).sum()) for k in range(2)], [int((b == k).sum()) for k in range(2)]
    low, high = newcombe(*map(torch.tensor, counts), Z95)
    one, other = (1, 0) if low[1, 0] > low[0, 1] else (0, 1)
    ends = max(0.0, float(low[one, other])), float(high[one, other])
    assert found.demographic_parity.interval == pytest.approx(ends, abs=1e-12)


@pytest.mark.parametrize("apart", [0.0, 0.25])
def test_the_interval_holds_the_true_gap(apart):
    """Three classes and three groups, in one of which errors are more frequent: of 200 draws, at least 95 % hold it."""
    generator = torch.Generator().manual_seed(1)
    y, b = torch.arange(450) % 3, torch.arange(450) // 3 % 3
    right = 0.8 - apart * (b == 2)
    held = {"demographic_parity": 0, "equalized_odds": 0}
    for _ in range(200):
        wrong = (y + torch.randint(1, 3, (450,), generator=generator)) % 3
        predicted = torch.where(torch.rand(450, generator=generator) < right, y, wrong)
        found = gaps(y, predicted, b=b)
        # errors go to either other class alike, so that each class is the answer to a third of every group
        for kind, truth in (("demographic_parity", 0.0), ("equalized_odds", apart)):
            low, high = getattr(found, kind).interval
            held[kind] += low <= truth <= high
    assert min(held.values()) >= 0.95 * 200


def test_too_many_differences_have_no_interval():
    c = torch.arange(200)
    y, b = torch.cat([c, c]), torch.cat([c, (c + 1) % 200])  # 200³ differences
    found = gaps(y, y, b=b)
    assert (found.demographic_parity.value, found.demographic_parity.interval) == (0.5, None)
    assert found.equalized_odds.value == 0


def test_one_value_of_the_bias_has_no_gap():
    y = torch.tensor([0, 1, 1])
    found = gaps(y, y, b=torch.zeros(3, dtype=torch.long))
    assert (found.demographic_parity, found.equalized_odds, found.true_positive) == (None, None, {0: None, 1: None})
