"""DeTT, debiased distillation by transplanting the last layer: SimKD from a debiased teacher, hard samples weighed up.

Idea: a teacher that was trained for the worst group hands on its last layer; its features are learned with more
weight on what a briefly trained model gets wrong (Lee & Lee 2023).
Loss: Σ w ‖P(z_s) − z_t‖² / (d v) / Σ w over a batch, w = λ on the first model's errors and 1 elsewhere; the teacher is
trained by Group DRO.
Labels: y, and b for the teacher; the student needs no b.
Defaults: λ = 50; the first model is trained for one epoch; η = 0.01.
Departures: no official code is known, and this follows what Tiwari et al. compare with; the teacher is the vanilla
model trained on by Group DRO for the finetuning budget; weights are normalised in each batch. Teacher, student and
projector are as in SimKD.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.data.core.sampling import strata
from bise.engine.losses import weighted_mean
from bise.methods.shared.distilling import Transplanted, transplanted
from bise.methods.shared.dro import against_groups
from bise.methods.shared.interface import Setting, Start, vanilla
from bise.methods.shared.stages import first_model, outputs_of, train_stage


@dataclass(frozen=True, kw_only=True)
class DettConfig:
    """How hard samples are told, and how much they count."""

    first_epochs: int = option(1, above=0)
    weight: float = option(50.0, above=0)
    """λ."""
    eta: float = option(0.01, above=0)
    """Of the teacher's Group DRO."""

    def __post_init__(self) -> None:
        check_options(self)


def error_weights(wrong: Tensor, weight: float) -> Tensor:
    """[N]: λ where a sample is `wrong`, else 1."""
    return torch.where(wrong, weight, 1.0)


class _Learner(Transplanted):
    weights: Tensor

    def __init__(self, *given: Any) -> None:
        super().__init__(*given[:-1])
        self.register_buffer("weights", given[-1])

    def loss(self, x: Any, index: Tensor) -> Tensor:
        return weighted_mean(self.apart(x), self.weights[index], None)


def dett(start: Start, train: Any, val: Any, config: DettConfig, setting: Setting) -> nn.Module:
    """The student with the projector and the debiased teacher's last layer."""
    cells = labels(train)
    how: dict[str, Any] = {"config": setting.finetune, "part": "teacher"}
    groups = strata(cells, "cells")
    teacher = against_groups(vanilla(start), train, val, setting, cells.y, groups, config.eta, **how)
    first = first_model(start, train, setting, config.first_epochs)
    wrong = outputs_of(first, train, setting)[0].argmax(1) != cells.y
    weights = error_weights(wrong, config.weight)
    learner = transplanted(_Learner, start, train, setting, weights, teacher=teacher)
    return train_stage(learner, train, val, setting).network
