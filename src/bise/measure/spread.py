"""How much a model's accuracy differs between groups of the same class, and how much two groupings say of each other.

A difference between groups of different classes says little: classes are not equally hard. So groups are compared
within each class, on samples that the groups were not fitted on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from bise.base.extras import sklearn
from bise.measure.checks import check_boolean, check_labels, check_vectors
from bise.measure.gaps import newcombe
from bise.measure.groups import Z95

LEAST = 10
"""Samples of a class that a group needs to be compared there."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How much accuracy differs between groups within classes."""

    value: float
    """Root of the mean over classes of the variance between groups, by their sizes, less what chance adds."""
    difference: float
    """The largest between two groups of a class …"""
    interval: tuple[float, float]
    """… with its 95 % interval; its lower end holds for all that were looked at together."""
    where: tuple[int, int, int]
    """(class, group with the highest accuracy, group with the lowest)."""
    rates: tuple[float, float]
    """Theirs."""

    @property
    def shown(self) -> bool:
        """Whether chance alone is no explanation."""
        return self.interval[0] > 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Tally:
    """Right answers and samples [classes, groups] of a grouping."""

    hits: Tensor
    of: Tensor

    @staticmethod
    def count(y: Tensor, right: Tensor, group: Tensor) -> Tally:
        """From targets, right answers (bool) and groups [N]; a group below 0 is not known."""
        check_boolean(right=right)
        check_labels(y=y, group=group)
        check_vectors(y=y, right=right, group=group)
        known = group >= 0
        classes, groups = int(y.max()) + 1, max(1, int(group.max()) + 1)
        place = y[known] * groups + group[known]
        counts = [torch.bincount(rows, minlength=classes * groups) for rows in (place[right[known]], place)]
        hits, of = (count.view(classes, groups) for count in counts)
        return Tally(hits=hits, of=of)

    @property
    def pairs(self) -> int:
        """Comparisons of two groups within a class."""
        enough = (self.of >= LEAST).sum(1)
        return int((enough * (enough - 1) // 2).sum())


def spreads(tallies: Sequence[Tally]) -> list[Spread | None]:
    """The spread of each grouping, None where no class has two groups to compare.

    The lower ends of the intervals are at a level for the pairs of all groupings together (Bonferroni): whoever looks
    at many differences finds some that are large by chance.
    """
    pairs = sum(tally.pairs for tally in tallies)
    z = Z95 if pairs < 2 else NormalDist().inv_cdf(1 - 0.025 / pairs)
    return [_spread(tally, z) if tally.pairs else None for tally in tallies]


def _spread(tally: Tally, z: float) -> Spread:
    variances: list[float] = []
    best, low, high = (-1.0, (0, 0, 0), (0.0, 0.0)), 0.0, 0.0
    for y, (hits, of) in enumerate(zip(tally.hits.double(), tally.of.double(), strict=True)):
        enough = of >= LEAST
        if not of.sum():
            continue
        if int(enough.sum()) < 2:
            variances.append(0.0)
            continue
        numbers = enough.nonzero().flatten()
        hits, of = hits[enough], of[enough]
        rate = hits / of
        variances.append(_between(rate, of))
        top, least = int(rate.argmax()), int(rate.argmin())
        if float(rate[top] - rate[least]) > best[0]:
            where = y, int(numbers[top]), int(numbers[least])
            best = float(rate[top] - rate[least]), where, (float(rate[top]), float(rate[least]))
        low = max(low, float(newcombe(hits, of, z)[0].max()))
        high = max(high, float(newcombe(hits, of, Z95)[1].max()))
    value, where, rates = best
    return Spread(
        value=math.sqrt(max(0.0, math.fsum(variances) / len(variances))),
        difference=value,
        interval=(min(low, value), min(1.0, max(high, value))),
        where=where,
        rates=rates,
    )


def _between(rate: Tensor, of: Tensor) -> float:
    """Σ w (r − r̄)² over groups with shares w, less its expectation where all have one rate: r̄ (1 − r̄) (G − 1) / n."""
    n = float(of.sum())
    share = of / n
    mean = float(share @ rate)
    return float(share @ (rate - mean) ** 2) - mean * (1 - mean) * (len(rate) - 1) / n


def agreement(one: Tensor, other: Tensor) -> float:
    """Adjusted mutual information of two groupings [N] where both are known: 0 is chance, 1 is the same groups."""
    check_vectors(one=one, other=other)
    both = (one >= 0) & (other >= 0)
    if not both.any():
        return 0.0
    return max(0.0, float(sklearn("metrics").adjusted_mutual_info_score(one[both].numpy(), other[both].numpy())))
