"""Accuracy over samples, over groups and of the worst group, each with a 95 % interval."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bise.measure.checks import check_boolean, check_labels, check_vectors

Z95 = 1.959963984540054
"""The standard normal's 97.5 % quantile."""


@dataclass(frozen=True, kw_only=True)
class GroupAccuracy:
    """Accuracies of one set of predictions; groups without samples appear nowhere."""

    accuracy: float
    """Share of correct samples."""
    unbiased: float
    """Unweighted mean over the groups."""
    worst_group: float
    """Smallest accuracy of a group."""
    worst_group_name: str
    """The group that has it; of several, the one that comes first."""
    by_group: dict[str, float]
    """Accuracy of each group, in the order of the cell ids."""
    n_by_group: dict[str, int]
    """Samples in each group."""
    interval: dict[str, tuple[float, float]]
    """95 % intervals of "accuracy", "unbiased" and "worst_group"; the last is that of the named group by
    itself: it does not account for the choice of the smallest."""
    interval_by_group: dict[str, tuple[float, float]]
    """95 % interval of each group."""


def wilson(correct: int, n: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's interval (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n), p = correct/n; nan for n = 0."""
    if not 0 <= correct <= n:
        raise ValueError(f"correct: {correct} of n = {n}; give 0 <= correct <= n")
    if n == 0:
        return math.nan, math.nan
    p = correct / n
    centre = p + z**2 / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    scale = 1 + z**2 / n
    # The ends are exact in these two cases; rounding would leave them a bit inside.
    low = 0.0 if correct == 0 else (centre - half) / scale
    high = 1.0 if correct == n else (centre + half) / scale
    return low, high


def group_accuracy(
    correct: Tensor, cell: Tensor, names: Mapping[int, str], groups: Mapping[int, str] | None = None
) -> GroupAccuracy:
    """Accuracies from correct [N] (bool) and cell ids [N]; a group's is the mean over its non-empty cells.

    `names` gives each cell id its name and `groups` each cell id its group; by default every cell is a group.
    One cell, and the accuracy over samples, get Wilson intervals; a mean over cells or groups gets
    mean ± z √(Σ variances) / count, clipped to [0, 1].
    """
    check_boolean(correct=correct)
    check_labels(cell=cell)
    n = check_vectors(correct=correct, cell=cell)
    estimates = group_estimates(correct, cell, names, groups)
    unbiased = mean_of(list(estimates.values()))
    worst = min(estimates, key=lambda group: estimates[group].value)
    hits = int(correct.sum())
    return GroupAccuracy(
        accuracy=hits / n,
        unbiased=unbiased.value,
        worst_group=estimates[worst].value,
        worst_group_name=worst,
        by_group={group: estimate.value for group, estimate in estimates.items()},
        n_by_group={group: estimate.n for group, estimate in estimates.items()},
        interval={
            "accuracy": wilson(hits, n),
            "unbiased": unbiased.interval,
            "worst_group": estimates[worst].interval,
        },
        interval_by_group={group: estimate.interval for group, estimate in estimates.items()},
    )


def group_estimates(
    correct: Tensor, cell: Tensor, names: Mapping[int, str], groups: Mapping[int, str] | None = None, z: float = Z95
) -> dict[str, Estimate]:
    """{group: its accuracy, with the interval at z}, from correct [N] (bool) and cell ids [N]."""
    ids, inverse = torch.unique(cell, return_inverse=True)
    sizes = torch.bincount(inverse).tolist()
    hits_by_cell = torch.bincount(inverse[correct], minlength=len(ids)).tolist()
    group_of = _group_of(ids.tolist(), names, groups)
    members: dict[str, list[Estimate]] = {}
    for cell_id, cell_hits, size in zip(ids.tolist(), hits_by_cell, sizes, strict=True):
        members.setdefault(group_of[cell_id], []).append(proportion(cell_hits, size, z))
    return {group: mean_of(parts, z) for group, parts in members.items()}


def subset_accuracy(correct: Tensor, mask: Tensor) -> tuple[float, tuple[float, float], int]:
    """Accuracy, Wilson interval and n of the samples in mask, both [N] (bool); nan where mask is empty."""
    check_boolean(correct=correct, mask=mask)
    check_vectors(correct=correct, mask=mask)
    n = int(mask.sum())
    hits = int((correct & mask).sum())
    return (hits / n if n else math.nan), wilson(hits, n), n


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An accuracy with its variance, its 95 % interval and the samples behind it."""

    value: float
    variance: float
    interval: tuple[float, float]
    n: int


def proportion(correct: int, n: int, z: float = Z95) -> Estimate:
    """One cell's accuracy, with Wilson's interval at z and the variance p̃(1 − p̃)/n, p̃ its middle at 95 %."""
    # p(1 − p)/n is zero for a cell with 100 %, however few samples it has; p̃ is pulled towards one half. The accuracy
    # itself isn't pulled, so that n and not Agresti and Coull's n + z² belongs below: many small cells would have too
    # narrow an interval of their mean.
    adjusted = (correct + Z95**2 / 2) / (n + Z95**2)
    variance = adjusted * (1 - adjusted) / n
    return Estimate(value=correct / n, variance=variance, interval=wilson(correct, n, z), n=n)


def mean_of(parts: Sequence[Estimate], z: float = Z95) -> Estimate:
    """The unweighted mean of independent estimates, with a normal interval clipped to [0, 1]."""
    if len(parts) == 1:
        return parts[0]
    value = math.fsum(part.value for part in parts) / len(parts)
    variance = math.fsum(part.variance for part in parts) / len(parts) ** 2
    half = z * math.sqrt(variance)
    interval = max(0.0, value - half), min(1.0, value + half)
    return Estimate(value=value, variance=variance, interval=interval, n=sum(part.n for part in parts))


def z_apart(higher: Estimate, lower: Estimate) -> bool:
    """Whether the 95 % interval of the difference of two independent estimates is above zero."""
    return higher.value - lower.value > Z95 * math.sqrt(higher.variance + lower.variance)


def _group_of(cells: Sequence[int], names: Mapping[int, str], groups: Mapping[int, str] | None) -> Mapping[int, str]:
    """The map from cell id to group, after checking that it covers every non-empty cell."""
    unnamed = [cell for cell in cells if cell not in names]
    if unnamed:
        raise ValueError(f"names: no name for cell {unnamed[0]}, which has samples; name every cell")
    if groups is None:
        name, count = Counter(names.values()).most_common(1)[0]
        if count > 1:
            raise ValueError(
                f"names: {name!r} names {count} cells; give each cell its own name, and say what "
                "belongs together with groups"
            )
        return names
    ungrouped = [cell for cell in cells if cell not in groups]
    if ungrouped:
        raise ValueError(
            f"groups: no group for cell {ungrouped[0]} ({names[ungrouped[0]]}), which has samples; "
            "give every cell a group"
        )
    return groups
