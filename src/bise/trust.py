"""What a run folder may say of its model and data: it may come from a stranger."""

from __future__ import annotations

from collections.abc import Container
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

from bise.errors import BadInput

OURS = ("bise.demo:digit_net", "bise.demo:splits", "bise.recipes:architecture", "bise.recipes:splits")
"""The functions that a run's configuration may call with arguments; any other is called as --model and --data are."""


def check_source(run: Path, source: dict[str, Any], *, options: Container[str]) -> None:
    """Refuse a source that chooses what a foreign function is called with, a folder that brings code, and nonsense."""
    own, texts = source.get("own") or {}, [source.get("model"), source.get("data"), source.get("weights") or ""]
    known = isinstance(own, dict) and all(
        name in options and isinstance(value, int if name == "length" else str) for name, value in own.items()
    )
    if not known or not all(isinstance(text, str) and "\0" not in text for text in texts):
        raise BadInput(f"{run}/config.json says of model and data what bise doesn't write; take back what was edited")
    for what in ("model", "data"):
        arguments = source.get(f"{what}_arguments") or {}
        if not isinstance(arguments, dict) or (arguments and source[what] not in OURS):
            raise BadInput(f"{run}/config.json gives {source[what]!r} arguments, which only functions of bise take")
    code = next((path for path in sorted(run.rglob("*")) if path.name.endswith(tuple(all_suffixes()))), None)
    if code is not None:
        raise BadInput(f"{code} is code, and a run folder holds none; move it away if it is yours")
