"""The callback for Lightning's Trainer."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from bise.jobs.loops.epochs import EpochAudits
from bise.runs.events import numbers_of

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""The two names under which Lightning is installed; they share no class."""


class LightningHooks(EpochAudits):
    """Audits after the epochs of Lightning's Trainer, by its first process, which tells the others."""

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        epoch = trainer.current_epoch + 1
        if self.due(epoch):
            row = self.look(pl_module, epoch) if trainer.is_global_zero else None
            row = trainer.strategy.broadcast(row)  # a checkpoint may go by it in every process
            pl_module.log_dict({f"audit/{name}": value for name, value in numbers_of(row).items()}, on_epoch=True)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.is_global_zero:
            self.finish(pl_module)


def callback_class() -> Any:
    """The hooks as a callback of the Lightning that is imported already, or else of the one that is installed."""
    imported = tuple(name for name in PACKAGES if name in sys.modules)
    return _made(imported or (PACKAGES[0] if find_spec("lightning") else PACKAGES[1],))


@cache
def _made(packages: tuple[str, ...]) -> Any:
    bases = tuple(import_module(name).Callback for name in packages)
    return type("LightningAudits", (LightningHooks, *bases), {"__doc__": LightningHooks.__doc__})
