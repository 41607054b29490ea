"""VCBA: wrong answers that lie far on the wrong side of the classes' centroids tell the bias, and when to read it.

Idea: in the epoch in which misclassified samples are furthest from the border between the centroids of their class
and of their answer, a plainly trained network is most biased; its answers there stand for b (Nahon et al. 2023).
Loss: CE with weights 1/ρ_y for aligned samples, b̂ = y, and 1/(1 − ρ_b̂) for conflicting ones, b̂ = ŷ, plus
γ · I(b̂', b̂)/ln |B| over the conflicting ones of a batch, b̂' by a linear head on z, whose own CE is learned beside it on
detached z; ρ_c = 1 − (conflicting samples with b̂ = c) / n_c.
Labels: y; no bias labels.
Defaults: γ = 2; the first epoch is left out, as in the official code.
Departures: the comparison's budget for both networks; a batch without conflicting samples has its CE alone, where the
official code takes no step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bise.base.options import check_options, option
from bise.data.core.contract import Progress, labels
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.engine.learners import Learner
from bise.extraction.objective import information, joint_table
from bise.methods.shared.interface import Setting, Start, fresh
from bise.methods.shared.stages import drawn_by, last_linear, no_errors, outputs_of, train_stage
from bise.network.subnetwork import Subnetwork


@dataclass(frozen=True, kw_only=True)
class VcbaConfig:
    """How strongly the head is fought."""

    gamma: float = option(2.0, at_least=0)
    """γ."""

    def __post_init__(self) -> None:
        check_options(self)


def beyond(z: Tensor, y: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """[wrong]: distance of misclassified z to the plane between the centroids of y and of ŷ, over the mean norm.

    Centroids are those of a class's correctly classified samples; a sample is left out where one of its two has none.
    """
    right = predicted == y
    member = F.one_hot(y[right], classes).to(z.dtype)
    count = member.sum(0)
    centroids = member.T @ z[right] / count.clamp_min(1)[:, None]
    wrong = ~right & (count > 0)[y] & (count > 0)[predicted]
    own, other = centroids[y[wrong]], centroids[predicted[wrong]]
    between = (own - other).norm(dim=1).clamp_min(1e-12)
    squares = (z[wrong] - own).square().sum(1) - (z[wrong] - other).square().sum(1)
    norm = centroids[count > 0].norm(dim=1).mean() if right.any() else z.new_ones(())
    return squares.abs() / (2 * between) / norm.clamp_min(1e-12)


def class_weights(y: Tensor, guessed: Tensor, classes: int) -> Tensor:
    """[N]: 1/ρ_y of samples with b̂ = y, and 1/(1 − ρ_b̂) of the others."""
    conflicting = guessed != y
    count = torch.bincount(y, minlength=classes).clamp_min(1).float()
    share = torch.bincount(guessed[conflicting], minlength=classes) / count
    aligned = 1 / (1 - share[y]).clamp_min(1 / len(y))
    return torch.where(conflicting, 1 / share[guessed].clamp_min(1 / len(y)), aligned)


class _Biased(Learner):
    """Plain cross-entropy, and which epoch it is."""

    y: Tensor
    at: Tensor

    def __init__(self, network: nn.Module, y: Tensor) -> None:
        super().__init__(network)
        self.register_buffer("y", y)
        self.register_buffer("at", torch.zeros((), dtype=torch.long))

    def begin(self, epoch: int, epochs: int) -> None:
        self.at.fill_(epoch)

    def loss(self, x: Any, index: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(x), self.y[index])


class _Furthest:
    """Selects the epoch whose mistakes are furthest beyond the border; the first one is left out."""

    def __init__(self, train: Any, y: Tensor, classes: int, name: str, setting: Setting) -> None:
        self.inputs = Inputs(train, setting.device)
        self.y, self.classes, self.name, self.selection = y, classes, name, setting.selection

    def __call__(self, sub: Subnetwork, progress: Progress | None = None) -> dict[str, float]:
        learner: Any = sub.network
        if int(learner.at) == 1:
            return {self.selection: -1.0}
        found = infer(sub, self.inputs, features=f"network.{self.name}", progress=progress, label="reading centroids")
        assert found.z is not None
        predicted = found.logits.argmax(1)
        distances = beyond(found.z.cpu(), self.y, predicted, self.classes)
        return {self.selection: float(distances.mean()) if len(distances) else -0.5}


def vcba_guess(start: Start, train: Any, config: VcbaConfig, setting: Setting) -> Tensor:
    """b̃ [N]: the biased network's answers in its most biased epoch."""
    cells = labels(train, need_bias=False)
    biased = fresh(start, setting.device)
    name, _ = last_linear(biased, train, setting)
    learner = _Biased(biased, cells.y).to(setting.device)
    judge = _Furthest(train, cells.y, biased_classes(biased, train, setting), name, setting)
    trained = train_stage(learner, train, None, setting, part="biased", judge=judge, need_bias=False)
    return outputs_of(trained.network, train, setting)[0].argmax(1)


def biased_classes(model: nn.Module, train: Any, setting: Setting) -> int:
    """How many classes the model's answers can be."""
    some = infer(Subnetwork(model, ()), Inputs(train, setting.device), index=torch.arange(2))
    return some.logits.shape[1]


class _Learner(Learner):
    y: Tensor
    guessed: Tensor
    weights: Tensor

    def __init__(
        self, network: nn.Module, name: str, width: int, y: Tensor, guessed: Tensor, classes: int, gamma: float
    ) -> None:
        super().__init__(network, bottleneck=name)
        self.head, self.gamma = nn.Linear(width, classes), gamma
        self.register_buffer("y", y)
        self.register_buffer("guessed", guessed)
        self.register_buffer("weights", class_weights(y, guessed, classes))

    def loss(self, x: Any, index: Tensor) -> Tensor:
        logits, z = self.both(x)
        y, b = self.y[index], self.guessed[index]
        task = (self.weights[index] * F.cross_entropy(logits, y, reduction="none")).mean()
        read = F.cross_entropy(self.head(z.detach()), b)
        p = F.linear(z, self.head.weight.detach(), self.head.bias.detach()).softmax(1)
        return task + self.gamma * information(*joint_table(p, b, b != y)) + read


def vcba(start: Start, train: Any, val: Any, config: VcbaConfig, setting: Setting) -> nn.Module:
    """The model, trained anew with the answers of the biased one for b."""
    cells = labels(train, need_bias=False)
    guessed = vcba_guess(start, train, config, setting)
    if torch.equal(guessed, cells.y):
        raise no_errors(setting.train.epochs, "none is taken for conflicting", "epochs")
    model = fresh(start, setting.device)
    name, layer = last_linear(model, train, setting)
    classes = biased_classes(model, train, setting)
    with drawn_by(setting.seed):
        learner = _Learner(model, name, layer.in_features, cells.y, guessed, classes, config.gamma)
    return train_stage(learner.to(setting.device), train, val, setting, need_bias=False).network
