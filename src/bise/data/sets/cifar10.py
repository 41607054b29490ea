"""CIFAR-10 as bytes: the official files, pickled or binary, or mosaics of 10,000 pictures each."""

from __future__ import annotations

import hashlib
import pickletools
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bise.base.errors import BadInput
from bise.data.core.pictures import read_picture
from bise.data.sets.idx import data_root

PIXELS = 3 * 32 * 32
MOST_LABEL_BYTES = 1 << 24
"""Of 60,000 labels, unpacked."""
SHELF = 500
"""Pictures one above the other in a mosaic's column."""


@dataclass(frozen=True, kw_only=True)
class Cifar10:
    """The files of one split, in order, and how they are written: "py", "bin" or "mosaic"."""

    files: tuple[Path, ...]
    form: str
    labels_file: Path | None = None
    split: str

    def labels(self) -> Tensor:
        """[N] of int64."""
        if self.labels_file is not None:
            return _archive_labels(self.labels_file, self.split)
        return torch.cat([_batch(file, self.form)[1] for file in self.files])

    def images(self) -> Tensor:
        """uint8 [N, 3, 32, 32], in the original order."""
        if self.form == "mosaic":
            return torch.cat([_mosaic(file) for file in self.files])
        return torch.cat([_batch(file, self.form)[0] for file in self.files])

    def digest(self) -> str:
        """A hash of all that the files hold."""
        total = hashlib.sha256()
        for file in (*self.files, *([self.labels_file] if self.labels_file else [])):
            total.update(hashlib.sha256(_content(file)).digest())
        return total.hexdigest()


def cifar10(split: str, root: str | Path | None = None) -> Cifar10:
    """The train or test split, found under `root` or the folder that BISE_DATA names.

    Looked for, there and in its folder cifar10: `cifar-10-batches-py`, `cifar-10-batches-bin`, and mosaics
    `images_0.webp` … `images_4.webp`, `images_test.webp` with `labels.npz`.
    """
    if split not in ("train", "test"):
        raise BadInput(f'split={split!r} is unknown to CIFAR-10; use "train" or "test"')
    numbers = range(1, 6)
    names = {
        "py": [f"data_batch_{i}" for i in numbers] if split == "train" else ["test_batch"],
        "bin": [f"data_batch_{i}.bin" for i in numbers] if split == "train" else ["test_batch.bin"],
        "mosaic": [f"images_{i}.webp" for i in range(5)] if split == "train" else ["images_test.webp"],
    }
    base = data_root(root)
    for form, folder in (("py", "cifar-10-batches-py"), ("bin", "cifar-10-batches-bin"), ("mosaic", "")):
        for place in (base / folder, base / "cifar10" / folder):
            files = tuple(place / name for name in names[form])
            if all(file.is_file() for file in files):
                labels = place / "labels.npz" if form == "mosaic" else None
                return Cifar10(files=files, form=form, labels_file=labels, split=split)
    raise BadInput(f"{base} holds no CIFAR-10 {split} split; put the folder cifar-10-batches-py there")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} can't be read ({error.strerror}); fetch it again") from error


def _batch(path: Path, form: str) -> tuple[Tensor, Tensor]:
    """uint8 [n, 3, 32, 32] and labels [n] of one official file."""
    pixels, labels = _records(path) if form == "bin" else _pickled(path)
    if len(labels) == 0 or len(pixels) != len(labels) * PIXELS:
        raise BadInput(f"{path} holds {len(pixels)} bytes for {len(labels)} labels; it was cut short, fetch it again")
    return pixels.reshape(-1, 3, 32, 32), _checked(labels, path)


def _records(path: Path) -> tuple[Tensor, Tensor]:
    """The binary version: one byte of label and 3,072 of picture, again and again."""
    raw = torch.frombuffer(bytearray(_content(path) or b"\0"), dtype=torch.uint8)
    if len(raw) % (1 + PIXELS):
        raise BadInput(f"{path} has {len(raw)} bytes, no multiple of {1 + PIXELS}; it was cut short, fetch it again")
    rows = raw.view(-1, 1 + PIXELS)
    return rows[:, 1:].flatten(), rows[:, 0].long()


_SILENT = {"EMPTY_LIST", "MARK", "APPENDS", "APPEND", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "LIST", "FRAME"}


def _pickled(path: Path) -> tuple[Tensor, Tensor]:
    """The Python version: a pickled dict, whose operations are listed and never carried out, so that no code can run.

    `labels` is followed by a list of ints; the pictures are the longest string of bytes.
    """
    pixels, labels, reading = b"", list[int](), False
    try:
        for operation, value, _ in pickletools.genops(_content(path)):
            if isinstance(value, (str, bytes, bytearray)):
                # pickletools shows Python 2's strings of bytes as Latin-1
                raw = value.encode("latin-1", "replace") if isinstance(value, str) else bytes(value)
                reading = raw == b"labels"
                pixels = max(pixels, raw, key=len)
            elif reading and isinstance(value, int) and operation.name in ("BININT", "BININT1", "BININT2", "INT"):
                labels.append(value)
            elif operation.name not in _SILENT:
                reading = False
    except (ValueError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is no CIFAR-10 batch ({error}); fetch it again") from error
    if not labels:
        raise BadInput(f"{path} holds no labels; it is no CIFAR-10 batch, fetch it again")
    return torch.frombuffer(bytearray(pixels or b"\0"), dtype=torch.uint8), torch.tensor(labels)


def _checked(labels: Tensor, path: Path) -> Tensor:
    if int(labels.min()) < 0 or int(labels.max()) > 9:
        raise BadInput(f"{path} holds the label {int(labels.max())}; CIFAR-10 has 0 to 9, fetch it again")
    return labels


def _archive_labels(path: Path, split: str) -> Tensor:
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MOST_LABEL_BYTES:
                raise ValueError(f"it unpacks to more than {MOST_LABEL_BYTES:,} bytes")
        with np.load(path, allow_pickle=False) as arrays:
            return _checked(torch.from_numpy(arrays[f"y_{split}"].astype(np.int64)), path)
    except Exception as error:  # numpy reads an array's header as Python, and lets through what that raises
        raise BadInput(f"{path} holds no readable y_{split} ({error}); it belongs beside the mosaics") from error


def _mosaic(path: Path) -> Tensor:
    """uint8 [n, 3, 32, 32]: pictures in columns of 500, from top to bottom and from left to right."""
    pixels = read_picture(path)
    _, height, width = pixels.shape
    if height != SHELF * 32 or width % 32:
        raise BadInput(f"{path} is {width} × {height} pixels; a mosaic is n × 32 wide and {SHELF * 32} high")
    grid = pixels.view(3, SHELF, 32, width // 32, 32)
    return grid.permute(3, 1, 0, 2, 4).reshape(-1, 3, 32, 32).contiguous()
