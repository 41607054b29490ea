"""DeDiER: a student is distilled with more weight on what its own early layers misread with confidence.

Idea: shortcuts are read from early features; where a readout there is surely wrong, the teacher's answer counts more
(Tiwari et al. 2024).
Loss: mean w · T² KL(p_t^T ‖ p_s^T) over batches, no CE; w = exp(β m^α) for samples that the readout misread when they
came last, m its margin between the two likeliest classes, and 1 for those that it never misread. The readout learns CE
on detached features.
Labels: y; no bias labels. The teacher is the vanilla model.
Defaults: T = 3; α = 0.1 and β = 3.5, the source's for CelebA.
Departures: teacher and student are a recipe's, or the vanilla model and a fresh one of its architecture. The
readout is two linear layers on the pooled output of the site at a quarter of the depth, in place of convolutions behind
layer 1. It is trained beside the student and goes on from epoch to epoch, in place of anew after each; weights count
from the second epoch on. They are normalised in each batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.engine.inputs import Inputs
from bise.engine.losses import weighted_mean
from bise.methods.shared.distilling import Taught
from bise.methods.shared.interface import Setting, Start, fresh, vanilla
from bise.methods.shared.stages import drawn_by, last_linear, train_stage
from bise.network.outputs import call
from bise.network.placement import Site, place
from bise.network.subnetwork import pooled


@dataclass(frozen=True, kw_only=True)
class DedierConfig:
    """How soft the teacher's answers are, and how much a misread sample counts."""

    temperature: float = option(3.0, above=0)
    """T."""
    alpha: float = option(0.1, above=0)
    """α."""
    beta: float = option(3.5, at_least=0)
    """β."""

    def __post_init__(self) -> None:
        check_options(self)


def distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """[n]: T² KL(p_t^T ‖ p_s^T) of logits [n, C]."""
    own, told = (logits.div(temperature).log_softmax(1) for logits in (student, teacher))
    return temperature**2 * (told.exp() * (told - own)).sum(1)


def misread_weights(read: Tensor, y: Tensor, alpha: float, beta: float) -> tuple[Tensor, Tensor]:
    """(exp(β m^α), which samples are misread), each [n], by the readout's logits [n, C]."""
    p = read.softmax(1).topk(2, 1).values
    return (beta * (p[:, 0] - p[:, 1]) ** alpha).exp(), read.argmax(1) != y


class _Learner(Taught):
    y: Tensor
    weights: Tensor
    counting: Tensor

    def __init__(
        self, student: nn.Module, teacher: nn.Module, teachers: str, site: Site, width: int, classes: int, y: Tensor,
        config: DedierConfig,
    ) -> None:  # fmt: skip
        super().__init__(student, teacher, teachers)
        self.site, self.config = site, config
        self.readout = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))
        self.register_buffer("y", y)
        self.register_buffer("weights", torch.ones(len(y)))
        self.register_buffer("counting", torch.zeros(()))

    def begin(self, epoch: int, epochs: int) -> None:
        self.counting.fill_(float(epoch > 1))

    def loss(self, x: Any, index: Tensor) -> Tensor:
        y, c = self.y[index], self.config
        with _early(self.network, self.site) as caught:
            logits = self.logits(x)
        read = self.readout(caught[0].detach().float())
        each = distillation(logits, self.told(x)[0], c.temperature)
        before = self.weights[index]
        with torch.no_grad():
            now, wrong = misread_weights(read, y, c.alpha, c.beta)
            self.weights[index] = torch.where(wrong & (self.counting > 0), now, before)
        return weighted_mean(each, before, None) + F.cross_entropy(read, y)


class _early:
    """While open, notes the pooled features at a site."""

    def __init__(self, network: nn.Module, site: Site) -> None:
        self.module, self.site, self.caught = network.get_submodule(site.module), site, list[Tensor]()

    def __enter__(self) -> list[Tensor]:
        def note(_: nn.Module, args: tuple[Any, ...], output: Any = None) -> None:
            self.caught.append(pooled(args[0] if self.site.at_input else output))

        at_input = self.module.register_forward_pre_hook
        self.handle = at_input(note) if self.site.at_input else self.module.register_forward_hook(note)
        return self.caught

    def __exit__(self, *_: Any) -> None:
        self.handle.remove()


def dedier(start: Start, train: Any, val: Any, config: DedierConfig, setting: Setting) -> nn.Module:
    """The student."""
    cells, teacher = labels(train, need_bias=False), vanilla(start)
    teachers, layer = last_linear(teacher, train, setting)
    student = fresh(start, setting.device)
    example = Inputs(train, setting.device).example()
    sites = place(student, example).sites
    site = sites[len(sites) // 4]
    with torch.no_grad(), _early(student.eval(), site) as caught:
        classes = max(2, layer.out_features)
        call(student, example)
    with drawn_by(setting.seed):
        learner = _Learner(student, teacher, teachers, site, caught[0].shape[1], classes, cells.y, config)
    return train_stage(learner.to(setting.device), train, val, setting, need_bias=False).network
