"""C_aux: one linear head per bias on the bottleneck, trained to read b, never touched by the MI's gradient."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


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
        """One SGD step on Σ_k CE(b̂_k, b_k) over detached z [N, d] and b [N, K]; returns that loss before it."""
        z = z.detach().float()
        loss, errors = z.new_zeros(()), []
        for k, logits in enumerate(self.logits(z)):
            log_p = logits.log_softmax(1)
            loss = loss + F.nll_loss(log_p, b[:, k])
            errors.append(log_p.exp() - F.one_hot(b[:, k], logits.shape[1]))
        error = torch.cat(errors, 1) / len(z)
        gradient = torch.cat([error.T @ z, error.sum(0).unsqueeze(1)], 1)
        gradient.add_(self.parameters, alpha=self.weight_decay)
        self.velocity.mul_(self.momentum).add_(gradient)
        self.parameters.sub_(self.velocity, alpha=self.lr)
        return loss

    def fit(self, z: Tensor, b: Tensor, order: Tensor, batch_size: int) -> float:
        """Step through `order` over cached features z [n, d]; returns the mean loss of its last tenth."""
        device = self.parameters.device
        losses = [self.step(z[index.to(z.device)].to(device), b[index].to(device)) for index in order.split(batch_size)]
        tail = losses[-max(1, len(losses) // 10) :]
        return float(torch.stack(tail).mean()) if tail else math.nan
