import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy as scipy_entropy
from sklearn.metrics import mutual_info_score

from bise.measure.information import entropy, mutual_information

pairs = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 4)), min_size=1, max_size=80)


def columns(samples):
    table = torch.tensor(samples)
    return table[:, 0], table[:, 1]


@settings(deadline=None)
@given(pairs)
def test_mutual_information_is_scikit_learns(samples):
    a, b = columns(samples)
    assert mutual_information(a, b) == pytest.approx(mutual_info_score(a.numpy(), b.numpy()), abs=1e-12)


@settings(deadline=None)
@given(pairs)
def test_entropy_is_scipys(samples):
    a, _ = columns(samples)
    counts = a.unique(return_counts=True)[1].numpy()
    assert entropy(a) == pytest.approx(scipy_entropy(counts), abs=1e-12)


@settings(deadline=None)
@given(pairs)
def test_information_is_symmetric_and_bounded_by_the_entropies(samples):
    a, b = columns(samples)
    information = mutual_information(a, b)
    assert information == pytest.approx(mutual_information(b, a), abs=1e-12)
    assert 0 <= information <= min(entropy(a), entropy(b)) + 1e-12
    assert mutual_information(a, a) == pytest.approx(entropy(a), abs=1e-12)


def test_values_by_hand():
    a = torch.tensor([0, 0, 1, 1])
    assert entropy(a) == pytest.approx(math.log(2))
    assert mutual_information(a, torch.tensor([0, 1, 0, 1])) == 0
    assert mutual_information(a, torch.tensor([7, 7, 5, 5])) == pytest.approx(math.log(2))
    # Joint shares 1/2, 1/4, 1/4: log 2 less H(a | b) = 3/4 · H(1/3)
    conditional = 0.75 * -(1 / 3 * math.log(1 / 3) + 2 / 3 * math.log(2 / 3))
    assert mutual_information(a, torch.tensor([0, 0, 0, 1])) == pytest.approx(math.log(2) - conditional)


def test_soft_labels_are_refused():
    with pytest.raises(TypeError, match=r"b: dtype torch\.float32"):
        mutual_information(torch.tensor([0, 1]), torch.tensor([0.5, 0.5]))


def test_no_samples_are_refused():
    with pytest.raises(ValueError, match="0 samples"):
        entropy(torch.tensor([], dtype=torch.int64))
