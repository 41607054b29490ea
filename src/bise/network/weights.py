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

from bise.base.errors import BadInput
from bise.base.files import read_tensors

WRAPPERS = ("module.", "_orig_mod.")
COUNTER = "n_averaged"
"""What torch's AveragedModel keeps beside the weights."""
MOST_NAMES = 3
"""In a sentence."""


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file or of a state dict in .pt or .pth, on the CPU."""
    if path.suffix == ".safetensors":
        if not path.exists():
            raise BadInput(f"the weights' file {path} does not exist; put it back, or name the one that has them")
        return read_tensors(path.resolve())  # the user's own may be a link, as in the cache of a hub
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
    if isinstance(state, Mapping) and not _is_state(state):
        within = [value for value in state.values() if _is_state(value) and value]
        state = within[0] if len(within) == 1 else state
    if not _is_state(state):
        raise BadInput(f"weights {path} hold no state dict; save model.state_dict() or a .safetensors file")
    return dict(state)


def _is_state(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(item, Tensor) for name, item in value.items()
    )


def fitting(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """`state` without what wrappers put before every name, where the model has none so named.

    DataParallel and torch.compile are known; what another one puts there, as Lightning's `model.`, has to leave the
    very names of the model.
    """
    names = set(model.state_dict())
    weights = set(state) - {COUNTER}
    last = max(names, key=len, default="")
    for prefix in [name.removesuffix(last) for name in weights if name.endswith(f".{last}")]:
        if weights == {prefix + name for name in names}:
            return {name: state[prefix + name] for name in names}
    for prefix in (*WRAPPERS, *WRAPPERS):  # one around the other
        if state and not names & set(state) and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state


def misfit(state: Mapping[str, Tensor], model: nn.Module) -> str | None:
    """Which names of `state` and `model` are not the other's, a few of them; None where they are the same."""
    own = model.state_dict()
    lacking, odd = [name for name in own if name not in state], [name for name in state if name not in own]
    parts = [f"it lacks {_few(lacking)}"] if lacking else []
    parts += [f"it holds {_few(odd)}, which the model doesn't have"] if odd else []
    return "; ".join(parts) or None


def _few(names: list[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


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
