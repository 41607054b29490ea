"""Subsampling (SUBG): train on as many samples of each cell as the smallest one has.

Idea: leave out samples until all cells (y, b) are equally large, and train on the rest (Idrissi et al. 2022).
Loss: mean CE(f(x), y) over natural passes through that subset.
Labels: y, b.
Defaults: the comparison's training budget, the same number of steps as for every other method.
Departures: with `least` above 1, so many samples of each cell stay even where the smallest cell has fewer: with a
cell of one sample, the set would be a handful otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.samplers import Listed
from bise.methods.shared.stages import train_stage


@dataclass(frozen=True, kw_only=True)
class SubsamplingConfig:
    """How many samples stay."""

    least: int = option(1, above=0)
    """Of each cell that has so many."""

    def __post_init__(self) -> None:
        check_options(self)


def subset_of(cell: Tensor, least: int, generator: torch.Generator) -> Tensor:
    """Indices of at most max(n_min, least) samples of each cell; `cell` [N] is −1 where it isn't known."""
    order = torch.randperm(len(cell), generator=generator)
    sizes = torch.unique(cell[cell >= 0], return_counts=True)[1]
    most = max(int(sizes.min()), least)
    kept = [order[cell[order] == one][:most] for one in torch.unique(cell[cell >= 0])]
    return torch.cat(kept).sort().values


def subsampling(start: Start, train: Any, val: Any, config: SubsamplingConfig, setting: Setting) -> nn.Module:
    """The model, trained anew on the subset."""
    cells = labels(train)
    index = subset_of(cells.index, config.least, torch.Generator().manual_seed(setting.seed))
    sampler = Listed(index, len(cells))
    return train_stage(fresh(start, setting.device), train, val, setting, sampler=sampler)
