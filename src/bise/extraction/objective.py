"""The objective J = L_r + γ·I (equation 5): sample weights, weighted cross-entropy, soft mutual information.

Everything here is a function of tensors. The joint table and its count are made apart from the information
that is read off them, so that several processes can sum tables first and learn what one would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from bise.base.errors import BadInput

LEAST = 1e-15
"""Entries of the joint table are at least this, before logarithms are taken."""


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


def log_priors(y: Tensor, b: Tensor, classes: int, bias_classes: tuple[int, ...]) -> list[Tensor]:
    """ln p(y | b_k) [|B_k| + 1, |Y|] of each bias, by counts with one added to each; the last row, 0, is for b = −1."""
    out = []
    for k, size in enumerate(bias_classes):
        known = b[:, k] >= 0
        counts = torch.bincount(b[known, k] * classes + y[known], minlength=size * classes).view(size, classes)
        counts = counts.float() + 1
        out.append(torch.cat([(counts / counts.sum(1, keepdim=True)).log(), counts.new_zeros(1, classes)]))
    return out


def cross_entropies(
    logits: Tensor, y: Tensor, *, b: Tensor | None = None, priors: Sequence[Tensor] = (), smoothing: float = 0.0
) -> Tensor:
    """ℓ(ŷ_j, y_j) of each sample [N].

    With `priors`, [|B_k| + 1, |Y|] for each bias, the logits are raised by their mean over the biases first: a class
    that goes with b has to be beaten by that much more, so that even a sample that is classified well still says
    something. `smoothing` is the share of the target that is spread over all classes.
    """
    logits = logits.float()
    if priors:
        assert b is not None
        logits = logits + torch.stack([prior[b[:, k]] for k, prior in enumerate(priors)]).mean(0)
    return F.cross_entropy(logits, y, reduction="none", label_smoothing=smoothing)


def weighted_mean(values: Tensor, weights: Tensor | None) -> Tensor:
    """1/N Σ_j r_j ℓ_j (equation 4); the plain mean without weights."""
    return (values if weights is None else values * weights).mean()


def joint_table(probabilities: Tensor, b: Tensor, include: Tensor) -> tuple[Tensor, Tensor]:
    """(table [|B|, |B|], count): Σ over included samples of onehot(b)ᵀ p, rows true b, columns predicted.

    `probabilities` [N, |B|], `b` [N], `include` [N] of 0 and 1. Weights instead of a selection keep the shapes
    fixed, whatever the batch holds.
    """
    probabilities = probabilities.float()
    include = include.to(probabilities.dtype)
    true = one_hot(b, probabilities.shape[1]).to(probabilities.dtype)
    return outer_sum(true * include.unsqueeze(1), probabilities), include.sum()


def outer_sum(a: Tensor, b: Tensor) -> Tensor:
    """aᵀb [p, q] for a [N, p] and b [N, q].

    On a GPU products this small are summed as they stand: cuBLAS takes fifty microseconds for them.
    """
    if a.is_cuda and len(a) * a.shape[1] * b.shape[1] <= 1 << 20:
        return (a.unsqueeze(2) * b.unsqueeze(1)).sum(0)
    return a.T @ b


def one_hot(b: Tensor, size: int) -> Tensor:
    """[N, size] bool; a row of zeros where b is −1, not known."""
    return b.unsqueeze(1) == torch.arange(size, device=b.device)


def information(table: Tensor, count: Tensor) -> Tensor:
    """I(b̂, b) / ln |B| of a joint table, in [0, 1] up to rounding; 0 where the table is empty.

    The soft plug-in estimate: J = table / count, I = Σ_ij J_ij ln(J_ij / (J_i· J_·j)).
    """
    joint, ratio = _joint(table, count)
    return (joint * ratio).sum() / math.log(len(joint)) * (count > 0)


def information_gradient(probabilities: Tensor, b: Tensor, include: Tensor, table: Tensor, count: Tensor) -> Tensor:
    """[N, |B|]: the gradient of `information(table, count)` towards the logits behind `probabilities`.

    ∂I/∂J_ij = ln(J_ij / (J_i· J_·j)) − 1, and the constant is lost in the softmax. The table may be the sum over
    several processes.
    """
    joint, ratio = _joint(table, count)
    ratio = ratio * (table >= LEAST * count.clamp_min(1)) / (math.log(len(joint)) * count.clamp_min(1))
    true = one_hot(b, probabilities.shape[1]) & include.unsqueeze(1)
    towards = true.to(ratio.dtype) @ ratio
    return probabilities * (towards - (probabilities * towards).sum(1, keepdim=True))


def _joint(table: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """J, and ln(J_ij / (J_i· J_·j))."""
    joint = (table / count.clamp_min(1)).clamp_min(LEAST)
    rows, columns = joint.sum(1, keepdim=True), joint.sum(0, keepdim=True)
    return joint, joint.log() - rows.log() - columns.log()
