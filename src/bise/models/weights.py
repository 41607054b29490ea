"""Weights to start from, out of a file: only tensors are read, never code."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from bise.errors import BadInput
from bise.files import read_tensors

WRAPPERS = ("module.", "_orig_mod.")


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file or of a state dict in .pt or .pth, on the CPU."""
    if path.suffix == ".safetensors":
        if not path.exists():
            raise BadInput(f"the weights' file {path} does not exist; put it back, or name the one that has them")
        return read_tensors(path)
    try:
        _check_archive(path)
        # of a file, Python makes room for as many bytes as an old stream of pickles claims; not so of bytes
        source = path if zipfile.is_zipfile(path) else io.BytesIO(path.read_bytes())
        state: Any = torch.load(source, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise BadInput(
            f"weights {path} can't be read: it is damaged, or holds more than tensors, which could run code; save"
            " model.state_dict() instead of the model, or a .safetensors file"
        ) from error
    except Exception as error:  # a damaged file makes the reader raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise BadInput(f"weights {path} can't be read ({reason}); give a state dict or .safetensors") from error
    for key in ("state_dict", "model_state_dict", "model"):  # as trainers wrap it
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise BadInput(f"weights {path} hold no state dict; save model.state_dict() or a .safetensors file")
    return dict(state)


def fitting(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """`state` without what DataParallel and torch.compile put before every name, where the model has none so named."""
    names = set(model.state_dict())
    for prefix in (*WRAPPERS, *WRAPPERS):  # one around the other
        if state and not names & set(state) and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state


def _check_archive(path: Path) -> None:
    """Refuse what torch.save doesn't write: a file that isn't one, and an archive that unpacks to more than it is."""
    if not path.is_file():  # a pipe would wait for ever
        raise ValueError("it is a folder" if path.is_dir() else "it does not exist")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
            if packed or sum(entry.file_size for entry in entries) > path.stat().st_size:
                raise ValueError("it is a compressed archive, which torch.save doesn't write")


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
