"""Paired differences: by hand, by every resample, and against scipy's bootstrap."""

from __future__ import annotations

import pytest

from bise.measure.pairing import paired


def test_two_pairs_by_hand():
    """Differences 1 and 3: the resamples' means are 1, 2, 2 and 3, each as likely."""
    found = paired([2.0, 5.0], [1.0, 2.0])
    assert (found.mean, found.n) == (2.0, 2)
    # quantiles between order statistics: 0.025 of the way over three gaps of 1, 0 and 1 … is 0.075 into the first
    assert found.low == pytest.approx(1.075)
    assert found.high == pytest.approx(2.925)


def test_one_pair_has_no_interval():
    assert paired([0.5], [0.25]) == paired([0.25], [0.0])
    assert paired([0.5], [0.25]).low is None


def test_equal_differences_leave_no_width():
    found = paired([0.5, 0.75, 1.0], [0.25, 0.5, 0.75])
    assert (found.mean, found.low, found.high) == (0.25, 0.25, 0.25)


def test_many_pairs_as_scipy_has_it():
    import numpy as np
    from scipy.stats import bootstrap

    rng = np.random.default_rng(0)
    one, other = rng.normal(size=12), rng.normal(size=12)
    found = paired(one.tolist(), other.tolist())
    known = bootstrap((one - other,), np.mean, method="percentile", n_resamples=20_000, rng=rng).confidence_interval
    assert found.mean == pytest.approx((one - other).mean())
    assert found.low == pytest.approx(known.low, abs=0.03)
    assert found.high == pytest.approx(known.high, abs=0.03)
    assert found == paired(one.tolist(), other.tolist())


def test_pairs_have_to_match():
    with pytest.raises(ValueError, match="shorter"):
        paired([1.0, 2.0], [1.0])
