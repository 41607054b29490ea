"""LNL, learning not to learn: features from which a head can't read b, by a reversed gradient.

Idea: a head learns to read b from the features, and the network to leave it in the dark (Kim et al. 2019).
Loss: CE(f(x), y) + λ · mean Σ_b p log p of the head's answers, for the network alone, and the head's CE on b, whose
gradient reaches the network reversed and times 0.1.
Labels: y, b.
Defaults: λ = 0.01 and 0.1, as in the official code.
Departures: the head is linear on the bottleneck, where the source's reads pixel colours from earlier features; both
steps are one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.engine.learners import Learner
from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.stages import drawn_by, last_linear, single_bias, train_stage


@dataclass(frozen=True, kw_only=True)
class LnlConfig:
    """How strongly the head is fought."""

    entropy: float = option(0.01, at_least=0)
    """λ."""
    reversal: float = option(0.1, at_least=0)

    def __post_init__(self) -> None:
        check_options(self)


def reversed_gradient(z: Tensor, scale: float) -> Tensor:
    """z itself, whose gradient is turned round and multiplied by `scale`."""
    return -scale * z + ((1 + scale) * z).detach()


def negative_entropy(logits: Tensor) -> Tensor:
    """mean Σ p log p."""
    return (logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()


class _Learner(Learner):
    y: Tensor
    b: Tensor

    def __init__(self, network: nn.Module, name: str, y: Tensor, b: Tensor, width: int, config: LnlConfig) -> None:
        super().__init__(network, bottleneck=name)
        self.config = config
        self.head = nn.Linear(width, int(b.max()) + 1)
        self.register_buffer("y", y)
        self.register_buffer("b", b)

    def loss(self, x: Any, index: Tensor) -> Tensor:
        logits, z = self.both(x)
        dark = F.linear(z, self.head.weight.detach(), self.head.bias.detach())
        read = F.cross_entropy(self.head(reversed_gradient(z, self.config.reversal)), self.b[index])
        return F.cross_entropy(logits, self.y[index]) + self.config.entropy * negative_entropy(dark) + read


def lnl(start: Start, train: Any, val: Any, config: LnlConfig, setting: Setting) -> nn.Module:
    """The model, trained anew against the head."""
    cells = labels(train)
    b = single_bias(cells, "lnl")
    model = fresh(start, setting.device)
    name, layer = last_linear(model, train, setting)
    with drawn_by(setting.seed):
        learner = _Learner(model, name, cells.y, b, layer.in_features, config)
    return train_stage(learner.to(setting.device), train, val, setting).network
