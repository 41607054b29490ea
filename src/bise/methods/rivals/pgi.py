"""PGI, predictive group invariance: in each class, easy and hard samples are to have the same mean prediction.

Idea: after an epoch a small network for each class parts its samples so that risks and invariance differ most; then
the mean prediction of the hard part is drawn to that of the easy one (Ahmed et al. 2021).
Loss: ½ (mean CE of part 0 + mean CE of part 1) + λ_t Σ_c KL(p̄_{1,c} ‖ p̄_{0,c}), p̄ the mean softmax of a class and
part, KL a mean over classes, its gradient for the encoder alone. The parting makes R_1 + R_2 + 10 (G_1 + G_2) large:
risks and squared slopes of both parts under α = ½ (1 + tanh(·/10)).
Labels: y; no bias labels.
Defaults: λ = 50 after a linear rise over a sixth of the epochs, the source's for its digits; Adam at 1e-4, 100 steps
of 512 samples, three layers with spectral norm.
Departures: a class that lies on one side of α = ½ is cut at its mean; batches draw both parts evenly; the training
after the parting has the comparison's whole budget; L2 is the budget's weight decay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm

from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.data.core.sampling import Sampler
from bise.engine.learners import Learner
from bise.methods.shared.guessing import harder, named, sides
from bise.methods.shared.interface import Setting, Start
from bise.methods.shared.stages import drawn_by, first_model, last_linear, outputs_of, train_stage

BATCH = 512
"""Samples of a class in a step of the parting."""
LEAST = 1e-6
"""Mean predictions are at least this, before logarithms are taken."""


@dataclass(frozen=True, kw_only=True)
class PgiConfig:
    """How classes are parted, and how strong invariance is asked for."""

    first_epochs: int = option(1, above=0)
    """Before the parting."""
    steps: int = option(100, above=0)
    lr: float = option(1e-4, above=0)
    """Of the parting."""
    penalty: float = option(50.0, at_least=0)
    """λ."""
    rise: float = option(1 / 6, at_least=0, below=1)
    """The share of the epochs in which λ rises."""

    def __post_init__(self) -> None:
        check_options(self)


def parting(alpha: Tensor, errors: Tensor, slopes: Tensor) -> Tensor:
    """R_1 + R_2 + 10 (G_1 + G_2) of soft parts α and 1 − α [n], `errors` [n] and slopes by class [n, C]."""
    total = errors.new_zeros(())
    for part in (alpha, 1 - alpha):
        share = part / part.sum().clamp_min(LEAST)
        total = total + share @ errors + 10 * (share @ slopes).square().sum()
    return total


def divergence(p: Tensor, y: Tensor, hard: Tensor, classes: int) -> Tensor:
    """Σ_c of the mean over k of p̄_1 ln(p̄_1 / p̄_0), for predictions p [n, K]; 0 for a class that lacks a part."""
    member = (y[:, None] == torch.arange(classes, device=y.device)).to(p.dtype)
    parts = [member * part.to(p.dtype)[:, None] for part in (~hard, hard)]
    counts = [part.sum(0) for part in parts]
    means = [
        (part.T @ p / count.clamp_min(1)[:, None]).clamp(LEAST, 1 - LEAST)
        for part, count in zip(parts, counts, strict=True)
    ]
    each = (means[1] * (means[1].log() - means[0].log())).mean(1)
    return (each * ((counts[0] > 0) & (counts[1] > 0))).sum()


def parted(z: Tensor, logits: Tensor, y: Tensor, config: PgiConfig, seed: int) -> Tensor:
    """[N] bool: the side on which each sample is of its class's parting, by features z [N, d]."""
    errors = F.cross_entropy(logits, y, reduction="none")
    slopes = (logits.softmax(1) - F.one_hot(y, logits.shape[1])) * logits
    out = torch.zeros(len(y))
    for one in torch.unique(y):
        members = (y == one).nonzero().flatten()
        with drawn_by(seed + int(one)):
            network = _partitioner(z.shape[1])
            optimizer = torch.optim.Adam(network.parameters(), lr=config.lr, maximize=True)
            for _ in range(config.steps):
                some = members[torch.randperm(len(members))[:BATCH]]
                alpha = ((network(z[some]).squeeze(1) / 10).tanh() + 1) / 2
                optimizer.zero_grad()
                parting(alpha, errors[some], slopes[some]).backward()
                optimizer.step()
            with torch.no_grad():
                out[members] = network.eval()(z[members]).squeeze(1)
    return sides(out, 0.0, y)


def _partitioner(width: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    before = width
    for after in (width, max(1, width // 2), max(1, width // 3)):
        layers += [spectral_norm(nn.Linear(before, after)), nn.LayerNorm(after), nn.ReLU()]
        before = after
    return nn.Sequential(*layers, spectral_norm(nn.Linear(before, 1, bias=False)))


def _hard(start: Start, train: Any, config: PgiConfig, setting: Setting) -> tuple[nn.Module, str, Tensor, Tensor]:
    """(model after the first epochs, its last layer's name, its logits, which samples are in a hard part)."""
    y = labels(train, need_bias=False).y
    first = first_model(start, train, setting, config.first_epochs)
    name, _ = last_linear(first, train, setting)
    logits, z = outputs_of(first, train, setting, name)
    part = parted(z, logits, y, config, setting.seed)
    return first, name, logits, harder(F.cross_entropy(logits, y, reduction="none"), part, y, by_class=True)


def pgi_guess(start: Start, train: Any, config: PgiConfig, setting: Setting) -> Tensor:
    """b̃ [N]: samples of the hard part of their class conflict."""
    _, _, logits, hard = _hard(start, train, config, setting)
    return named(logits, labels(train, need_bias=False).y, hard)


class _Learner(Learner):
    y: Tensor
    hard: Tensor
    strength: Tensor

    def __init__(self, network: nn.Module, name: str, y: Tensor, hard: Tensor, classes: int, config: PgiConfig) -> None:
        super().__init__(network, bottleneck=name)
        self.name, self.classes, self.config = name, classes, config
        self.register_buffer("y", y)
        self.register_buffer("hard", hard)
        self.register_buffer("strength", torch.zeros(()))

    def begin(self, epoch: int, epochs: int) -> None:
        rise = max(1.0, self.config.rise * epochs)
        self.strength.fill_(self.config.penalty * min(1.0, (epoch - 1) / rise))

    def loss(self, x: Any, index: Tensor) -> Tensor:
        logits, z = self.both(x)
        y, hard = self.y[index], self.hard[index]
        errors = F.cross_entropy(logits, y, reduction="none")
        shares = [part / part.sum().clamp_min(1) for part in (hard.float(), 1 - hard.float())]
        last: Any = self.network.get_submodule(self.name)
        p = F.linear(z, last.weight.detach(), None if last.bias is None else last.bias.detach()).softmax(1)
        return (shares[0] + shares[1]) @ errors / 2 + self.strength * divergence(p, y, hard, self.classes)


def pgi(start: Start, train: Any, val: Any, config: PgiConfig, setting: Setting) -> nn.Module:
    """The first model, trained on with both parts drawn evenly."""
    cells = labels(train, need_bias=False)
    first, name, _, hard = _hard(start, train, config, setting)
    learner = _Learner(first, name, cells.y, hard, cells.classes, config).to(setting.device)
    sampler = Sampler(len(cells), hard.long())
    return train_stage(learner, train, val, setting, sampler=sampler, need_bias=False).network
