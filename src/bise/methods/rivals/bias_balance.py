"""BiasBalance: logits are raised by ln p(y | b) in training, and plain in use.

Idea: what b tells about y by frequency is given to the model for nothing, so that it has to learn the rest (Hong &
Yang 2021).
Loss: CE(f(x) + ln(p(y | b) + 1e-9), y), p from the counts of train.
Labels: y, b.
Defaults: none to choose.
Departures: none known; the comparison's budget in place of the source's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bise.data.core.contract import labels
from bise.engine.learners import Learner
from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.priors import log_given_bias
from bise.methods.shared.stages import single_bias, train_stage


@dataclass(frozen=True, kw_only=True)
class BiasBalanceConfig:
    """BiasBalance has no settings of its own."""


class _Learner(Learner):
    y: Tensor
    b: Tensor
    prior: Tensor

    def __init__(self, network: nn.Module, y: Tensor, b: Tensor, classes: int) -> None:
        super().__init__(network)
        self.register_buffer("y", y)
        self.register_buffer("b", b)
        self.register_buffer("prior", log_given_bias(y, b, classes))

    def loss(self, x: Any, index: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(x) + self.prior[self.b[index]], self.y[index])


def bias_balance(start: Start, train: Any, val: Any, config: BiasBalanceConfig, setting: Setting) -> nn.Module:
    """The model, trained anew on raised logits."""
    cells = labels(train)
    b = single_bias(cells, "bias-balance")
    learner = _Learner(fresh(start, torch.device("cpu")), cells.y, b, cells.classes).to(setting.device)
    return train_stage(learner, train, val, setting).network
