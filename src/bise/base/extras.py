"""Libraries that only some commands need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bise.base.errors import BadInput


def sklearn(module: str) -> Any:
    """A module of scikit-learn, or the sentence on how to have it."""
    try:
        return import_module(f"sklearn.{module}")
    except ModuleNotFoundError as error:
        raise BadInput("scikit-learn is not installed; install the extra: pip install 'bise[demo]'") from error
