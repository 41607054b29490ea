"""The state of a job on disk, so that a run that was stopped goes on as if nothing had happened."""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bise.base.errors import BadInput, caution
from bise.base.files import check_header, check_room, read_bytes, write_bytes, writing
from bise.base.plain import move, remove
from bise.engine.processes import rank, wait

EVERY = 60.0
"""Seconds between checkpoints."""


class Checkpoint:
    """A file that holds all of a job's state, and the one before it; `key` says whose, and another job's is refused.

    Tensors are written as safetensors, the rest as JSON in its header, with a checksum over both: a single file, put
    in place in one step. Should the newest be damaged all the same, the one before it serves.
    """

    def __init__(self, path: str | Path, *, key: str, every: float = EVERY) -> None:
        self.path, self.key, self.every = Path(path), key, every
        self.previous = self.path.with_name(f"{self.path.stem}.previous{self.path.suffix}")
        self.saved = time.monotonic()

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """(tensors, state) as they were saved last, or None where there is no checkpoint."""
        found = self._newest()
        wait()  # nobody saves another one while somebody reads
        return found

    def _newest(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        damaged = ""
        for path in (self.path, self.previous):
            if not path.exists():
                continue
            try:
                found = self._read(path)
            except _Damaged as error:
                damaged = damaged or f"{path} is no readable checkpoint ({error})"
                continue
            if damaged:
                caution(f"{damaged}; the run goes on from the one before it")
            return found
        if damaged:
            raise BadInput(f"{damaged}; delete it to start over")
        return None

    def _read(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            content = read_bytes(path, check_header(path))
            header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__") or {}
            tensors = load(content)
            if header["sum"] != _checksum(tensors, header["state"]):
                raise _Damaged("its checksum differs")
            state = json.loads(check_room(header["state"].encode()))
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise _Damaged(str(error).strip("'\"")) from error
        if header.get("key") != self.key:
            raise BadInput(
                f"{path} is the checkpoint of a run with another configuration, model or data; choose another"
                " folder, or delete it to start over"
            )
        return tensors, state

    def save(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Make this state the newest; the one that was it is kept beside. Of several processes, one writes."""
        from safetensors.torch import save

        if rank():
            return

        # a copy of each, since safetensors refuses tensors that share storage
        whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        text = json.dumps(state)
        content = save(whole, metadata={"key": self.key, "state": text, "sum": _checksum(whole, text)})
        if self.path.exists():
            with writing(self.path):
                move(self.path, self.previous)
        write_bytes(self.path, content)
        self.saved = time.monotonic()

    def conclude(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """The result, in place of the states on the way to it."""
        self.save(tensors, state)
        if not rank():
            remove(self.previous)

    @property
    def due(self) -> bool:
        """Whether the last one is old enough for another."""
        return time.monotonic() - self.saved >= self.every


class _Damaged(Exception):
    """A file that is not, or no longer, what was saved."""


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    total = zlib.crc32(text.encode())
    for name in sorted(tensors):
        total = zlib.crc32(name.encode(), total)
        total = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, total)
    return f"{total:08x}"


def generator_states(generators: Mapping[str, torch.Generator]) -> dict[str, Tensor]:
    """The states of one's own generators, by their names."""
    return {f"random.{name}": generator.get_state() for name, generator in generators.items()}


def restore_generators(generators: Mapping[str, torch.Generator], tensors: Mapping[str, Tensor]) -> None:
    for name, generator in generators.items():
        generator.set_state(tensors[f"random.{name}"])


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


def under_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
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
