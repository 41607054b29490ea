"""Entropy and mutual information of hard labels, by the plug-in estimate, in nats."""

import torch
from torch import Tensor

from bise.measure.checks import check_labels


def entropy(a: Tensor) -> float:
    """H(A) = Σ p(a) log(1 / p(a)) in nats, from the shares of the labels a [N]."""
    n = check_labels(a=a)
    _, counts = torch.unique(a, return_counts=True)
    p = counts.double() / n
    return float((p * (1 / p).log()).sum())


def mutual_information(a: Tensor, b: Tensor) -> float:
    """I(A; B) = Σ p(a, b) log(p(a, b) / (p(a) p(b))) in nats, for labels a [N] and b [N]."""
    n = check_labels(a=a, b=b)
    _, row, rows = torch.unique(a, return_inverse=True, return_counts=True)
    _, column, columns = torch.unique(b, return_inverse=True, return_counts=True)
    pair, counts = torch.unique(row * len(columns) + column, return_counts=True)
    joint = counts.double() / n
    independent = rows[pair // len(columns)].double() * columns[pair % len(columns)].double() / n**2
    # Independent labels give exactly 0, with no negative rest: equal shares are rounded to the same number.
    return float((joint * (joint / independent).log()).sum())
