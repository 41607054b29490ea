"""When a gate can no longer flip: a bound on all that may still move its score."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bise.network.gates import slope

SAFETY = 4.0
"""Gradients to come may exceed the largest one seen by this factor."""


def cannot_flip(
    scores: Tensor,
    velocity: Tensor,
    raw: Tensor,
    phases: list[tuple[int, float]],
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
) -> Tensor:
    """[units] bool: scores that stay on their side of 0 for all remaining steps of SGD with momentum.

    `raw` bounds |Σ h ∂L/∂ĥ|, the gradient of the gate's value; `phases` are the (steps, τ) that remain. With
    v ← μv + g + λm and m ← m − ηv over R steps, momentum and gradients move m by at most
    U = η/(1−μ) · (μ|v| + Σ_t |raw| σ'(low/τ_t)/τ_t) as long as |m| ≥ low, and decay by at most c(|m| + U), with
    c = ηλR/(1−μ). So |m| never falls below low = |m|(1−c)/2 if U(1+c) ≤ |m|(1−c)/2.
    """
    rate = lr / (1 - momentum)
    decay = rate * weight_decay * sum(steps for steps, _ in phases)
    if decay >= 1:
        return torch.zeros_like(scores, dtype=torch.bool)
    size = scores.abs().double()
    low = size * (1 - decay) / 2
    pull = sum((slope(low, tau) * steps for steps, tau in phases), torch.zeros_like(low))
    moved = rate * (momentum * velocity.abs().double() + SAFETY * raw.double() * pull)
    untouched = (scores == 0) & (velocity == 0) & (raw == 0)  # a dead unit: its score never moved and never will
    return ((moved * (1 + decay) <= low) & (low > 0)) | untouched


def coast(scores: Tensor, velocity: Tensor, steps: int, *, lr: float, momentum: float, weight_decay: float) -> Tensor:
    """Scores after `steps` more updates without a gradient: momentum runs out and decay goes on.

    The update is linear in (m, v), so the steps are one power of a 2 × 2 matrix. It keeps thresholds ζ other
    than 0.5 where the full schedule would have put them.
    """
    # v' = μv + λm, m' = m − ηv'
    matrix = torch.tensor([[1 - lr * weight_decay, -lr * momentum], [weight_decay, momentum]], dtype=torch.float64)
    power = torch.linalg.matrix_power(matrix, steps)
    moved = power[0, 0] * scores.double() + power[0, 1] * velocity.double()
    return moved.to(scores.dtype)


def quiet_epochs(history: list[dict[str, Any]]) -> int:
    """How many epochs at the end of `history` ended with the mask that they began with."""
    return next((n for n, row in enumerate(reversed(history)) if row["flips"]), len(history))
