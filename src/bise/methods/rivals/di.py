"""DI, domain independent: a head for each b on shared features, and their sum in use.

Idea: each value of b has its own classifier, so that none has to tell b apart; what they agree on remains (Wang et
al. 2020).
Loss: CE of the head of the sample's own b. In use: argmax_y Σ_b s_b(y), with s the raw logits, so that b isn't
needed.
Labels: y, b.
Defaults: none to choose.
Departures: the sum of the heads is written into the last layer, which gives the same logits at the usual size; epochs
are selected by that sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bise.data.core.contract import labels
from bise.engine.learners import Learner
from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.stages import drawn_by, last_linear, single_bias, train_stage


@dataclass(frozen=True, kw_only=True)
class DiConfig:
    """DI has no settings of its own."""


def own_block(logits: Tensor, b: Tensor) -> Tensor:
    """[n, C]: of logits [n, |B|, C], those of each sample's own b."""
    return logits.gather(1, b[:, None, None].expand(-1, 1, logits.shape[2]))[:, 0]


class _Learner(Learner):
    """The network's own last layer holds the sum of the heads, for whoever runs it."""

    y: Tensor
    b: Tensor

    def __init__(self, network: nn.Module, name: str, y: Tensor, b: Tensor) -> None:
        super().__init__(network, bottleneck=name)
        layer = cast(nn.Linear, network.get_submodule(name))
        layer.requires_grad_(False)
        self.classes, self.biases = layer.out_features, int(b.max()) + 1
        self.heads = nn.Linear(layer.in_features, self.biases * self.classes)
        self.register_buffer("y", y)
        self.register_buffer("b", b)
        for parameter in layer.parameters():
            parameter.was_frozen = True  # type: ignore[attr-defined]

    def loss(self, x: Any, index: Tensor) -> Tensor:
        z = self.both(x)[1]
        return F.cross_entropy(
            own_block(self.heads(z).view(len(z), self.biases, self.classes), self.b[index]), self.y[index]
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.sum_up()
        return self.network(*args, **kwargs)

    @torch.no_grad()
    def sum_up(self) -> None:
        """Σ_b of the heads, into the last layer."""
        layer = cast(nn.Linear, self.network.get_submodule(cast(str, self.bottleneck)))
        layer.weight.copy_(self.heads.weight.view(self.biases, self.classes, -1).sum(0))
        layer.bias.copy_(self.heads.bias.view(self.biases, self.classes).sum(0))


def di(start: Start, train: Any, val: Any, config: DiConfig, setting: Setting) -> nn.Module:
    """The model, with the sum of its heads as last layer."""
    cells = labels(train)
    b = single_bias(cells, "di")
    model = fresh(start, setting.device)
    name, layer = last_linear(model, train, setting)
    if layer.bias is None:
        where, _, key = name.rpartition(".")
        with drawn_by(setting.seed):
            setattr(model.get_submodule(where), key, nn.Linear(layer.in_features, layer.out_features))
    with drawn_by(setting.seed):
        learner = _Learner(model, name, cells.y, b)
    trained = train_stage(learner.to(setting.device), train, val, setting)
    trained.sum_up()
    return trained.network
