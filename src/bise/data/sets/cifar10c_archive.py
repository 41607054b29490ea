"""Corrupted-CIFAR10 as Lee et al. (2021) share it: folders of small PNG files with both labels in their names."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import torch
from torch import Tensor

from bise.base.errors import BadInput
from bise.data.core.cache import cached
from bise.data.core.contract import Deferred
from bise.data.core.pictures import read_picture
from bise.data.sets.idx import data_root

NAME = re.compile(r".*_(\d)_(\d)\.png")


def archive(split: str, rho: float, root: str | Path | None = None) -> tuple[Deferred, Tensor, Tensor]:
    """Pictures, y and b of `root`/cifar10c/{0.5,1,2,5}pct, which hold align, conflict and valid; all share one test."""
    base = data_root(root) / "cifar10c"
    share = base / f"{round(100 * (1 - rho), 6):g}pct"
    folders = {"train": [share / "align", share / "conflict"], "val": [share / "valid"], "test": [base / "test"]}[split]
    for folder in folders:
        if not folder.is_dir():
            there = ", ".join(sorted(path.name for path in base.glob("*pct"))) or "no such share"
            raise BadInput(f"{folder} does not exist; {base} has {there}: unpack the archive there, or choose its rho")
    files = [file for folder in folders for file in sorted(folder.rglob("*.png"))]
    if not files:
        raise BadInput(f"{folders[0]} holds no .png file; unpack the archive again")
    y, b = torch.tensor([_labels(file) for file in files]).unbind(1)
    return Deferred(lambda: _pictures(files, base), len(files)), y.clone(), b.clone()


def _labels(file: Path) -> tuple[int, int]:
    match = NAME.fullmatch(file.name)
    if match is None:
        raise BadInput(f"{file} carries no labels; names end in _target_bias.png")
    return int(match[1]), int(match[2])


def _pictures(files: list[Path], base: Path) -> Tensor:
    """uint8 [N, 3, 32, 32]; tens of thousands of files are slow to open, so the result is kept."""
    seen = hashlib.sha256()
    for file in files:
        state = file.stat()
        seen.update(f"{file.relative_to(base)} {state.st_size} {state.st_mtime_ns}\n".encode())
    recipe = {"files": seen.hexdigest(), "folder": str(base.resolve())}
    return cached("corrupted-cifar10-archive", recipe, lambda: torch.stack([_picture(file) for file in files]))


def _picture(file: Path) -> Tensor:
    pixels = read_picture(file)
    if pixels.shape != (3, 32, 32):
        raise BadInput(f"{file} is {pixels.shape[2]} × {pixels.shape[1]} pixels; it should be 32 × 32, unpack it again")
    return pixels
