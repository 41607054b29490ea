"""Files that are whole or not there: written beside, flushed, then renamed."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from bise.base.errors import BadInput, Unwritable
from bise.base.plain import NotPlain, in_run, make_folder, move, open_plain, remove, remove_folder, sync_folder

SCHEMA = 3
"""The version that every JSON file of ours carries; `runs/schema.py` says what it changed in those of a run."""
LARGEST_TEXT = 64 * 2**20
"""Bytes that a JSON file or a log may have; those that we write stay far below."""
UNFOLDED = 512 * 2**20
"""Bytes that the objects of a JSON file or a log may take in memory."""
TAKES = {b"[": 96, b"{": 200, b":": 20, b",": 40, b'"': 20}
"""Bytes that Python takes, at most, for what each character of JSON stands for."""
LARGEST_HEADER = 100 * 2**20
"""Bytes that the header of a safetensors file may have, by its format."""


def open_to_read(path: Path) -> BinaryIO:
    return os.fdopen(open_plain(path, os.O_RDONLY), "rb")


def read_bytes(path: Path, largest: int = LARGEST_TEXT) -> bytes:
    """The content of a plain file, refused before it is read where it is larger than `largest` bytes."""
    with open_to_read(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise NotPlain(f"{path.name} has {size:,} bytes, more than {largest:,}")
        return file.read(largest)


def check_room(content: bytes) -> bytes:
    """JSON that doesn't fill the memory, refused before it is parsed."""
    if (told := unfolded(content)) > UNFOLDED:
        raise NotPlain(f"it would take up to {told / 1e9:.1f} GB of memory, more than {UNFOLDED / 1e9:.1f}")
    return content


def unfolded(content: bytes) -> int:
    """Bytes that JSON takes in memory at most, by what its characters stand for; a wide one makes a text wide."""
    width = 1 if content.isascii() and b"\\u" not in content else 4
    return len(content) * width + sum(content.count(one) * n for one, n in TAKES.items())


def read_lines(path: Path) -> list[bytes]:
    """The lines of a log, with their ends; none where there is no file."""
    return check_room(read_bytes(path)).splitlines(keepends=True) if path.exists() else []


def write_bytes(path: Path, content: bytes) -> None:
    """Put `content` at `path` in one step, so that a crash leaves the old file or the new one."""
    make_folder(path.parent)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    if not in_run(path):
        sweep_beside(path)
    with writing(path):
        try:
            with os.fdopen(open_plain(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            move(beside, path)
            sync_folder(path.parent)
        finally:
            remove(beside)


def sweep_beside(path: Path) -> None:
    """Remove what processes that died while they wrote `path` have left beside it; in a run the next job does so."""
    if os.name != "posix":  # elsewhere a process can't be asked whether it lives
        return
    stem, name, ending = (re.escape(text) for text in (path.stem, path.name, path.suffix))
    left = re.compile(rf"\.(?:{name}|{stem})\.([0-9]{{1,9}})\.part(?:{ending})?")
    with suppress(OSError), os.scandir(path.parent) as entries:
        found = [(entry, match) for entry in entries if (match := left.fullmatch(entry.name))]
        for entry, match in found:
            if not _lives(int(match[1])):
                where = path.with_name(entry.name)
                remove_folder(where) if entry.is_dir(follow_symlinks=False) else remove(where)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


def append_bytes(path: Path, content: bytes) -> None:
    """Add to the end of a file, which begins where it isn't there."""
    with writing(path), os.fdopen(open_plain(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
        file.write(content)


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


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """`content` with the schema version, indented; NaN and infinity become null, which every reader knows."""
    text = json.dumps({"schema": SCHEMA, **finite(content)}, indent=2, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file of ours, refused where it is missing, broken or of a newer schema."""
    try:
        content = json.loads(check_room(read_bytes(path)).decode())
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; name a folder that bise wrote") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} can't be read ({error}); name a folder that bise wrote") from error
    if not isinstance(content, dict) or not isinstance(content.get("schema"), int):
        raise BadInput(f"{path} carries no schema version; it was not written by bise")
    if content["schema"] > SCHEMA:
        raise BadInput(f"{path} has schema {content['schema']}, newer than {SCHEMA}; upgrade bise to read it")
    return content


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write a safetensors file; gives its SHA-256."""
    from safetensors.torch import save

    # safetensors refuses tensors that share storage; what is written is small, so each gets its own
    content = save({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()})
    write_bytes(path, content)
    return hashlib.sha256(content).hexdigest()


def read_tensors(path: Path) -> dict[str, Tensor]:
    return read_hashed(path)[0]


def read_hashed(path: Path) -> tuple[dict[str, Tensor], str]:
    """(tensors, SHA-256) of a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        content = read_bytes(path, check_header(path))
        return load(content), hashlib.sha256(content).hexdigest()
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist; name a folder that bise wrote") from None
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path} is no readable safetensors file ({error})") from error


def check_header(path: Path) -> int:
    """The size of a safetensors file, refused where its header tells of more or less: before it is read."""
    with open_to_read(path) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= length <= min(LARGEST_HEADER, size - 8):
            raise NotPlain(f"{path.name} has no header of safetensors")
        try:
            header = json.loads(check_room(file.read(length)))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
            told = 8 + length + max(ends, default=0)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            raise NotPlain(f"{path.name} has no header of safetensors") from None
    if told != size:
        raise NotPlain(f"{path.name} has {size:,} bytes, and its header tells of {told:,}")
    return size


def finite(value: Any) -> Any:
    """`value` with every NaN and infinity in it as None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
