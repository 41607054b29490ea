"""LWBC, learning with biased committee: what a committee of biased heads gets wrong counts more.

Idea: many small heads on frozen features, each taught by few random samples, go by the shortcut; the fewer of them
answer a sample right, the more it counts for the main head, from which they learn in turn (Kim et al. 2022).
Loss: main w · CE, w = 1/(h + α), h the share of the committee that is right; committee (1 − λ) CE on each head's own
subset + λ T² KL(main ‖ head) on the other samples.
Labels: y; no bias labels.
Defaults: 40 heads, subsets of 300 times the classes, drawn with replacement, α = 0.02, λ = 0.6, T = 2.5, Adam at 6e-3
in batches of 256; the main head waits for a sixth of the epochs; heads as half as wide as the features, no biases.
Departures: the source's features are self-supervised, and ours are those of the vanilla model, or of a model of one
epoch where labels are guessed; they are standardised, which takes the place of the source's factor of 150 on logits;
heads meet their subsets within batches that all share; as many epochs as the comparison's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.engine.learners import Learner
from bise.methods.shared.guessing import named
from bise.methods.shared.interface import Setting, Start, vanilla
from bise.methods.shared.stages import drawn_by, features_as_data, last_linear, outputs_of, train_stage
from bise.network.twin import duplicate


@dataclass(frozen=True, kw_only=True)
class LwbcConfig:
    """The committee, and how it and the main head teach each other."""

    heads: int = option(40, above=0)
    subset: int = option(300, above=0)
    """Samples that a head is taught by, for each class."""
    alpha: float = option(0.02, above=0)
    """α."""
    distilled: float = option(0.6, at_least=0, below=1)
    """λ."""
    temperature: float = option(2.5, above=0)
    """T."""
    lr: float = option(6e-3, above=0)
    batch_size: int = option(256, above=0)
    wait: float = option(1 / 6, at_least=0, below=1)
    """The share of the epochs in which the committee learns alone."""

    def __post_init__(self) -> None:
        check_options(self)


def committee_weights(votes: Tensor, y: Tensor, alpha: float) -> Tensor:
    """[n]: 1/(h + α), h the share of the heads whose logits `votes` [n, m, C] say y."""
    return 1 / ((votes.argmax(2) == y[:, None]).to(votes.dtype).mean(1) + alpha)


def committee_loss(
    votes: Tensor, main: Tensor, y: Tensor, own: Tensor, distilled: Tensor | float, temperature: float
) -> Tensor:
    """(1 − λ) mean CE where `own` [n, m] + λ T² mean KL(main ‖ head) where not; no gradient reaches `main` [n, C]."""
    each = F.cross_entropy(votes.transpose(1, 2), y[:, None].expand(own.shape), reduction="none")
    taught = (each * own).sum() / own.sum().clamp_min(1)
    p = (main.detach() / temperature).log_softmax(1)[:, None]
    apart = (p.exp() * (p - (votes / temperature).log_softmax(2))).sum(2)
    told = (apart * ~own).sum() / (~own).sum().clamp_min(1)
    return (1 - distilled) * taught + distilled * temperature**2 * told


class _Learner(Learner):
    y: Tensor
    own: Tensor
    waited: Tensor

    def __init__(self, width: int, classes: int, y: Tensor, config: LwbcConfig) -> None:
        between = max(1, width // 2)
        super().__init__(_head(width, between, classes))
        self.config = config
        drawn = [_head(width, between, classes) for _ in range(config.heads)]
        self.first = nn.Parameter(torch.stack([head.get_parameter("0.weight").detach() for head in drawn]))
        self.second = nn.Parameter(torch.stack([head.get_parameter("2.weight").detach() for head in drawn]))
        own = torch.zeros(len(y), config.heads, dtype=torch.bool)
        count = config.subset * len(torch.unique(y))
        own[torch.randint(len(y), (count, config.heads)), torch.arange(config.heads)] = True
        self.register_buffer("y", y)
        self.register_buffer("own", own)
        self.register_buffer("waited", torch.zeros(()))

    def begin(self, epoch: int, epochs: int) -> None:
        self.waited.fill_(float(epoch > self.config.wait * epochs))

    def votes(self, z: Tensor) -> Tensor:
        """[n, m, C]."""
        hidden = torch.einsum("nd,mhd->nmh", z, self.first).relu()
        return torch.einsum("nmh,mch->nmc", hidden, self.second)

    def loss(self, x: Any, index: Tensor) -> Tensor:
        y, c = self.y[index], self.config
        votes, main = self.votes(x), self.logits(x)
        weights = committee_weights(votes.detach(), y, c.alpha)
        told = self.waited * c.distilled
        task = (weights * F.cross_entropy(main, y, reduction="none")).mean()
        return self.waited * task + committee_loss(votes, main, y, self.own[index], told, c.temperature)


def _head(width: int, between: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, between, bias=False), nn.ReLU(), nn.Linear(between, classes, bias=False)
    )  # fmt: skip


def _taught(start: Start, train: Any, val: Any, config: LwbcConfig, setting: Setting) -> tuple[Any, Tensor, Any]:
    """(learner, standardised features of train, (mean, deviation) of the plain ones)."""
    model, cells = vanilla(start), labels(train, need_bias=False)
    name, layer = last_linear(model, train, setting)
    logits, z = outputs_of(model, train, setting, name)
    mean, deviation = z.mean(0), z.std(0).clamp_min(1e-6)
    z = (z - mean) / deviation
    judged = setting.judge(val)
    if judged is not None:
        seen = (outputs_of(model, judged, setting, name)[1] - mean) / deviation
        judged = features_as_data(seen, judged)
    with drawn_by(setting.seed):
        learner = _Learner(layer.in_features, logits.shape[1], cells.y, config).to(setting.device)
    own: dict[str, Any] = {"optimizer": "adam", "lr": config.lr, "batch_size": config.batch_size, "weight_decay": 0.0}
    budget = replace(setting.train, schedule="constant", steps=None, jitter=0.0, margin=0.0, **own)
    # heads on features are no network: what passes them isn't counted, as with other last layers
    heads = replace(setting, tally=type(setting.tally)())
    learner = train_stage(learner, features_as_data(z, train), judged, heads, config=budget, need_bias=False)
    return learner, z, (mean, deviation)


def lwbc_guess(start: Start, train: Any, config: LwbcConfig, setting: Setting) -> Tensor:
    """b̃ [N]: what less than half of the committee answers right conflicts."""
    learner, z, _ = _taught(start, train, None, config, setting)
    y = labels(train, need_bias=False).y
    with torch.no_grad():
        votes = torch.cat([learner.votes(some.to(setting.device)).cpu() for some in z.split(1024)])
    wrong = (votes.argmax(2) != y[:, None]).float().mean(1) > 0.5
    return named(votes.mean(1), y, wrong)


def lwbc(start: Start, train: Any, val: Any, config: LwbcConfig, setting: Setting) -> nn.Module:
    """The vanilla model with the main head in place of its last layer."""
    learner, _, (mean, deviation) = _taught(start, train, val, config, setting)
    first, second = learner.network[0], learner.network[2]
    into: nn.Linear = nn.utils.skip_init(nn.Linear, *first.weight.shape[::-1])
    head = nn.Sequential(into, nn.ReLU(), second).to(setting.device)
    mean, deviation = mean.to(setting.device), deviation.to(setting.device)
    with torch.no_grad():  # standardising is linear, so that it goes into the first layer
        into.weight.copy_(first.weight / deviation)
        into.bias.copy_(-(first.weight / deviation) @ mean)
    out = duplicate(vanilla(start))
    where, _, key = last_linear(out, train, setting)[0].rpartition(".")
    setattr(out.get_submodule(where), key, head.requires_grad_(False))
    return out.eval()
