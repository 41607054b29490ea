"""C_aux: one linear head per bias on the bottleneck, trained to read b, never touched by the MI's gradient."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from bise.extraction.objective import one_hot, outer_sum


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
        complete: bool = True,
    ) -> None:
        self.sizes, self.complete = list(bias_classes), complete
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        bound = 1 / math.sqrt(width)
        start = (torch.rand(sum(bias_classes), width + 1, generator=generator, dtype=torch.float32) * 2 - 1) * bound
        self.parameters = start.to(device)
        """[Σ|B_k|, d + 1], the last column the intercepts."""
        self.velocity = torch.zeros_like(self.parameters)

    def probabilities(self, z: Tensor) -> tuple[Tensor, ...]:
        """softmax of each head, [N, |B_k|], on z [N, d + 1]."""
        return tuple(logits.softmax(1) for logits in (z @ self.parameters.T).split(self.sizes, 1))

    def one_hots(self, b: Tensor) -> Tensor:
        """[N, Σ|B_k|] float: the one-hot rows of b [N, K] side by side; zeros where b_k is −1, not known."""
        return torch.cat([one_hot(b[:, k], size) for k, size in enumerate(self.sizes)], 1).float()

    def known(self, true: Tensor) -> Tensor:
        """[K]: how many samples of `one_hots` have a known b_k."""
        return torch.stack([rows.sum() for rows in true.split(self.sizes, 1)])

    @torch.no_grad()
    def part(self, z: Tensor, true: Tensor, probabilities: tuple[Tensor, ...], known: Tensor) -> tuple[Tensor, Tensor]:
        """(gradient, Σ_k CE): what these rows contribute to those of a batch in which `known` [K] b_k are known."""
        shares = (1 / known.clamp_min(1)).repeat_interleave(torch.tensor(self.sizes, device=known.device))
        of_known = torch.cat([rows.sum(1, keepdim=True).expand_as(rows) for rows in true.split(self.sizes, 1)], 1)
        everything = _side_by_side(probabilities)
        loss = -(everything.clamp_min(1e-37).log() * true * shares).sum()
        return outer_sum((everything - true) * of_known * shares, z), loss

    @torch.no_grad()
    def step_by(self, gradient: Tensor) -> None:
        """One SGD step by this gradient [Σ|B_k|, d + 1]."""
        self._move(gradient, 1.0)

    @torch.no_grad()
    def step(self, z: Tensor, true: Tensor, probabilities: tuple[Tensor, ...] | None = None) -> None:
        """One SGD step on Σ_k CE(b̂_k, b_k) over z [N, d + 1], with b as `one_hots`, at the `probabilities` there.

        Samples whose b_k is not known don't count for head k.
        """
        error = _side_by_side(probabilities or self.probabilities(z)) - true
        if self.complete:
            error, share = error, 1 / len(z)
        else:
            parts = zip(error.split(self.sizes, 1), true.split(self.sizes, 1), strict=True)
            error, share = torch.cat([part * _shares(rows) for part, rows in parts], 1), 1.0
        self._move(outer_sum(error, z), share)

    def _move(self, gradient: Tensor, share: float) -> None:
        self.velocity.mul_(self.momentum).add_(gradient, alpha=share)
        self.velocity.add_(self.parameters, alpha=self.weight_decay)
        self.parameters.sub_(self.velocity, alpha=self.lr)


def with_one(z: Tensor) -> Tensor:
    """z [N, d] in fp32, cut off from its graph, with a last column of ones."""
    return F.pad(z.detach().float(), (0, 1), value=1.0)


def cross_entropy(probabilities: tuple[Tensor, ...], true: Tensor) -> Tensor:
    """Σ_k CE(b̂_k, b_k), over the samples whose b_k is known; `true` are the rows of `one_hots`."""
    total = true.new_zeros(())
    for p, rows in zip(probabilities, true.split([p.shape[1] for p in probabilities], 1), strict=True):
        total = total - (p.clamp_min(1e-37).log() * rows).sum() / rows.sum().clamp_min(1)
    return total


def _side_by_side(parts: tuple[Tensor, ...]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _shares(rows: Tensor) -> Tensor:
    """[N, 1]: what each sample counts for, one over the number of known ones; 0 where it isn't known."""
    known = rows.sum(1, keepdim=True)
    return known / known.sum().clamp_min(1)
