"""Paired differences over seeds, with bootstrap intervals."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch

FEWEST = 2
"""Pairs below which there is no interval."""
EXACT = 6
"""Pairs up to which every resample is taken; beyond that `DRAWS` of them are drawn."""
DRAWS = 20_000


@dataclass(frozen=True, kw_only=True)
class Paired:
    """The mean of differences between pairs, and the 95 % interval of that mean by bootstrap over the pairs."""

    mean: float
    low: float | None
    high: float | None
    n: int


def paired(one: Sequence[float], other: Sequence[float]) -> Paired:
    """`one` less `other`, pair by pair; the interval is that of the percentiles, and None below two pairs.

    With few pairs such an interval is too short: with three it can't be wider than the differences themselves.
    """
    differences = torch.tensor([a - b for a, b in zip(one, other, strict=True)], dtype=torch.float64)
    n = len(differences)
    if n < FEWEST:
        return Paired(mean=float(differences.mean()), low=None, high=None, n=n)
    if n <= EXACT:
        chosen = torch.tensor(list(itertools.product(range(n), repeat=n)))
    else:
        chosen = torch.randint(n, (DRAWS, n), generator=torch.Generator().manual_seed(0))
    means = differences[chosen].mean(1)
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Paired(mean=float(differences.mean()), low=low, high=high, n=n)
