"""The idx files of MNIST, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from bise.base.errors import BadInput

MOST_DIMENSIONS = 8
DEFLATE = 1040
"""No gzip file unpacks to more than about 1,030 times its size."""
BLOCK = 1 << 20


def data_root(root: str | Path | None = None) -> Path:
    """The folder that holds data sets: `root`, or what the environment variable BISE_DATA names."""
    found = root or os.environ.get("BISE_DATA")
    if not found:
        raise BadInput("no data folder: pass root=…, or set BISE_DATA to the folder that holds the data sets")
    return Path(found)


def read_idx(path: Path) -> Tensor:
    """uint8 array of an idx file; `path` may end in .gz or lie there without it."""
    candidates = [path, path.with_suffix("") if path.suffix == ".gz" else path.with_name(path.name + ".gz")]
    for candidate in candidates:
        if candidate.is_file():
            return _read(candidate)
    raise BadInput(f"{path} does not exist; run `bise data download mnist`, or put the original MNIST idx files there")


def _read(path: Path) -> Tensor:
    """Reads no more than the header says, and believes no header that the file is too small for."""
    try:
        size = path.stat().st_size
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:3] != b"\x00\x00\x08" or head[3] > MOST_DIMENSIONS:
                raise BadInput(f"{path} is no idx file of bytes; fetch it again")
            dimensions = file.read(4 * head[3])
            if len(dimensions) < 4 * head[3]:
                raise BadInput(f"{path} is no idx file of bytes; fetch it again")
            shape = struct.unpack(f">{head[3]}I", dimensions)
            count = math.prod(shape)
            if count > size * (DEFLATE if path.suffix == ".gz" else 1):
                raise BadInput(f"{path} is too short ({size} bytes) for shape {shape}; fetch it again")
            content = bytearray()
            while len(content) <= count and (block := file.read(min(BLOCK, count + 1 - len(content)))):
                content += block
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} can't be read ({error}); fetch it again") from error
    if len(content) != count:
        held = f"more than {count}" if len(content) > count else str(len(content))
        raise BadInput(f"{path} holds {held} bytes for shape {shape}; it is damaged, fetch it again")
    return (
        torch.frombuffer(content, dtype=torch.uint8).reshape(shape) if count else torch.empty(shape, dtype=torch.uint8)
    )
