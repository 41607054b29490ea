"""Weights to start from, out of a file: only tensors are read, never code."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bise.errors import BadInput
from bise.files import read_tensors


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file or of a state dict in .pt or .pth, on the CPU."""
    if path.suffix == ".safetensors":
        return read_tensors(path)
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise BadInput(
            f"weights {path} can't be read: it holds more than tensors, and could run code; save model.state_dict()"
            " instead of the model, or a .safetensors file"
        ) from error
    except (OSError, RuntimeError, ValueError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"weights {path} can't be read ({reason}); give a state dict or .safetensors") from error
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise BadInput(f"weights {path} hold no state dict; save model.state_dict() or a .safetensors file")
    return dict(state)


def start_from(model: nn.Module, state: Mapping[str, Tensor], *, head: str, what: str) -> str:
    """Put `state` into `model` and say what was done; the layer `head` keeps its own weights where shapes differ."""
    own = model.state_dict()
    kept = {name: tensor for name, tensor in state.items() if name in own and tensor.shape == own[name].shape}
    dropped = sorted(set(state) - set(kept))
    missing = sorted(set(own) - set(kept))
    wrong = [name for name in (*dropped, *missing) if not name.startswith(f"{head}.")]
    if wrong:
        raise BadInput(f"weights {what} don't fit {type(model).__name__}: {wrong[0]} is missing or of another shape")
    model.load_state_dict(kept, strict=False)
    return f"{what}, {head} drawn anew" if dropped or missing else what
