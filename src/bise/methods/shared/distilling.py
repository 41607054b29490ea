"""What distillations share: a teacher that stands still, and its last layer on the student's features."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from bise.engine.learners import Learner
from bise.methods.shared.interface import Setting, Start, fresh, vanilla
from bise.methods.shared.losses import held
from bise.methods.shared.stages import drawn_by, last_linear
from bise.network.twin import duplicate


class Taught(Learner):
    """A student, which is the network, beside a frozen teacher."""

    def __init__(self, student: nn.Module, teacher: nn.Module, teachers: str) -> None:
        super().__init__(student)
        self.teacher, self.teachers = duplicate(teacher), teachers
        for parameter in self.teacher.parameters():
            parameter.requires_grad_(False)
            parameter.was_frozen = True  # so that training leaves it as it is

    def train(self, mode: bool = True) -> Taught:
        """The teacher's BatchNorm keeps its statistics."""
        super().train(mode)
        self.teacher.eval()
        return self

    @torch.no_grad()
    def told(self, x: Any) -> tuple[Tensor, Tensor]:
        """(logits, z) of the teacher."""
        own, self.bottleneck = self.bottleneck, self.teachers
        try:
            return self.both(x, self.teacher)
        finally:
            self.bottleneck = own


class Transplanted(Taught):
    """A student that ends in a projector onto the teacher's features and in the teacher's last layer."""

    def __init__(self, student: nn.Module, name: str, teacher: nn.Module, teachers: str, middle: int) -> None:
        super().__init__(student, teacher, teachers)
        where, _, key = name.rpartition(".")
        own, theirs = student.get_submodule(name), self.teacher.get_submodule(teachers)
        assert isinstance(own, nn.Linear)
        assert isinstance(theirs, nn.Linear)
        head = nn.Sequential(projector(own.in_features, theirs.in_features, middle), duplicate(theirs))
        for parameter in head[1].parameters():
            parameter.was_frozen = True  # type: ignore[attr-defined]
        setattr(student.get_submodule(where), key, head)
        self.bottleneck = f"{name}.1"

    def apart(self, x: Any) -> Tensor:
        """[n]: mean squares between the projected features and the teacher's, over the variance of these."""
        _, z = self.both(x)
        told = self.told(x)[1]
        spread = (told - told.mean(0)).square().mean()
        return (held(z) - told).square().mean(1) / spread.clamp_min(1e-12)


def projector(before: int, after: int, middle: int) -> nn.Sequential:
    """From features [n, s] to [n, t]: three linear layers, BatchNorm and ReLU behind the first two."""
    layers: list[nn.Module] = []
    for one, two in ((before, middle), (middle, middle)):
        layers += [nn.Linear(one, two, bias=False), nn.BatchNorm1d(two), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(middle, after))


def transplanted(kind: Any, start: Start, train: Any, setting: Setting, *more: Any, teacher: Any = None) -> Any:
    """A `kind` of Transplanted on the device, with the vanilla model or another `teacher`."""
    teacher = vanilla(start) if teacher is None else teacher
    teachers, layer = last_linear(teacher, train, setting)
    student = fresh(start, setting.device)
    name, _ = last_linear(student, train, setting)
    with drawn_by(setting.seed):
        learner = kind(student, name, teacher, teachers, max(1, layer.in_features // 2), *more)
    return learner.to(setting.device)
