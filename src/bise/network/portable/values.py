"""What an operation is given, as JSON: numbers and words as they are, everything else under a word for its kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from bise.base.errors import BadInput

_KINDS: dict[str, type] = {"dtype": torch.dtype, "memory_format": torch.memory_format, "layout": torch.layout}


def written(value: Any) -> Any:
    """A value of an operation as JSON has it; tensors stand in the graph by the name of what makes them."""
    if isinstance(value, fx.Node):
        return {"of": value.name}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, torch.device):
        return {"device": "cpu"}
    for kind, made in _KINDS.items():
        if isinstance(value, made):
            return {kind: str(value).removeprefix("torch.")}
    if isinstance(value, slice):
        return {"slice": [written(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, tuple):
        return {"tuple": [written(item) for item in value]}
    if isinstance(value, list):
        return [written(item) for item in value]
    if isinstance(value, Mapping):
        return {"dict": [[str(key), written(item)] for key, item in value.items()]}
    raise BadInput(f"the shrunk network is given a {type(value).__name__}, which has no form in JSON; write a .pt2")


def read(value: Any, of: Callable[[str], Any]) -> Any:
    """The value that was `written`; `of` gives what stands for a tensor by its name. Raises ValueError otherwise."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [read(item, of) for item in value]
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError(f"{value!r:.60} is no value")
    ((kind, content),) = value.items()
    if kind == "of" and isinstance(content, str):
        return of(content)
    if kind == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if kind == "device" and content == "cpu":
        return torch.device("cpu")
    if kind in _KINDS and isinstance(content, str) and isinstance(found := getattr(torch, content, None), _KINDS[kind]):
        return found
    if kind == "slice" and isinstance(content, list) and len(content) == 3:
        return slice(*(read(item, of) for item in content))
    if kind == "tuple" and isinstance(content, list):
        return tuple(read(item, of) for item in content)
    if kind == "dict" and isinstance(content, list):
        return {str(key): read(item, of) for key, item in content}
    raise ValueError(f"{value!r:.60} is no value")
