"""LearnedMixin+H: the model learns what is missing from a biased network's answers.

Idea: log-probabilities of a biased network, times a learned trust in them, are added in training; a penalty on their
entropy keeps the trust from vanishing (Clark et al. 2019, for vision as in ReBias).
Loss: CE(log p_f + s · log p_g, y) + 0.36 · H(softmax(s · log p_g)), s = softplus(w·z_f + c). In use: f alone.
Labels: y; no bias labels.
Defaults: g, of 1 × 1 kernels, is trained for 5 epochs first and stays; the weight of H is 0.36.
Departures: w and c are trained, which in the vision port stay at their start; log-probabilities as in the official
code. g answers once for each sample, without augmentation.
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
from bise.methods.shared.stages import drawn_by, last_linear, outputs_of, train_stage


@dataclass(frozen=True, kw_only=True)
class LearnedMixinConfig:
    """How the biased network is trained and trusted."""

    first_epochs: int = option(5, above=0)
    """Of the biased network."""
    entropy: float = option(0.36, at_least=0)
    """The weight of H."""

    def __post_init__(self) -> None:
        check_options(self)


def mixed_loss(logits: Tensor, biased: Tensor, trust: Tensor, y: Tensor, entropy: float) -> Tensor:
    """The loss above, for logits [n, C], log-probabilities of the biased network [n, C], and s [n]."""
    scaled = trust[:, None] * biased
    spread = -(scaled.softmax(1) * scaled.log_softmax(1)).sum(1).mean()
    return F.cross_entropy(logits.log_softmax(1) + scaled, y) + entropy * spread


class _Learner(Learner):
    y: Tensor
    biased: Tensor

    def __init__(self, network: nn.Module, name: str, y: Tensor, biased: Tensor, width: int, entropy: float) -> None:
        super().__init__(network, bottleneck=name)
        self.trust, self.entropy = nn.Linear(width, 1), entropy
        self.register_buffer("y", y)
        self.register_buffer("biased", biased)

    def loss(self, x: Any, index: Tensor) -> Tensor:
        logits, z = self.both(x)
        trust = F.softplus(self.trust(z))[:, 0]
        return mixed_loss(logits, self.biased[index], trust, self.y[index], self.entropy)


def learned_mixin(start: Start, train: Any, val: Any, config: LearnedMixinConfig, setting: Setting) -> nn.Module:
    """The model, trained anew beside the biased answers."""
    cells = labels(train, need_bias=False)
    model = fresh(start, setting.device)
    name, layer = last_linear(model, train, setting)
    short: dict[str, Any] = {"epochs": config.first_epochs, "schedule": "constant", "select": False}
    narrow = narrow_network(start, setting)
    narrow = train_stage(narrow, train, None, setting, part="biased", need_bias=False, **short)
    biased = outputs_of(narrow, train, setting)[0].log_softmax(1)
    with drawn_by(setting.seed):
        learner = _Learner(model, name, cells.y, biased, layer.in_features, config.entropy)
    return train_stage(learner.to(setting.device), train, val, setting, need_bias=False).network
