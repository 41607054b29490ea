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

from bise.errors import BadInput


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
            return _parse(_content(candidate), candidate)
    raise BadInput(f"{path} does not exist; put the original MNIST idx files there")


def _content(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} can't be read ({error}); fetch it again") from error


def _parse(content: bytes, path: Path) -> Tensor:
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or len(content) < 4 + 4 * content[3]:
        raise BadInput(f"{path} is no idx file of bytes; fetch it again")
    shape = struct.unpack(f">{content[3]}I", content[4 : 4 + 4 * content[3]])
    start = 4 + 4 * content[3]
    if len(content) - start != math.prod(shape):
        raise BadInput(f"{path} holds {len(content) - start} bytes for shape {shape}; it was cut short, fetch it again")
    return torch.frombuffer(bytearray(content[start:]), dtype=torch.uint8).reshape(shape)
