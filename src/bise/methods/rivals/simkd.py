"""SimKD: a student learns its teacher's features alone, and answers by the teacher's own last layer.

Idea: what a teacher knows beyond the targets is in its last layer, which a student can take over if its features are
brought to the teacher's (Chen et al. 2022).
Loss: mean ‖P(z_s) − z_t‖² / (d v) over batches, P a projector that is trained with the student, v the variance of z_t.
Labels: none but those that the teacher learned from; y is only there to select by.
Defaults: a projector of three layers, half as wide as the teacher's features in between, as in the official code.
Departures: teacher and student are a recipe's; where a model is given, the vanilla model teaches a fresh one of the
same architecture. v is there, and the gradient that reaches P(z_s) is at most 1/√n long, so that the comparison's
rates of learning suit any features. The projector works on pooled features, where the source's convolves maps, and ends
without a ReLU, since features may be negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from bise.methods.shared.distilling import Transplanted, transplanted
from bise.methods.shared.interface import Setting, Start
from bise.methods.shared.stages import train_stage


@dataclass(frozen=True, kw_only=True)
class SimkdConfig:
    """SimKD has no settings of its own."""


class _Learner(Transplanted):
    def loss(self, x: Any, index: Tensor) -> Tensor:
        return self.apart(x).mean()


def simkd(start: Start, train: Any, val: Any, config: SimkdConfig, setting: Setting) -> nn.Module:
    """The student with the projector and the teacher's last layer."""
    learner = transplanted(_Learner, start, train, setting)
    return train_stage(learner, train, val, setting, need_bias=False).network
