"""BISE: find the unbiased network inside a biased classifier, without changing one of its weights.

Names are imported when they are first used, so that `bise --help` need not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bise import data
    from bise.measure.audits import Audit, audit
    from bise.extraction.config import ExtractConfig, TrainConfig
    from bise.base.errors import BadInput, BiseWarning
    from bise.network.shrinking.exporting import export
    from bise.extraction.algorithm import extract
    from bise.methods.finetuning import finetune
    from bise.network.gates import Subnetwork, load, subnetwork
    from bise.network.placement import sites
    from bise.methods.batch_norm import reestimate
    from bise.methods.refit.refitting import refit
    from bise.cli.terminal import Bars
    from bise.network.twin import fingerprint
    from bise.methods.pseudo_labels import pseudo_bias

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "BadInput",
    "Bars",
    "BiseWarning",
    "ExtractConfig",
    "Subnetwork",
    "TrainConfig",
    "audit",
    "data",
    "export",
    "extract",
    "finetune",
    "fingerprint",
    "load",
    "pseudo_bias",
    "reestimate",
    "refit",
    "sites",
    "subnetwork",
]

_HOMES = {
    "auditing": ("Audit", "audit"),
    "config": ("ExtractConfig", "TrainConfig"),
    "errors": ("BadInput", "BiseWarning"),
    "exporting": ("export",),
    "extraction": ("extract",),
    "finetuning": ("finetune",),
    "gates": ("Subnetwork", "load", "subnetwork"),
    "placement": ("sites",),
    "reestimation": ("reestimate",),
    "refitting": ("refit",),
    "terminal": ("Bars",),
    "twin": ("fingerprint",),
    "unsupervised": ("pseudo_bias",),
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
