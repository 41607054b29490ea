"""How far a classifier's confidence is from its accuracy."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bise.measure.checks import check_boolean, check_labels, check_vectors
from bise.measure.groups import wilson


def expected_calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> float:
    """Σ n_bin/N · |accuracy − mean confidence| over equal bins of (0, 1]; correct (bool) [N]."""
    check_boolean(correct=correct)
    n = check_vectors(confidence=confidence, correct=correct)
    if bins < 1:
        raise ValueError(f"bins: {bins}; give at least 1")
    confidence = confidence.double()
    index = _bin_of(confidence, bins)
    # n_bin cancels: the weighted gap of a bin is |Σ (correct − confidence)| / N.
    gaps = torch.bincount(index, weights=correct.double() - confidence, minlength=bins)
    return float(gaps.abs().sum() / n)


@dataclass(frozen=True, kw_only=True)
class Sureness:
    """How sure a network is of its answers in a group, against how often it is right."""

    confidence: float
    """The mean of its confidence."""
    too_sure: float
    """Confidence less accuracy: below 0 it is right more often than it thinks."""
    interval: tuple[float, float]
    """The 95 % interval of that: Wilson's of the accuracy, given these confidences."""


def sureness_by_group(
    confidence: Tensor, correct: Tensor, cell: Tensor, names: Mapping[int, str]
) -> dict[str, Sureness]:
    """How much too sure a network is in each non-empty cell (ids [N]), by its name, in the order of the ids.

    Of this an interval can be given, and not of the calibration error: even a calibrated network's is above 0.
    """
    check_boolean(correct=correct)
    check_labels(cell=cell)
    check_vectors(confidence=confidence, correct=correct, cell=cell)
    found: dict[str, Sureness] = {}
    for one in torch.unique(cell).tolist():
        mine = cell == one
        n, hits = int(mine.sum()), int(correct[mine].sum())
        sure = float(confidence[mine].double().mean())
        low, high = wilson(hits, n)
        found[names[one]] = Sureness(confidence=sure, too_sure=sure - hits / n, interval=(sure - high, sure - low))
    return found


def _bin_of(confidence: Tensor, bins: int) -> Tensor:
    """[N]: the bin of each confidence, refused where one is no probability."""
    inside = (confidence >= 0) & (confidence <= 1)
    if not inside.all():
        raise ValueError(
            f"confidence: {float(confidence[~inside][0])} is not a probability; give the softmax's maximum, not a logit"
        )
    inner_edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64)[1:-1]
    # right=False closes each bin on the right; a confidence of exactly 0 joins the first.
    return torch.bucketize(confidence, inner_edges, right=False)


def calibration_by_group(
    confidence: Tensor, correct: Tensor, cell: Tensor, names: Mapping[int, str], bins: int = 15
) -> dict[str, float]:
    """Expected calibration error of each non-empty cell (ids [N]) by its name, in the order of the ids."""
    check_labels(cell=cell)
    check_vectors(confidence=confidence, correct=correct, cell=cell)
    errors: dict[str, float] = {}
    for cell_id in torch.unique(cell).tolist():
        if cell_id not in names:
            raise ValueError(f"names: no name for cell {cell_id}, which has samples; name every cell")
        if names[cell_id] in errors:
            raise ValueError(f"names: {names[cell_id]!r} names several cells; give each cell its own name")
        mine = cell == cell_id
        errors[names[cell_id]] = expected_calibration_error(confidence[mine], correct[mine], bins)
    return errors
