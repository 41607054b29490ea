"""JTT, just train twice: a short first training finds the samples that are hard, a second one sees them more often.

Idea: what a briefly trained model gets wrong conflicts with the shortcut, and is repeated λ more times (Liu et al.
2021).
Loss: mean CE(f(x), y) over passes in which each sample of the error set comes λ + 1 times.
Labels: y; no bias labels of train.
Defaults: T = 1 and λ = 50, the source's for CelebA.
Departures: the first training is by the comparison's budget, cut to T epochs at a constant rate; an epoch of the
second is as long as the data are, not as the repeated data.
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
from bise.methods.shared.stages import first_model, no_errors, outputs_of, train_stage


@dataclass(frozen=True, kw_only=True)
class JttConfig:
    """How long the first training is, and how often its errors are repeated."""

    first_epochs: int = option(1, above=0)
    """T."""
    repeats: int = option(50, above=0)
    """λ: so many copies of each error beside the sample itself."""

    def __post_init__(self) -> None:
        check_options(self)


def repeated(wrong: Tensor, repeats: int) -> Tensor:
    """Indices of all samples, and of those that are `wrong` [N] `repeats` more times."""
    everything = torch.arange(len(wrong))
    return torch.cat([everything, everything[wrong].repeat(repeats)])


def jtt_guess(start: Start, train: Any, config: JttConfig, setting: Setting) -> Tensor:
    """[N]: what the first model says; the error set is where that isn't y."""
    first = first_model(start, train, setting, config.first_epochs)
    return outputs_of(first, train, setting)[0].argmax(1)


def jtt(start: Start, train: Any, val: Any, config: JttConfig, setting: Setting) -> nn.Module:
    """The model of the second training."""
    cells = labels(train, need_bias=False)
    wrong = jtt_guess(start, train, config, setting) != cells.y
    if not wrong.any():
        raise no_errors(config.first_epochs, "none can be repeated")
    sampler = Listed(repeated(wrong, config.repeats), len(cells))
    return train_stage(fresh(start, setting.device), train, val, setting, sampler=sampler, need_bias=False)
