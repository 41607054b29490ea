"""BiasContrastive + BiasBalance: features of one class are pulled together across biases.

Idea: a supervised contrastive loss whose positives share y and differ in b, so that what they share isn't b (Hong &
Yang 2021).
Loss: 0.01 · CE(f(x) + ln(p(y|b) + 1e-9), y) + −mean_p ln(e^{s_ip/τ} / Σ_a e^{s_ia/τ}), with cosines s of features.
Labels: y, b.
Defaults: τ = 0.07, the weight 0.01 on CE, and draws by 1/p(b|y), clipped at 10 times the smallest, as in the official
code for BiasedMNIST.
Departures: a batch is half natural draws, for CE, and half such draws, for the contrastive loss, each sample in two
views where inputs augment; augmentation is the data set's own, not the source's rotation and colour jitter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.engine.inputs import Inputs
from bise.engine.learners import Learner
from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.losses import contrastive
from bise.methods.shared.priors import log_given_bias, shares
from bise.methods.shared.samplers import Beside, Weighted
from bise.methods.shared.stages import last_linear, single_bias, train_stage


@dataclass(frozen=True, kw_only=True)
class BconConfig:
    """How both losses are weighed."""

    tau: float = option(0.07, above=0)
    ce: float = option(0.01, at_least=0)
    """The weight of the cross-entropy."""
    ratio: float = option(10.0, at_least=1)
    """How much more often than the most common cell of its class a rare one may be drawn."""

    def __post_init__(self) -> None:
        check_options(self)


def draw_weights(y: Tensor, b: Tensor, classes: int, ratio: float) -> Tensor:
    """[N]: 1 / p(b | y), at most `ratio` times the smallest of all."""
    given = shares(b, y, int(b.max()) + 1)[y, b]
    weights = 1 / given
    return weights.clamp_max(ratio * float(weights.min()))


class _Learner(Learner):
    y: Tensor
    b: Tensor
    prior: Tensor

    def __init__(self, network: nn.Module, name: str, y: Tensor, b: Tensor, classes: int, config: BconConfig) -> None:
        super().__init__(network, bottleneck=name)
        self.config, self.natural = config, 0
        self.register_buffer("y", y)
        self.register_buffer("b", b)
        self.register_buffer("prior", log_given_bias(y, b, classes))

    def loss(self, x: Any, index: Tensor) -> Tensor:
        logits, z = self.both(x)
        y, b, first = self.y[index], self.b[index], self.natural
        errors = F.cross_entropy(logits[:first] + self.prior[b[:first]], y[:first])
        y, b = y[first:], b[first:]
        positives = (y[:, None] == y) & (b[:, None] != b)
        return self.config.ce * errors + contrastive(z[first:], positives, self.config.tau)


def bcon(start: Start, train: Any, val: Any, config: BconConfig, setting: Setting) -> nn.Module:
    """The model, trained anew by both losses."""
    cells = labels(train)
    b = single_bias(cells, "bcon")
    model = fresh(start, setting.device)
    name, _ = last_linear(model, train, setting)
    learner = _Learner(model, name, cells.y, b, cells.classes, config).to(setting.device)
    views = 2 if Inputs(train, setting.device).changing else 1
    sampler = Beside(len(cells), Weighted(draw_weights(cells.y, b, cells.classes, config.ratio)), views)
    learner.natural = sampler.first(setting.train.batch_size)
    return train_stage(learner, train, val, setting, sampler=sampler).network
