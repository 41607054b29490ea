"""BISE: find the unbiased network inside a biased classifier, without changing one of its weights.

Names are imported when they are first used, so that `bise --help` need not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bise.base.version import VERSION

if TYPE_CHECKING:
    from bise import data
    from bise.base.errors import BadInput, BiseWarning
    from bise.cli.terminal import Bars
    from bise.engine.config import TrainConfig
    from bise.engine.processes import together
    from bise.extraction.algorithm import extract
    from bise.extraction.config import ExtractConfig
    from bise.jobs.bench import bench
    from bise.jobs.exporting import export
    from bise.jobs.finding import find
    from bise.jobs.loops.callbacks import lightning_callback, trainer_callback
    from bise.jobs.loops.loggers import to_mlflow, to_tensorboard, to_wandb
    from bise.jobs.pretrained import save_pretrained
    from bise.jobs.report import report
    from bise.measure.audits import audit
    from bise.measure.found import Audit
    from bise.measure.limits import Verdict, judge
    from bise.methods.batch_norm import reestimate
    from bise.methods.finetuning import finetune
    from bise.methods.pseudo_labels import pseudo_bias
    from bise.methods.refit.refitting import refit
    from bise.network.placement import sites
    from bise.network.portable.network import load_pretrained
    from bise.network.pruned import shrink
    from bise.network.saving import load
    from bise.network.subnetwork import Subnetwork, subnetwork
    from bise.network.twin import fingerprint

__version__ = VERSION

__all__ = [
    "Audit",
    "BadInput",
    "Bars",
    "BiseWarning",
    "ExtractConfig",
    "Subnetwork",
    "TrainConfig",
    "Verdict",
    "audit",
    "bench",
    "data",
    "export",
    "extract",
    "find",
    "finetune",
    "fingerprint",
    "judge",
    "lightning_callback",
    "load",
    "load_pretrained",
    "pseudo_bias",
    "reestimate",
    "refit",
    "report",
    "save_pretrained",
    "shrink",
    "sites",
    "subnetwork",
    "to_mlflow",
    "to_tensorboard",
    "to_wandb",
    "together",
    "trainer_callback",
]

_HOMES = {
    "measure.audits": ("audit",),
    "measure.found": ("Audit",),
    "jobs.loops.callbacks": ("lightning_callback", "trainer_callback"),
    "jobs.loops.loggers": ("to_mlflow", "to_tensorboard", "to_wandb"),
    "measure.limits": ("Verdict", "judge"),
    "engine.config": ("TrainConfig",),
    "engine.processes": ("together",),
    "extraction.config": ("ExtractConfig",),
    "base.errors": ("BadInput", "BiseWarning"),
    "jobs.bench": ("bench",),
    "jobs.exporting": ("export",),
    "jobs.finding": ("find",),
    "jobs.pretrained": ("save_pretrained",),
    "jobs.report": ("report",),
    "extraction.algorithm": ("extract",),
    "methods.finetuning": ("finetune",),
    "network.saving": ("load",),
    "network.portable.network": ("load_pretrained",),
    "network.pruned": ("shrink",),
    "network.subnetwork": ("Subnetwork", "subnetwork"),
    "network.placement": ("sites",),
    "methods.batch_norm": ("reestimate",),
    "methods.refit.refitting": ("refit",),
    "cli.terminal": ("Bars",),
    "network.twin": ("fingerprint",),
    "methods.pseudo_labels": ("pseudo_bias",),
}


def __getattr__(name: str) -> Any:
    if name == "data":
        return import_module("bise.data")
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"bise.{module}"), name)
    raise AttributeError(f"module 'bise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
