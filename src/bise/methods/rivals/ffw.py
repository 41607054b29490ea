"""FFW, finding the fair way: soft gates on the vanilla model's frozen weights, or on its units, learned against b.

Idea: a subnetwork in which b can't be read is there in the weights; gates find it by the mutual information (Nahon et
al. 2024).
Loss: CE(f(x), y) + γ · I(b̂, b) / ln |B| over all samples of a batch, b̂ by a linear head on z, whose own CE is
learned beside it on detached z. A gate is min(1, 2σ(w/τ)), and w ≥ 0 is kept in the end.
Labels: y, b.
Defaults: γ = 10, gates on every weight of convolutions and linear layers as published, or on units.
Departures: the source needs unbiased data; ours draws the cells (y, b) of the biased ones evenly. τ falls from 1 to
1e-3 by a fixed schedule over the finetuning budget, and not when val stops improving; one Adam at `lr` trains gates
and head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.data.core.sampling import Sampler, strata
from bise.engine.inputs import Inputs
from bise.engine.learners import Learner
from bise.engine.losses import cross_entropies
from bise.extraction.objective import information, joint_table
from bise.methods.shared.interface import Setting, Start, vanilla
from bise.methods.shared.stages import drawn_by, last_linear, single_bias, train_stage
from bise.network.gates import Gate
from bise.network.placement import place
from bise.network.subnetwork import Subnetwork
from bise.network.twin import duplicate

COLDEST = 1e-3
"""τ in the last epoch."""


@dataclass(frozen=True, kw_only=True)
class FfwConfig:
    """What is gated, and how strongly b is fought."""

    of: str = option("weights", choices=("weights", "units"))
    gamma: float = option(10.0, at_least=0)
    """γ."""
    lr: float = option(0.01, above=0)
    """Of gates and head."""

    def __post_init__(self) -> None:
        check_options(self)


def two_sigmoid(w: Tensor, tau: Tensor) -> Tensor:
    """min(1, 2σ(w/τ)), with the slope of 2σ(w/τ) everywhere, so that an open gate can close again."""
    soft = 2 * (w / tau).sigmoid()
    return soft + (soft.clamp_max(1) - soft).detach()


class _Gates(Learner):
    """What both forms share: the loss, the head, and τ."""

    tau: Tensor
    y: Tensor
    b: Tensor

    def __init__(self, network: nn.Module, name: str, y: Tensor, b: Tensor, config: FfwConfig, width: int) -> None:
        super().__init__(network, bottleneck=name)
        for parameter in network.parameters():
            parameter.requires_grad_(False)
            parameter.was_frozen = True  # type: ignore[attr-defined]  # so that training leaves it as it is
        self.head, self.gamma = nn.Linear(width, int(b.max()) + 1), config.gamma
        self.register_buffer("tau", torch.ones(()))
        self.register_buffer("y", y)
        self.register_buffer("b", b)

    def begin(self, epoch: int, epochs: int) -> None:
        self.tau.fill_(COLDEST ** ((epoch - 1) / max(1, epochs - 1)))

    def train(self, mode: bool = True) -> _Gates:
        """BatchNorm keeps its statistics."""
        super().train(mode)
        self.network.eval()
        return self

    def loss(self, x: Any, index: Tensor) -> Tensor:
        logits, z = self.gated(x)
        b = self.b[index]
        task = cross_entropies(logits, self.y[index]).mean()
        read = F.cross_entropy(self.head(z.detach()), b)
        p = F.linear(z, self.head.weight.detach(), self.head.bias.detach()).softmax(1)
        return task + self.gamma * information(*joint_table(p, b, torch.ones_like(b))) + read

    def gated(self, x: Any) -> tuple[Tensor, Tensor]:
        """(logits, z) under the soft gates."""
        raise NotImplementedError


class _OfWeights(_Gates):
    def __init__(self, network: nn.Module, *given: Any) -> None:
        super().__init__(network, *given)
        layers = [(name, m) for name, m in network.named_modules() if isinstance(m, (nn.Conv2d, nn.Conv1d, nn.Linear))]
        self.named = [f"{name}.weight" for name, _ in layers]
        self.scores = nn.ParameterList([torch.zeros_like(layer.weight) for _, layer in layers])

    def weights(self, soft: bool) -> dict[str, Tensor]:
        """The gated weights by their names."""
        own = dict(self.network.named_parameters())
        pairs = zip(self.named, self.scores, strict=True)
        return {name: own[name] * (two_sigmoid(w, self.tau) if soft else (w >= 0).float()) for name, w in pairs}

    def gated(self, x: Any) -> tuple[Tensor, Tensor]:
        held = self.weights(soft=True)
        return self.both(x, run=lambda *args, **kwargs: functional_call(self.network, held, args, kwargs))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return functional_call(self.network, self.weights(soft=False), args, kwargs)

    def result(self) -> nn.Module:
        out = duplicate(self.network)
        with torch.no_grad():
            for name, weight in self.weights(soft=False).items():
                out.get_parameter(name).copy_(weight)
        return out.eval()


class _OfUnits(_Gates):
    def __init__(self, network: Subnetwork, *given: Any) -> None:
        super().__init__(network, *given)
        self.scores = nn.ParameterList([torch.zeros(site.units) for site in network.sites])

    def _gate(self, soft: bool) -> None:
        for gate, w in zip(cast(Subnetwork, self.network).gates, self.scores, strict=True):
            cast(Gate, gate).live = two_sigmoid(w, self.tau) if soft else (w >= 0).float()

    def gated(self, x: Any) -> tuple[Tensor, Tensor]:
        self._gate(soft=True)
        try:
            return self.both(x)
        finally:
            self._ungate()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self._gate(soft=False)
        try:
            return self.network(*args, **kwargs)
        finally:
            self._ungate()

    def _ungate(self) -> None:
        for gate in cast(Subnetwork, self.network).gates:
            cast(Gate, gate).live = None


def ffw(start: Start, train: Any, val: Any, config: FfwConfig, setting: Setting) -> nn.Module:
    """The vanilla model with some of its weights at 0, or a subnetwork of it."""
    model = vanilla(start)
    cells = labels(train)
    b = single_bias(cells, "ffw")
    name, layer = last_linear(model, train, setting)
    how: dict[str, Any] = {
        "config": setting.finetune, "sampler": Sampler(len(cells), strata(cells, "cells")), "optimizer": "adam",
        "lr": config.lr, "schedule": "constant", "margin": 0.0,
    }  # fmt: skip
    given = (cells.y, b, config, layer.in_features)
    if config.of == "weights":
        with drawn_by(setting.seed):
            learner: nn.Module = _OfWeights(duplicate(model), name, *given)
        trained = train_stage(learner.to(setting.device), train, val, setting, **how)
        return cast(_OfWeights, trained).result()
    sites = place(model, Inputs(train, setting.device).example()).sites
    with drawn_by(setting.seed):
        learner = _OfUnits(Subnetwork(model, sites), f"network.{name}", *given)
    trained = train_stage(learner.to(setting.device), train, val, setting, **how)
    found = {site.name: w.detach() for site, w in zip(sites, trained.scores, strict=True)}
    return Subnetwork(model, sites, scores=found, bottleneck=name).eval()
