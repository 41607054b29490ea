"""C_aux: one linear head per bias on the bottleneck, trained to read b, never touched by the MI's gradient."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from bise.objective import one_hot


class BiasHeads:
    """The heads of all biases as one matrix [Σ|B_k|, d], with SGD written out: a step is a handful of small products.

    Softmax regression has the closed-form gradient (p − onehot(b))ᵀ z / N, so no graph is needed, and the same
    update serves the mask steps and the refinement on cached features.
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

    def logits(self, z: Tensor) -> tuple[Tensor, ...]:
        """One [N, |B_k|] for each bias, with a gradient towards z and none towards the heads."""
        weight = self.parameters.detach()
        return F.linear(z.float(), weight[:, :-1], weight[:, -1]).split(self.sizes, 1)

    @torch.no_grad()
    def step(self, z: Tensor, b: Tensor) -> Tensor:
        """One SGD step on Σ_k CE(b̂_k, b_k) over detached z [N, d] and b [N, K]; returns that loss before it.

        Samples whose b_k is −1 don't count for head k.
        """
        z = z.detach().float()
        loss, errors = z.new_zeros(()), []
        for k, logits in enumerate(self.logits(z)):
            log_p = logits.log_softmax(1)
            true = one_hot(b[:, k], logits.shape[1])
            known = b[:, k] >= 0
            count = known.sum().clamp_min(1)
            loss = loss - (log_p * true).sum() / count
            errors.append((log_p.exp() - true.to(log_p.dtype)) * known.unsqueeze(1) / count)
        error = torch.cat(errors, 1)
        gradient = torch.cat([error.T @ z, error.sum(0).unsqueeze(1)], 1)
        gradient.add_(self.parameters, alpha=self.weight_decay)
        self.velocity.mul_(self.momentum).add_(gradient)
        self.parameters.sub_(self.velocity, alpha=self.lr)
        return loss
