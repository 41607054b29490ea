"""How far a classifier's confidence is from its accuracy."""

from collections.abc import Mapping

import torch
from torch import Tensor

from bise.measure.checks import check_boolean, check_labels, check_vectors


def expected_calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> float:
    """Σ n_bin/N · |accuracy − mean confidence| over equal bins of (0, 1]; correct (bool) [N]."""
    check_boolean(correct=correct)
    n = check_vectors(confidence=confidence, correct=correct)
    if bins < 1:
        raise ValueError(f"bins: {bins}; give at least 1")
    confidence = confidence.double()
    inside = (confidence >= 0) & (confidence <= 1)
    if not inside.all():
        raise ValueError(
            f"confidence: {float(confidence[~inside][0])} is not a probability; give the softmax's maximum, not a logit"
        )
    inner_edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64)[1:-1]
    # right=False closes each bin on the right; a confidence of exactly 0 joins the first.
    index = torch.bucketize(confidence, inner_edges, right=False)
    # n_bin cancels: the weighted gap of a bin is |Σ (correct − confidence)| / N.
    gaps = torch.bincount(index, weights=correct.double() - confidence, minlength=bins)
    return float(gaps.abs().sum() / n)


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
