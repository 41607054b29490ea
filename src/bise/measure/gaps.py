"""Gaps between the values of one bias in how often a class is answered, each with an interval and where it is.

The interval is Newcombe's for a difference of two proportions, which is made of their Wilson intervals as all others
here are. A gap is the largest of many differences, and the largest of many is too high by chance: its lower end is that
of a level of 95 % for all of them together (Bonferroni). Its upper end needs no such care: the true gap is that of one
pair, and the largest of the upper ends is no less than the upper end of that one. A bootstrap of such a maximum would
never reach 0, and would have no width where every sample of a cell is right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from torch import Tensor

from bise.measure.fairness import Counts, counted
from bise.measure.groups import Z95

MOST_DIFFERENCES = 5_000_000
"""Of classes by pairs of values; beyond this gaps have no intervals."""
GIVEN, RIGHT, WRONG = "given", "right", "wrong"
"""How often a class is the answer: to all samples, to those of the class, to those of other classes."""


@dataclass(frozen=True, kw_only=True)
class Gap:
    """The largest difference of a rate between two values of the bias."""

    value: float
    interval: tuple[float, float] | None
    """95 %; None where there are too many differences."""
    answer: int
    """The class whose rate differs the most …"""
    kind: str
    """… among all samples, those of the class or those of other classes: "given", "right", "wrong"."""
    high: int
    """The value of the bias with the highest rate …"""
    low: int
    """… and the one with the lowest."""
    rates: tuple[float, float]
    """Theirs."""


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """The three kinds of gap for one bias; None where no two values of the bias can be compared."""

    demographic_parity: Gap | None
    equalized_odds: Gap | None
    true_positive: dict[int, Gap | None]


def gaps(y_true: Tensor, y_pred: Tensor, *, b: Tensor) -> Gaps:
    """Demographic parity, equalised odds and true positive rates of labels [N], as `measure.fairness` defines them."""
    counts = counted(y_true, y_pred, b)
    given = (GIVEN, counts.predicted, counts.samples.expand_as(counts.predicted))
    right = (RIGHT, counts.right, counts.actual)
    wrong = (WRONG, counts.predicted - counts.right, counts.samples - counts.actual)
    # of two classes, one is answered as often as the other isn't: the same differences again
    binary = len(counts.classes) == 2
    return Gaps(
        demographic_parity=_largest(counts, [given], mirrored=binary),
        equalized_odds=_largest(counts, [right] if binary else [right, wrong]),
        true_positive={
            label: _largest(counts, [(RIGHT, counts.right[:, [k]], counts.actual[:, [k]])], labels=[label])
            for k, label in enumerate(counts.classes)
            if counts.actual[:, k].any()
        },
    )


def newcombe(hits: Tensor, of: Tensor, z: float) -> tuple[Tensor, Tensor]:
    """[B, B, …] each: the ends of the intervals of p_i − p_j, p = hits / of, [B, …]; nan where one has no samples."""
    hits, of = hits.double(), of.double()
    share = hits / of
    centre, scale = share + z**2 / (2 * of), 1 + z**2 / of
    half = z * (share * (1 - share) / of + z**2 / (4 * of**2)).sqrt()
    # rounding would leave the ends of 0 % and 100 % a bit inside
    below, above = share - ((centre - half) / scale).clamp_min(0), ((centre + half) / scale).clamp_max(1) - share
    below, above = below.where(hits > 0, 0 * share), above.where(hits < of, 0 * share)
    difference = share[:, None] - share[None, :]
    low = difference - (below[:, None] ** 2 + above[None, :] ** 2).sqrt()
    high = difference + (above[:, None] ** 2 + below[None, :] ** 2).sqrt()
    return low, high


def _largest(
    counts: Counts,
    parts: list[tuple[str, Tensor, Tensor]],
    *,
    labels: list[int] | None = None,
    mirrored: bool = False,
) -> Gap | None:
    """The largest gap among (kind, hits [B, C], of [B, C]); None where no rate is defined for two values of b."""
    labels = counts.classes if labels is None else labels
    best: tuple[float, str, int, int, int, tuple[float, float]] | None = None
    pairs = 0
    for kind, hits, of in parts:
        defined = of > 0
        values = defined.sum(0)
        pairs += int((values * (values - 1) // 2).sum()) // (2 if mirrored else 1)
        rates = hits.double() / of.double()
        top, where_top = rates.where(defined, -math.inf).max(0)
        least, where_least = rates.where(defined, math.inf).min(0)
        spread = (top - least).where(values > 1, -math.inf)
        k = int(spread.argmax())
        if values[k] > 1 and (best is None or float(spread[k]) > best[0]):
            ends = float(top[k]), float(least[k])
            best = float(spread[k]), kind, labels[k], int(where_top[k]), int(where_least[k]), ends
    if best is None:
        return None
    value, kind, answer, high, low, ends = best
    too_many = len(counts.values) ** 2 * len(counts.classes) > MOST_DIFFERENCES
    return Gap(
        value=value,
        interval=None if too_many else _interval(parts, pairs, value),
        answer=answer,
        kind=kind,
        high=counts.values[high],
        low=counts.values[low],
        rates=ends,
    )


def _interval(parts: list[tuple[str, Tensor, Tensor]], pairs: int, value: float) -> tuple[float, float]:
    """The largest lower end at a level for all `pairs` together, and the largest upper end, within 0 and 1."""
    z = Z95 if pairs == 1 else NormalDist().inv_cdf(1 - 0.025 / pairs)
    low, high = -math.inf, -math.inf
    for _, hits, of in parts:
        low = max(low, float(newcombe(hits, of, z)[0].nan_to_num(-math.inf).max()))
        high = max(high, float(newcombe(hits, of, Z95)[1].nan_to_num(-math.inf).max()))
    return max(0.0, min(low, value)), min(1.0, max(high, value))
