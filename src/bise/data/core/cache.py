"""Data sets that were made once and are kept: one file for each recipe, checked when it is read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bise.base.errors import BadInput, caution
from bise.base.files import read_tensors, write_tensors


def cache_folder() -> Path:
    """The folder that the environment variable BISE_CACHE names, else ~/.cache/bise."""
    return Path(os.environ.get("BISE_CACHE") or Path.home() / ".cache" / "bise")


def cached(name: str, recipe: Mapping[str, Any], make: Callable[[], Tensor]) -> Tensor:
    """What `make` gives, from the file that `name` and the hash of `recipe` call, where it is there and whole.

    The recipe has to name everything that the result depends on.
    """
    key = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:20]
    path = cache_folder() / f"{name}-{key}.safetensors"
    found = _whole(path)
    if found is not None:
        return found
    made = make()
    try:
        write_tensors(path, {"x": made, "sha256": digest(made)})
    except (BadInput, OSError) as error:
        caution(
            f"{path} can't be written ({error}), so {name} is made anew each time; name another folder in BISE_CACHE",
        )
    return made


def digest(x: Tensor) -> Tensor:
    """uint8 [32]: SHA-256 of a tensor's values."""
    raw = hashlib.sha256(x.contiguous().view(torch.uint8).numpy().data).digest()
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)


def _whole(path: Path) -> Tensor | None:
    """The tensor in `path`, or None where it is missing, cut short or damaged."""
    try:
        tensors = read_tensors(path)
    except BadInput:
        return None
    if tensors.keys() != {"x", "sha256"} or not torch.equal(digest(tensors["x"]), tensors["sha256"]):
        return None
    return tensors["x"]
