"""Orders of an epoch that several methods draw by, each as long as a natural pass unless steps are given."""

from __future__ import annotations

import torch
from torch import Tensor

from bise.data.core.sampling import Sampler


class Listed:
    """Passes over the samples `index` [M], which may name one several times; an epoch has `samples` of them."""

    def __init__(self, index: Tensor, samples: int) -> None:
        self.index, self.samples = index, samples
        self.inner = Sampler(len(index))

    def draw(self, steps: int | None, batch: int, generator: torch.Generator) -> Tensor:
        count = self.samples if steps is None else steps * batch
        return self.index[self.inner.draw(count, 1, generator)]


class Weighted:
    """Draws with replacement, each sample as often as its weight [N] says."""

    def __init__(self, weights: Tensor) -> None:
        self.edges = weights.double().cumsum(0)

    def draw(self, steps: int | None, batch: int, generator: torch.Generator) -> Tensor:
        count = len(self.edges) if steps is None else steps * batch
        at = torch.rand(count, generator=generator, dtype=torch.float64) * self.edges[-1]
        return torch.searchsorted(self.edges, at, right=True).clamp_max(len(self.edges) - 1)


class Beside:
    """Batches whose first half are natural draws, and whose second half another sampler draws.

    With `views` 2, each sample of the second half comes twice, one after the other.
    """

    def __init__(self, samples: int, other: Weighted, views: int = 1) -> None:
        self.samples, self.natural, self.other, self.views = samples, Sampler(samples), other, views

    def first(self, batch: int) -> int:
        """How many of a batch are natural draws."""
        return batch - (batch // 2) // self.views * self.views

    def draw(self, steps: int | None, batch: int, generator: torch.Generator) -> Tensor:
        steps = -(-self.samples // batch) if steps is None else steps
        first = self.first(batch)
        second = batch - first
        natural = self.natural.draw(steps, first, generator).view(steps, first)
        count = second // self.views
        drawn = self.other.draw(steps, count, generator).view(steps, count).repeat_interleave(self.views, 1)
        return torch.cat([natural, drawn], 1).flatten()
