"""How much each sample counts in the cross-entropy: r_j of equation 4, by several schemes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bise.base.errors import BadInput


def group_weights(strata: Tensor) -> Tensor:
    """N / (G · n_g) for each sample [N], over the G non-empty strata; their mean is 1.

    Its weighted cross-entropy has the expectation of plain cross-entropy under even draws from the strata.
    """
    _, inverse, counts = torch.unique(strata, return_inverse=True, return_counts=True)
    return (len(strata) / (len(counts) * counts.double()))[inverse]


def cell_weights(cell: Tensor, cells: int) -> Tensor:
    """1 / (cells · p) for each sample [N]: p is its cell's share where every cell has one sample at least.

    Unlike `group_weights`, it counts the cells that are empty.
    """
    counts = torch.bincount(cell, minlength=cells).clamp_min(1).double()
    return (counts.sum() / (cells * counts))[cell]


def paper_weights(
    y: Tensor,
    b: Tensor,
    aligned: Tensor,
    classes: int,
    bias_classes: tuple[int, ...],
    rho: float | Sequence[float] | None = None,
) -> Tensor:
    """The closed forms of the paper's supplement for each sample [N], by the shape of the problem.

    One bias, |Y| = |B| = C > 2: r∥ = 1/(Cρ), r⊥ = (C−1)/(C(1−ρ)) with the measured ρ (BiasedMNIST,
    Corrupted-CIFAR10). One binary bias and a binary target: N/(4 n_g) (CelebA, CivilComments). Several biases:
    the product over them of 1/ρ_k or 1/(1−ρ_k), unnormalised (Multi-Color MNIST). ρ is measured unless it is given.
    """
    share = aligned.double().mean(0) if rho is None else _each(rho, aligned.shape[1])
    if aligned.shape[1] > 1:
        return torch.where(aligned, 1 / share, 1 / (1 - share)).prod(1)
    if classes != bias_classes[0]:
        raise BadInput(
            f'weights="paper" is defined for as many biases as classes, not for {bias_classes[0]} and {classes};'
            ' use weights="groups"'
        )
    if classes == 2:
        cell = y * 2 + b[:, 0]
        return (len(y) / (4 * torch.bincount(cell, minlength=4).double()))[cell]
    return torch.where(aligned[:, 0], 1 / (classes * share), (classes - 1) / (classes * (1 - share)))


def _each(rho: float | Sequence[float], biases: int) -> Tensor:
    shares = torch.tensor([rho] if isinstance(rho, (int, float)) else list(rho), dtype=torch.float64)
    if len(shares) != biases:
        raise BadInput(
            f"rho={rho} has {len(shares)} entries for {biases} biases; give one for each, or None to count it"
        )
    return shares
