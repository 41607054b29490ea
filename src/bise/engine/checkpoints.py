"""The state of a job on disk, so that a run that was stopped goes on as if nothing had happened."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bise.errors import BadInput
from bise.files import write_bytes

EVERY = 30.0
"""Seconds between checkpoints."""


class Checkpoint:
    """One file that holds all of a job's state; `key` says whose it is, and another job's is refused.

    Tensors are written as safetensors, the rest as JSON in its header: a single file, put in place in one step, so
    that there is always a whole one.
    """

    def __init__(self, path: str | Path, *, key: str, every: float = EVERY) -> None:
        self.path, self.key, self.every = Path(path), key, every
        self.saved = time.monotonic()

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """(tensors, state) as they were saved last, or None where there is no checkpoint."""
        from safetensors import SafetensorError, safe_open

        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                header = file.metadata() or {}
                state = json.loads(header["state"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise BadInput(f"{self.path} is no readable checkpoint ({error}); delete it to start over") from error
        if header.get("key") != self.key:
            raise BadInput(
                f"{self.path} is the checkpoint of a run with another configuration, model or data; choose another"
                " folder, or delete it to start over"
            )
        return tensors, state

    def save(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Replace the checkpoint by this state."""
        from safetensors.torch import save

        # a copy of each, since safetensors refuses tensors that share storage
        whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        write_bytes(self.path, save(whole, metadata={"key": self.key, "state": json.dumps(state)}))
        self.saved = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether the last one is old enough for another."""
        return time.monotonic() - self.saved >= self.every

    def clear(self) -> None:
        """The job is done: its results are kept elsewhere."""
        self.path.unlink(missing_ok=True)


def global_random_state(device: torch.device) -> dict[str, Tensor]:
    """The states of the global generators, which dropout draws from."""
    state = {"random.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["random.cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_global_random_state(tensors: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(tensors["random.cuda"], device)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What an optimizer remembers of each parameter, by the parameter's place."""
    remembered = optimizer.state_dict()["state"]
    return {
        f"optimizer.{place}.{key}": value
        for place, state in remembered.items()
        for key, value in state.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, place, key = name.split(".")
            state.setdefault(int(place), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def named(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def key_of(*parts: Any) -> str:
    """What a job's state depends on, as one hash: tensors by their content, anything else as JSON."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            digest.update(str(tuple(part.shape)).encode() + part.detach().cpu().contiguous().numpy().tobytes())
        else:
            digest.update(json.dumps(part, sort_keys=True).encode())
        digest.update(b"\0")
    return digest.hexdigest()
