"""Files that are whole or not there: written beside, flushed, then renamed."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from bise.errors import BadInput, Unwritable

SCHEMA = 1
"""The version that every JSON file of ours carries."""


def write_bytes(path: Path, content: bytes) -> None:
    """Put `content` at `path` in one step, so that a crash leaves the old file or the new one."""
    make_folder(path.parent)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    with writing(path):
        try:
            with beside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            sync_folder(path.parent)
        finally:
            beside.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """While open, what the system says against writing names the file `path`."""
    try:
        yield
    except OSError as error:
        raise Unwritable(error.errno, error.strerror, str(path)) from error


def check_writable(folder: Path, remedy: str) -> None:
    """Refuse a folder that can't be written, before there is work behind it; one that isn't there may be made."""
    if folder.is_dir() and not writable(folder):
        raise BadInput(f"{folder} can't be written; {remedy}")


def writable(folder: Path) -> bool:
    """Whether files can be made in `folder`, by who may write there and whether its disk is read-only."""
    return os.access(folder, os.W_OK | os.X_OK)


def sync_folder(folder: Path) -> None:
    """Bring the names in `folder` to the disk, where the system can: without it a new name may be lost with power."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, where they are not there yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder} can't be a folder ({error.strerror}); choose another place") from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """`content` with the schema version, indented; NaN and infinity become null, which every reader knows."""
    text = json.dumps({"schema": SCHEMA, **finite(content)}, indent=2, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of ours, refused where it is missing, broken or of a newer schema."""
    try:
        content = json.loads(_bytes(path).decode())
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; name a folder that bise wrote") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} can't be read ({error}); name a folder that bise wrote") from error
    if not isinstance(content, dict) or not isinstance(content.get("schema"), int):
        raise BadInput(f"{path} carries no schema version; it was not written by bise")
    if content["schema"] > SCHEMA:
        raise BadInput(f"{path} has schema {content['schema']}, newer than {SCHEMA}; upgrade bise to read it")
    return content


def _bytes(path: Path) -> bytes:
    """The content of a plain file; a pipe would wait for ever, and a device never end."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path.name} is no plain file")
    return path.read_bytes()


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write a safetensors file; gives its SHA-256."""
    from safetensors.torch import save

    # safetensors refuses tensors that share storage; what is written is small, so each gets its own
    content = save({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()})
    write_bytes(path, content)
    return hashlib.sha256(content).hexdigest()


def read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(_bytes(path))
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; name a folder that bise wrote") from None
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path} is no readable safetensors file ({error})") from error


def finite(value: Any) -> Any:
    """`value` with every NaN and infinity in it as None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
