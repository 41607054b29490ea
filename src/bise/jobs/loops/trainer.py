"""The callback for transformers' Trainer."""

from __future__ import annotations

import math
from typing import Any

from transformers import TrainerCallback

from bise.base.files import finite
from bise.jobs.loops.epochs import EpochAudits
from bise.runs.events import numbers_of

ROUNDING = 1e-6
"""The trainer counts steps in fractions of an epoch; one that `max_steps` cuts short counts as an epoch."""


class TrainerAudits(EpochAudits, TrainerCallback):
    """Audits after the epochs of transformers' Trainer, by its first process."""

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        epoch = math.ceil(state.epoch - ROUNDING)
        if state.is_world_process_zero and self.due(epoch):
            row = self.look(model, epoch)
            said = {f"audit/{name}": value for name, value in numbers_of(row).items()}
            state.log_history.append(finite(said) | {"epoch": state.epoch, "step": state.global_step})

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if state.is_world_process_zero:
            self.finish(model)
