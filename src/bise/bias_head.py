"""C_aux: one linear head per bias on the bottleneck, trained to read b, never touched by the MI's gradient."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from bise.objective import one_hot, outer_sum


class BiasHeads:
    """The heads of all biases as one matrix [Σ|B_k|, d + 1], with SGD written out: a step is a few small products.

    Softmax regression has the closed-form gradient (p − onehot(b))ᵀ z / N, so no graph is needed, and the same
    update serves the mask steps and the refinement on cached features. z comes with a last column of ones, `with_one`,
    for the intercepts.
    """

    def __init__(
        self,
        width: int,
        bias_classes: tuple[int, ...],
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        self.sizes = list(bias_classes)
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        bound = 1 / math.sqrt(width)
        start = (torch.rand(sum(bias_classes), width + 1, generator=generator, dtype=torch.float32) * 2 - 1) * bound
        self.parameters = start.to(device)
        """[Σ|B_k|, d + 1], the last column the intercepts."""
        self.velocity = torch.zeros_like(self.parameters)

    def probabilities(self, z: Tensor) -> tuple[Tensor, ...]:
        """softmax of each head, [N, |B_k|], on z [N, d + 1]."""
        return tuple(logits.softmax(1) for logits in (z @ self.parameters.T).split(self.sizes, 1))

    @torch.no_grad()
    def step(self, z: Tensor, b: Tensor, probabilities: tuple[Tensor, ...] | None = None) -> None:
        """One SGD step on Σ_k CE(b̂_k, b_k) over z [N, d + 1] and b [N, K], at the `probabilities` it has there.

        Samples whose b_k is −1 don't count for head k.
        """
        errors = []
        for k, p in enumerate(probabilities or self.probabilities(z)):
            known = b[:, k : k + 1] >= 0
            errors.append((p - one_hot(b[:, k], p.shape[1]).to(p.dtype)) * known / known.sum().clamp_min(1))
        self.velocity.mul_(self.momentum).add_(outer_sum(torch.cat(errors, 1), z))
        self.velocity.add_(self.parameters, alpha=self.weight_decay)
        self.parameters.sub_(self.velocity, alpha=self.lr)


def with_one(z: Tensor) -> Tensor:
    """z [N, d] in fp32, cut off from its graph, with a last column of ones."""
    return F.pad(z.detach().float(), (0, 1), value=1.0)


def cross_entropy(probabilities: tuple[Tensor, ...], b: Tensor) -> Tensor:
    """Σ_k CE(b̂_k, b_k), over the samples whose b_k is known."""
    total = probabilities[0].new_zeros(())
    for k, p in enumerate(probabilities):
        true = one_hot(b[:, k], p.shape[1])
        total = total - (p.clamp_min(1e-37).log() * true).sum() / true.sum().clamp_min(1)
    return total
