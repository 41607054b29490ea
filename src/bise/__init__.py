"""BISE: find the unbiased network inside a biased classifier, without changing one of its weights.

Names are imported when they are first used, so that `bise --help` need not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bise import data
    from bise.auditing import Audit, audit
    from bise.config import ExtractConfig, TrainConfig
    from bise.errors import BadInput, BiseWarning
    from bise.exporting import export
    from bise.extraction import extract
    from bise.finetuning import finetune
    from bise.gates import Subnetwork, load, subnetwork
    from bise.placement import sites
    from bise.reestimation import reestimate
    from bise.refitting import refit
    from bise.terminal import Bars
    from bise.twin import fingerprint
    from bise.unsupervised import pseudo_bias

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
