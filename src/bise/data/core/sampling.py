"""Orders in which samples are drawn, natural or with strata evenly, and the weights that stand in for even draws."""

from __future__ import annotations

import torch
from torch import Tensor

from bise.base.errors import BadInput
from bise.data.core.cells import Cells
from bise.data.core.weights import cell_weights, group_weights, paper_weights


def strata(cells: Cells, balance: str) -> Tensor:
    """[N]: what is drawn evenly: the cells, or the alignment groups; "auto" takes these where biases are several.

    With several biases the cells multiply (1,000 in Multi-Color MNIST, most with one sample or none), and even
    draws from them would be draws of a few conflicting samples over and over. Samples without a bias label are a
    stratum of their own for each class, beside the cells, or one beside the alignment groups.
    """
    if balanced_over(cells, balance) == "cells":
        return torch.where(cells.known, cells.index, len(cells.counts) + cells.y)
    return torch.where(cells.known, cells.alignment_index, 2**cells.biases)


def balanced_over(cells: Cells, balance: str) -> str:
    """What `balance` means for these data: "cells" or "alignment"."""
    return ("cells" if cells.biases == 1 else "alignment") if balance == "auto" else balance


def measured_over(cells: Cells, mi: str, sampler: str, balance: str) -> str:
    """What the mutual information is taken over: "conflicting" samples, the "batch" or "none".

    Departure from the paper where cells are drawn evenly: b says nothing of y in such a batch, so all of it can be
    measured. Conflicting samples alone would be the wrong ones where both are binary: their b is just the other y.
    """
    if mi != "auto":
        return mi
    return "batch" if sampler == "balanced" and balanced_over(cells, balance) == "cells" else "conflicting"


def sample_weights(
    cells: Cells, scheme: str, balance: str = "auto", rho: float | tuple[float, ...] | None = None
) -> Tensor | None:
    """[N] weights r_j of the cross-entropy by scheme: "groups", "paper" (with ρ as given), "cells" or "none"."""
    if scheme == "none":
        return None
    if scheme == "groups":
        return group_weights(strata(cells, balance))
    if scheme in ("paper", "cells"):
        # these are about labelled samples; another one weighs as they do on average
        known = cells.known
        weights = torch.empty(len(cells), dtype=torch.float64)
        if scheme == "cells":
            weights[known] = cell_weights(cells.index[known], len(cells.counts))
        else:
            labelled = cells.y[known], cells.b[known], cells.aligned[known]
            weights[known] = paper_weights(*labelled, cells.classes, cells.bias_classes, rho)
        weights[~known] = weights[known].mean()
        return weights
    raise BadInput(f'weights={scheme!r} is unknown; use "groups", "paper", "cells" or "none"')


class Sampler:
    """Orders in which `samples` samples are drawn, evenly over strata [N] where those are given."""

    def __init__(self, samples: int, strata: Tensor | None = None) -> None:
        self.samples = samples
        self.order: Tensor | None = None
        if strata is not None:
            self.order = strata.argsort(stable=True)
            self.sizes = torch.unique(strata, return_counts=True)[1]
            self.starts = self.sizes.cumsum(0) - self.sizes

    def draw(self, steps: int | None, batch: int, generator: torch.Generator) -> Tensor:
        """The order of one epoch: `steps` batches, or as many samples as there are where `steps` is None."""
        count = self.samples if steps is None else steps * batch
        if self.order is not None:
            return self._even(self.order, count, generator)
        passes = [torch.randperm(self.samples, generator=generator) for _ in range(-(-count // self.samples))]
        return torch.cat(passes)[:count]

    def _even(self, order: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Draws with replacement, strata evenly: dealt from shuffled decks, so that none is missed for long."""
        strata = len(self.sizes)
        decks = (
            torch.rand(-(-count // strata), strata, generator=generator, dtype=torch.float32)
            .argsort(1)
            .flatten()[:count]
        )
        within = (torch.rand(count, generator=generator, dtype=torch.float64) * self.sizes[decks]).long()
        return order[self.starts[decks] + within]
