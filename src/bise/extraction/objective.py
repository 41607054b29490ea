"""The objective J = L_r + γ·I (equation 5): sample weights, weighted cross-entropy, soft mutual information.

Everything here is a function of tensors. The joint table and its count are made apart from the information
that is read off them, so that several processes can sum tables first and learn what one would.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LEAST = 1e-15
"""Entries of the joint table are at least this, before logarithms are taken."""


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
