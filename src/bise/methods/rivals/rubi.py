"""RUBi: a biased network's answers mask the logits in training, so that what it can answer teaches little.

Idea: logits are multiplied by σ of what a network of 1 × 1 kernels says, which leaves a small loss where the shortcut
is right (Cadene et al. 2019, for vision as in ReBias).
Loss: CE(f(x) ⊙ σ(q), y) + CE(q, y) + CE(g(x), y), with q = W z_g of the biased network g, z_g detached. In use: f
alone.
Labels: y; no bias labels.
Defaults: the weight of CE(q, y) is 1.
Departures: W is trained; in the vision port it stays at its random start.
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
from bise.methods.shared.narrow import narrow_network
from bise.methods.shared.stages import drawn_by, last_linear, train_stage


@dataclass(frozen=True, kw_only=True)
class RubiConfig:
    """How the biased answers are weighed."""

    weight: float = option(1.0, at_least=0)
    """Of CE(q, y)."""

    def __post_init__(self) -> None:
        check_options(self)


def masked_loss(logits: Tensor, q: Tensor, y: Tensor, weight: float) -> Tensor:
    """CE(f ⊙ σ(q), y) + weight · CE(q, y)."""
    return F.cross_entropy(logits * q.sigmoid(), y) + weight * F.cross_entropy(q, y)


class _Learner(Learner):
    y: Tensor

    def __init__(
        self, network: nn.Module, narrow: nn.Module, name: str, y: Tensor, layer: nn.Linear, weight: float
    ) -> None:
        super().__init__(network, bottleneck=name)
        self.narrow, self.weight = narrow, weight
        self.answer = nn.Linear(layer.in_features, layer.out_features)
        self.register_buffer("y", y)

    def loss(self, x: Any, index: Tensor) -> Tensor:
        y = self.y[index]
        biased, z = self.both(x, self.narrow)
        main = masked_loss(self.logits(x), self.answer(z.detach()), y, self.weight)
        return main + F.cross_entropy(biased, y)


def rubi(start: Start, train: Any, val: Any, config: RubiConfig, setting: Setting) -> nn.Module:
    """The model, trained anew under the mask."""
    cells = labels(train, need_bias=False)
    model = fresh(start, setting.device)
    name, layer = last_linear(model, train, setting)
    narrow = narrow_network(start, setting)
    with drawn_by(setting.seed):
        learner = _Learner(model, narrow, name, cells.y, layer, config.weight)
    return train_stage(learner.to(setting.device), train, val, setting, need_bias=False).network
