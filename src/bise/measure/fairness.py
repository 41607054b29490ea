"""Differences between the values of one bias in how often a class is predicted.

A rate is undefined for a value of b without the samples that it is a share of. Such a value is left out of
the spread; fairlearn counts its rate as 0, which would report a gap that nobody measured. A spread over fewer
than two values of b is undefined, and nan where nothing else is left to report.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from bise.measure.checks import check_labels


def demographic_parity_difference(y_true: Tensor, y_pred: Tensor, *, b: Tensor) -> float:
    """max_c (max_b − min_b) P(ŷ = c | b), from labels [N]; nan where b takes one value only.

    Two classes give fairlearn's value. y_true adds nothing; it is taken so that all metrics are called alike.
    """
    _, table = _table(y_true, y_pred, b)
    predicted = table.sum(dim=0)
    spreads = (_spread(predicted[:, c], predicted.sum(dim=1)) for c in range(table.shape[2]))
    return _largest(spreads)


def equalized_odds_difference(y_true: Tensor, y_pred: Tensor, *, b: Tensor) -> float:
    """The largest spread over b of P(ŷ = c | y = c, b) or P(ŷ = c | y ≠ c, b), for any class c; labels [N].

    Two classes give fairlearn's value (worst case), where every rate is defined. A value of b without samples
    of y = c (or y ≠ c) is left out of that spread; nan where no spread has two values of b to compare.
    """
    _, table = _table(y_true, y_pred, b)
    spreads = []
    for c in range(table.shape[0]):
        positive, negative = table[c], table.sum(dim=0) - table[c]
        spreads += [_spread(kind[:, c], kind.sum(dim=1)) for kind in (positive, negative)]
    return _largest(spreads)


def true_positive_gaps(y_true: Tensor, y_pred: Tensor, *, b: Tensor) -> dict[int, float]:
    """{y: (max_b − min_b) P(ŷ = y | y, b)} for the y in y_true, labels [N]; nan for a y in one b only."""
    classes, table = _table(y_true, y_pred, b)
    per_class = table.sum(dim=2)
    return {label: _spread(table[c, :, c], per_class[c]) for c, label in enumerate(classes) if per_class[c].any()}


def _table(y_true: Tensor, y_pred: Tensor, b: Tensor) -> tuple[list[int], Tensor]:
    """The classes in y or ŷ, and the counts [C, B, C] of (y, b, ŷ) over those classes and the values in b."""
    n = check_labels(y_true=y_true, y_pred=y_pred, b=b)
    classes, index = torch.unique(torch.cat([y_true, y_pred]), return_inverse=True)
    values, column = torch.unique(b, return_inverse=True)
    shape = (len(classes), len(values), len(classes))
    flat = (index[:n] * shape[1] + column) * shape[2] + index[n:]
    return classes.tolist(), torch.bincount(flat, minlength=math.prod(shape)).reshape(shape)


def _spread(hits: Tensor, of: Tensor) -> float:
    """max − min of hits [B] / of [B] over the defined rates; nan for fewer than two."""
    rates = hits[of > 0].double() / of[of > 0].double()
    return float(rates.max() - rates.min()) if len(rates) > 1 else math.nan


def _largest(spreads: Iterable[float]) -> float:
    return max((spread for spread in spreads if not math.isnan(spread)), default=math.nan)
