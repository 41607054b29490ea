"""Orders in which samples are drawn, natural or with strata evenly, and the weights that stand in for even draws."""

from __future__ import annotations

import torch
from torch import Tensor

from bise.data.cells import Cells
from bise.errors import BadInput
from bise.objective import group_weights, paper_weights


def strata(cells: Cells, balance: str) -> Tensor:
    """[N]: what is drawn evenly: the cells, or the alignment groups; "auto" takes these where biases are several.

    With several biases the cells multiply (1,000 in Multi-Color MNIST, most with one sample or none), and even
    draws from them would be draws of a few conflicting samples over and over. Samples without a bias label are a
    stratum of their own for each class, beside the cells, or one beside the alignment groups.
    """
    if balance == "auto":
        balance = "cells" if cells.biases == 1 else "alignment"
    if balance == "cells":
        return torch.where(cells.known, cells.index, len(cells.counts) + cells.y)
    return torch.where(cells.known, cells.alignment_index, 2**cells.biases)


def sample_weights(cells: Cells, scheme: str, balance: str = "auto") -> Tensor | None:
    """[N] weights r_j of the cross-entropy by scheme: "groups", "paper" or "none"."""
    if scheme == "none":
        return None
    if scheme == "groups":
        return group_weights(strata(cells, balance))
    if scheme == "paper":
        # the closed forms are about labelled samples; another one weighs as they do on average
        known = cells.known
        weights = torch.empty(len(cells), dtype=torch.float64)
        weights[known] = paper_weights(
            cells.y[known], cells.b[known], cells.aligned[known], cells.classes, cells.bias_classes
        )
        weights[~known] = weights[known].mean()
        return weights
    raise BadInput(f'weights={scheme!r} is unknown; use "groups", "paper" or "none"')


def natural_order(samples: int, generator: torch.Generator) -> Tensor:
    """Every sample once, shuffled."""
    return torch.randperm(samples, generator=generator)


def balanced_order(strata: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` draws with replacement, strata evenly: dealt from shuffled decks, so that none is missed for long."""
    order = strata.argsort(stable=True)
    sizes = torch.unique(strata, return_counts=True)[1]
    starts = sizes.cumsum(0) - sizes
    decks = torch.rand(-(-count // len(sizes)), len(sizes), generator=generator).argsort(1).flatten()[:count]
    within = (torch.rand(count, generator=generator, dtype=torch.float64) * sizes[decks]).long()
    return order[starts[decks] + within]


def draw(strata: Tensor | None, samples: int, steps: int | None, batch: int, generator: torch.Generator) -> Tensor:
    """The order of one epoch: `steps` batches, or one pass where `steps` is None; even over strata where given."""
    count = samples if steps is None else steps * batch
    if strata is not None:
        return balanced_order(strata, count, generator)
    passes = [natural_order(samples, generator) for _ in range(-(-count // samples))]
    return torch.cat(passes)[:count]
