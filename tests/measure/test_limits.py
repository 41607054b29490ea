"""Limits on audits: outcomes by hand, intervals by scipy, by a published example and by simulation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from torch import nn
from torch.utils.data import TensorDataset

import bise
from bise import BadInput
from bise.data import Labelled
from bise.measure.answers import Answers
from bise.measure.groups import Estimate, proportion
from bise.measure.limits import Verdict, _difference, judge

CELLS = ((0, 0), (0, 1), (1, 0), (1, 1))


class Told(nn.Module):
    """Answers what the input says: x holds the logits."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.fc.weight.copy_(torch.eye(2))

    def forward(self, x):
        return self.fc(x)


def data_with(hits, of):
    """A data set on which `Told` has so many right answers in each of the four cells."""
    y, b, answers = [], [], []
    for (target, bias), right, n in zip(CELLS, hits, of, strict=True):
        y += [target] * n
        b += [bias] * n
        answers += [target] * right + [1 - target] * (n - right)
    x = nn.functional.one_hot(torch.tensor(answers), 2).float() * 4
    return Labelled(TensorDataset(x), y=y, b=b, aligned={0: 0, 1: 1})


def audited(hits, of=(100, 100, 100, 100)):
    return bise.audit(Told(), data_with(hits, of), probe=False)


@pytest.mark.parametrize(("hits", "outcome"), [((50, 50, 50, 50), "fails"), ((90, 90, 90, 90), "passes")])
@pytest.mark.parametrize("gap", ["groups", "conflicting"])
def test_no_gap_of_a_model_that_guesses_is_small_enough(hits, outcome, gap):
    """Both models are as good on every group, within the same limit; one of them knows nothing."""
    (verdict,) = judge(audited(hits), gap={gap: 0.9})
    assert verdict.outcome == outcome
    assert ("the model knows nothing" in str(verdict)) == (outcome == "fails")


@pytest.mark.parametrize(
    ("limit", "outcome"), [(0.5, "passes"), (0.69, "passes"), (0.8, "undecided"), (0.9, "fails"), (0.95, "fails")]
)
def test_the_worst_group(limit, outcome):
    """80 of 100 are right in the worst of four groups; the least bounds are of scipy, at 95 % and shared by four."""
    (verdict,) = judge(audited((95, 80, 90, 97)), under={"worst_group": limit})
    low = binomtest(80, 100).proportion_ci(0.95, "wilson").low
    high = binomtest(80, 100).proportion_ci(1 - 0.05 / 4, "wilson").high
    assert verdict.interval == pytest.approx((low, high), abs=1e-9)
    assert (verdict.outcome, verdict.value, verdict.where) == (outcome, 0.8, "y=0 b=1")


def test_a_small_group_makes_the_worst_one_undecided():
    """Two of two right is 100 %, and nobody knows whether that group is better than the worst."""
    (verdict,) = judge(audited((95, 95, 95, 2), (100, 100, 100, 2)), under={"worst_group": 0.8})
    assert verdict.value == 0.95
    assert verdict.interval[0] == pytest.approx(binomtest(2, 2).proportion_ci(0.95, "wilson").low)
    assert verdict.outcome == "undecided"
    assert str(verdict).endswith("the limit is at least 80 %; more samples would decide it")


@pytest.mark.parametrize("figure", ["accuracy", "unbiased", "aligned", "conflicting"])
def test_other_figures_have_the_audits_own_intervals(figure):
    audit = audited((95, 80, 90, 97))
    (verdict,) = judge(audit, under={figure: 0.5})
    shown = getattr(audit, figure)
    expected = (shown.accuracy, shown.interval) if hasattr(shown, "n") else (shown, audit.groups.interval[figure])
    assert (verdict.value, verdict.interval) == expected
    assert verdict.outcome == "passes"


def test_gaps():
    """(95 + 97) of 200 aligned and (80 + 90) of 200 conflicting samples are right; 97 − 80 between groups."""
    audit = audited((95, 80, 90, 97))
    groups, subsets = judge(audit, gap={"groups": 0.1, "conflicting": 0.03})
    assert groups.value == pytest.approx(0.17)
    assert groups.where == "y=1 b=1 − y=0 b=1"
    assert subsets.value == pytest.approx(0.11)
    assert subsets.outcome == "fails"
    assert [judge(audit, gap=limit)[0].outcome for limit in (0.01, 0.1, 0.5)] == ["fails", "undecided", "passes"]
    (none,) = judge(audited((90, 90, 90, 90)), gap=0.0)
    assert (none.value, none.interval[0], none.outcome) == (0.0, 0.0, "undecided")


def test_newcombes_example():
    """56 of 70 against 48 of 80, method 10 of Newcombe (1998), Statistics in Medicine 17, table II."""
    assert _difference(proportion(56, 70), proportion(48, 80)) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_the_intervals_hold_what_they_promise():
    """Over draws of four groups of equal accuracy, where the choice of the extremes misleads most."""
    generator = torch.Generator().manual_seed(0)
    audit = audited((48, 48, 48, 48), (60, 60, 60, 60))
    cells, draws, worst, gaps = audit.answers.cells, 600, 0, 0
    for _ in range(draws):
        wrong = torch.rand(len(cells), generator=generator) >= 0.8
        answers = Answers(cells=cells, predicted=torch.where(wrong, 1 - cells.y, cells.y))
        verdicts = judge(replace(audit, answers=answers), under={"worst_group": 0.8}, gap=0.0)
        worst += verdicts[0].interval[0] <= 0.8 <= verdicts[0].interval[1]
        gaps += verdicts[1].interval[0] <= 0.0
    assert worst / draws > 0.95
    assert gaps / draws > 0.95


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.booleans())
def test_there_is_one_outcome_and_it_follows_the_interval(first, second, limit, is_gap):
    interval = tuple(sorted((first, second)))
    made = Verdict(figure="x", limit=limit, is_gap=is_gap, value=first, interval=interval, where="")
    kept = {end <= limit if is_gap else end >= limit for end in interval}
    assert made.outcome == {(True,): "passes", (False,): "fails"}.get(tuple(kept), "undecided")


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"under": {"worst": 0.8}}, "under=… names 'worst', which is unknown; use accuracy, unbiased, worst_group"),
        ({"under": {"worst_group": 80}}, "under=… gives worst_group the limit 80; give a share from 0 to 1"),
        ({"gap": float("nan")}, "gap=… gives groups the limit nan; give a share from 0 to 1"),
        ({"gap": {"parity": 0.1}}, "gap=… names 'parity', which is unknown; use groups, conflicting"),
        ({"gap": {"conflicting": 0.1}}, "compares aligned with conflicting samples, and the data lack one"),
        ({"under": {"conflicting": 0.1}}, "is about conflicting samples, and the data have none"),
    ],
)
def test_what_no_limit_can_be(how, sentence):
    with pytest.raises(BadInput, match=sentence):
        judge(audited((9, 0, 0, 9), (10, 0, 0, 10)), **how)


def test_one_group_has_no_gap():
    data = Labelled(TensorDataset(torch.eye(2)), y=[0, 0], b=[0, 0], classes=2)
    audit = bise.audit(Told(), data, probe=False)
    (verdict,) = judge(audit, gap=0.0)
    assert (verdict.value, verdict.interval, verdict.outcome) == (0.0, (0.0, 0.0), "passes")


def test_an_estimate_of_no_width_is_its_value():
    one = Estimate(value=0.5, variance=0.0, interval=(0.5, 0.5), n=1)
    assert _difference(one, one) == (0.0, 0.0)
