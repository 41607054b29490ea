"""Differences between the values of one bias in how often a class is predicted.

A rate is undefined for a value of b without the samples that it is a share of. Such a value is left out of
the spread; fairlearn counts its rate as 0, which would report a gap that nobody measured. A spread over fewer
than two values of b is undefined, and nan where nothing else is left to report.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bise.measure.checks import check_labels


def demographic_parity_difference(y_true: Tensor, y_pred: Tensor, *, b: Tensor) -> float:
    """max_c (max_b − min_b) P(ŷ = c | b), from labels [N]; nan where b takes one value only.

    Two classes give fairlearn's value. y_true adds nothing; it is taken so that all metrics are called alike.
    """
    counts = counted(y_true, y_pred, b)
    return _largest(_spreads(counts.predicted, counts.samples))


def equalized_odds_difference(y_true: Tensor, y_pred: Tensor, *, b: Tensor) -> float:
    """The largest spread over b of P(ŷ = c | y = c, b) or P(ŷ = c | y ≠ c, b), for any class c; labels [N].

    Two classes give fairlearn's value (worst case), where every rate is defined. A value of b without samples
    of y = c (or y ≠ c) is left out of that spread; nan where no spread has two values of b to compare.
    """
    counts = counted(y_true, y_pred, b)
    positive = _spreads(counts.right, counts.actual)
    negative = _spreads(counts.predicted - counts.right, counts.samples - counts.actual)
    return _largest(torch.cat([positive, negative]))


def true_positive_gaps(y_true: Tensor, y_pred: Tensor, *, b: Tensor) -> dict[int, float]:
    """{y: (max_b − min_b) P(ŷ = y | y, b)} for the y in y_true, labels [N]; nan for a y in one b only."""
    counts = counted(y_true, y_pred, b)
    gaps = _spreads(counts.right, counts.actual).tolist()
    there = counts.actual.any(dim=0).tolist()
    return {label: gap for label, gap, seen in zip(counts.classes, gaps, there, strict=True) if seen}


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many samples each value in b has, by the classes in y or ŷ: [B, C] each, since [C, B, C] takes gigabytes."""

    classes: list[int]
    values: list[int]
    """Of b."""
    actual: Tensor
    """y = c"""
    predicted: Tensor
    """ŷ = c"""
    right: Tensor
    """y = ŷ = c"""

    @property
    def samples(self) -> Tensor:
        """[B, 1]"""
        return self.actual.sum(dim=1, keepdim=True)


def counted(y_true: Tensor, y_pred: Tensor, b: Tensor) -> Counts:
    """Of labels [N] each."""
    n = check_labels(y_true=y_true, y_pred=y_pred, b=b)
    classes, index = torch.unique(torch.cat([y_true, y_pred]), return_inverse=True)
    values, row = torch.unique(b, return_inverse=True)
    shape = (len(values), len(classes))
    actual, predicted = row * shape[1] + index[:n], row * shape[1] + index[n:]
    tables = [
        torch.bincount(cell, minlength=math.prod(shape)).reshape(shape)
        for cell in (actual, predicted, actual[actual == predicted])
    ]
    return Counts(
        classes=classes.tolist(), values=values.tolist(), actual=tables[0], predicted=tables[1], right=tables[2]
    )


def _spreads(hits: Tensor, of: Tensor) -> Tensor:
    """[C]: max − min of hits [B, C] / of [B, C] or [B, 1] over the defined rates; nan for fewer than two."""
    rates, defined = hits.double() / of.double(), (of > 0).expand_as(hits)
    largest = rates.where(defined, -math.inf).amax(dim=0)
    least = rates.where(defined, math.inf).amin(dim=0)
    return (largest - least).where(defined.sum(dim=0) > 1, math.nan)


def _largest(spreads: Tensor) -> float:
    found = spreads[~spreads.isnan()]
    return float(found.max()) if len(found) else math.nan
