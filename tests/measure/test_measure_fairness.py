import math

import fairlearn.metrics as oracle
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bise.measure.fairness import (
    demographic_parity_difference,
    equalized_odds_difference,
    true_positive_gaps,
)


def samples(classes: int, biases: int):
    label = st.integers(0, classes - 1)
    return st.lists(st.tuples(label, label, st.integers(0, biases - 1)), min_size=8, max_size=60)


def columns(rows):
    y_true, y_pred, b = torch.tensor(rows).unbind(dim=1)
    return y_true, y_pred, b


def every_cell_has_samples(y_true, b, classes):
    present = set(zip(y_true.tolist(), b.tolist(), strict=True))
    return present == {(y, value) for y in range(classes) for value in b.unique().tolist()}


def one_against_rest(metric, y_true, y_pred, b, classes):
    return max(
        metric((y_true == c).int().numpy(), (y_pred == c).int().numpy(), sensitive_features=b.numpy())
        for c in range(classes)
    )


@settings(deadline=None)
@given(samples(2, 3))
def test_binary_demographic_parity_is_fairlearns(rows):
    y_true, y_pred, b = columns(rows)
    assume(len(b.unique()) > 1)
    expected = oracle.demographic_parity_difference(y_true.numpy(), y_pred.numpy(), sensitive_features=b.numpy())
    assert demographic_parity_difference(y_true, y_pred, b=b) == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(samples(2, 3), st.lists(st.integers(0, 1), min_size=6, max_size=6))
def test_binary_equalized_odds_is_fairlearns(rows, predictions):
    # One sample in each cell first, so that every rate is defined.
    one_each = [(k % 2, prediction, k // 2) for k, prediction in enumerate(predictions)]
    y_true, y_pred, b = columns(one_each + rows)
    expected = oracle.equalized_odds_difference(y_true.numpy(), y_pred.numpy(), sensitive_features=b.numpy())
    assert equalized_odds_difference(y_true, y_pred, b=b) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_several_classes_are_fairlearns_one_against_rest(seed):
    generator = torch.Generator().manual_seed(seed)
    y_true, y_pred = torch.randint(4, (2, 400), generator=generator)
    b = torch.randint(5, (400,), generator=generator)
    y_pred = torch.where(b == 0, y_true, y_pred)
    assert every_cell_has_samples(y_true, b, 4)
    for ours, theirs in [
        (demographic_parity_difference, oracle.demographic_parity_difference),
        (equalized_odds_difference, oracle.equalized_odds_difference),
    ]:
        expected = one_against_rest(theirs, y_true, y_pred, b, 4)
        assert ours(y_true, y_pred, b=b) == pytest.approx(expected, abs=1e-12)


def test_values_by_hand():
    y_true = torch.tensor([0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1])
    y_pred = torch.tensor([0, 0, 1, 1, 1, 0, 1, 1, 0, 0, 0])
    b = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    # Class 1 is predicted for 3 of 5 and 2 of 6.
    assert demographic_parity_difference(y_true, y_pred, b=b) == pytest.approx(3 / 5 - 2 / 6)
    # Of y = 1: 2 of 2 and 1 of 4. Of y = 0: 2 of 3 and 1 of 2.
    assert true_positive_gaps(y_true, y_pred, b=b) == pytest.approx({0: 2 / 3 - 1 / 2, 1: 1 - 1 / 4})
    assert equalized_odds_difference(y_true, y_pred, b=b) == pytest.approx(1 - 1 / 4)


def test_the_false_positive_spread_counts():
    y_true = torch.tensor([1, 0, 0, 1, 0, 0])
    y_pred = torch.tensor([1, 0, 0, 1, 1, 0])
    b = torch.tensor([0, 0, 0, 1, 1, 1])
    assert equalized_odds_difference(y_true, y_pred, b=b) == 0.5


def test_the_false_positive_spread_counts_for_itself_with_three_classes():
    # 1 occurs with b = 0 only and is recognised; 2 occurs with b = 1 only and is taken for 0, which is
    # recognised everywhere: no true positive rate differs between two values of b, but 0 is falsely predicted
    # for none of b = 0 and all of b = 1.
    y_true, y_pred = torch.tensor([0, 1, 0, 2]), torch.tensor([0, 1, 0, 0])
    b = torch.tensor([0, 0, 1, 1])
    assert true_positive_gaps(y_true, y_pred, b=b)[0] == 0
    assert equalized_odds_difference(y_true, y_pred, b=b) == 1


def test_thousands_of_labels_take_no_table_of_every_target_by_every_answer():
    """3,000³ counts would be 200 GB; class c has a sample with b = c and one with b = c + 1, all right but one."""
    c = torch.arange(3000)
    y_true, b = torch.cat([c, c]), torch.cat([c, (c + 1) % 3000])
    y_pred = y_true.clone()
    y_pred[3000] = 5  # class 0 with b = 1
    gaps = true_positive_gaps(y_true, y_pred, b=b)
    assert (gaps.pop(0), set(gaps.values())) == (1, {0})
    assert equalized_odds_difference(y_true, y_pred, b=b) == 1
    assert demographic_parity_difference(y_true, y_pred, b=b) == 0.5  # either class of a b is half of its samples


def test_labels_need_not_count_from_zero():
    y_true, y_pred = torch.tensor([5, 5, 9, 9]), torch.tensor([5, 7, 9, 9])
    b = torch.tensor([-1, 30, -1, 30])
    # 7 is predicted but never true, so it has no true positive rate.
    assert true_positive_gaps(y_true, y_pred, b=b) == {5: 1.0, 9: 0.0}
    assert equalized_odds_difference(y_true, y_pred, b=b) == 1.0
    assert demographic_parity_difference(y_true, y_pred, b=b) == 0.5


def test_a_bias_without_positives_is_left_out_where_fairlearn_counts_zero():
    y_true, y_pred = torch.tensor([1, 0, 1, 0, 0]), torch.tensor([1, 0, 1, 0, 0])
    b = torch.tensor([0, 0, 1, 1, 2])
    assert equalized_odds_difference(y_true, y_pred, b=b) == 0
    theirs = oracle.equalized_odds_difference(y_true.numpy(), y_pred.numpy(), sensitive_features=b.numpy())
    assert theirs == 1


def test_a_single_bias_leaves_nothing_to_compare():
    y_true, y_pred, b = torch.tensor([0, 1]), torch.tensor([0, 0]), torch.tensor([3, 3])
    assert math.isnan(demographic_parity_difference(y_true, y_pred, b=b))
    assert math.isnan(equalized_odds_difference(y_true, y_pred, b=b))


def test_a_class_that_one_bias_holds_has_no_gap():
    y_true, y_pred, b = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), torch.tensor([0, 1, 1])
    gaps = true_positive_gaps(y_true, y_pred, b=b)
    assert gaps[0] == 1
    assert math.isnan(gaps[1])


@settings(deadline=None)
@given(samples(3, 3))
def test_perfect_predictions_have_no_gap_between_error_rates(rows):
    y_true, _, b = columns(rows)
    assume(len(b.unique()) > 1)
    odds = equalized_odds_difference(y_true, y_true, b=b)
    assert odds == 0 or math.isnan(odds)
    assert all(gap == 0 or math.isnan(gap) for gap in true_positive_gaps(y_true, y_true, b=b).values())


@settings(deadline=None)
@given(samples(3, 3))
def test_the_largest_gap_is_a_part_of_equalized_odds(rows):
    y_true, y_pred, b = columns(rows)
    gaps = [gap for gap in true_positive_gaps(y_true, y_pred, b=b).values() if not math.isnan(gap)]
    assume(gaps)
    assert max(gaps) <= equalized_odds_difference(y_true, y_pred, b=b) <= 1


def test_lengths_must_agree():
    with pytest.raises(ValueError, match=r"y_true, y_pred, b: lengths \[2, 2, 1\]"):
        demographic_parity_difference(torch.tensor([0, 1]), torch.tensor([0, 1]), b=torch.tensor([0]))
