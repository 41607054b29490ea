"""Room for what grows with the number of samples: a budget of bytes, and files mapped to memory beyond it."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import weakref

import torch
from torch import Tensor

from bise.base.errors import BadInput

LABELS = 120
"""Bytes a sample that labels, orders and weights take at most, with one bias; they are always in memory …"""
ANOTHER_BIAS = 24
"""… and for each further bias."""


class Memory:
    """What is left of a budget of `total` bytes; labels and orders take their share first."""

    def __init__(self, total: int, samples: int, biases: int) -> None:
        labels = samples * (LABELS + ANOTHER_BIAS * (biases - 1))
        if total < labels:
            raise BadInput(
                f"memory={total:,} bytes can't hold the labels and orders of {samples:,} samples; give at least"
                f" {labels:,}"
            )
        self.left = total - labels

    def take(self, size: int) -> None:
        self.left = max(0, self.left - size)


class Store:
    """Rows [samples, width] of float32 on `device`, or in a file without a name beyond `budget` bytes.

    The file is mapped to memory as `rows`. What is looked at there counts as the process's memory, and the system
    may bring in megabytes around it, so `write` and `take` go past the mapping where the system has calls for that.
    """

    def __init__(self, samples: int, width: int, device: torch.device, budget: int) -> None:
        size = samples * width * 4
        self.file: int | None = None
        if size <= budget:
            self.rows = torch.zeros(samples, width, dtype=torch.float32, device=device)
            return
        with tempfile.TemporaryFile(prefix="bise-features-") as file:  # the mapping outlives the name and the handle
            _reserve(file.fileno(), size)
            self.rows = torch.frombuffer(mmap.mmap(file.fileno(), size), dtype=torch.float32).view(samples, width)
            if hasattr(os, "preadv"):
                self.file = os.dup(file.fileno())
                weakref.finalize(self, os.close, self.file)

    def __len__(self) -> int:
        return len(self.rows)

    def write(self, start: int, values: Tensor) -> None:
        """Put `values` [n, width] into the rows from `start` on."""
        if self.file is None:
            self.rows[start : start + len(values)] = values
            return
        data = values.float().contiguous().cpu().numpy().data.cast("B")
        offset = start * self.rows.shape[1] * 4
        while data:
            written = os.pwrite(self.file, data, offset)
            data, offset = data[written:], offset + written

    def take(self, index: Tensor) -> Tensor:
        """A copy of the rows `index` [n], which lies where the rows do."""
        if self.file is None:
            return self.rows[index]
        taken = torch.empty(len(index), self.rows.shape[1], dtype=torch.float32)
        data = taken.numpy().data.cast("B")
        width = self.rows.shape[1] * 4
        for i, row in enumerate(index.tolist()):
            if os.preadv(self.file, [data[i * width : (i + 1) * width]], row * width) != width:
                raise OSError(f"row {row} of the cached features can't be read back from {tempfile.gettempdir()}")
        return taken


def _reserve(handle: int, size: int) -> None:
    """Make the file `size` bytes long, or say that there is no room: writing to a mapping that has none would crash."""
    folder = tempfile.gettempdir()
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, size)
            return
        if shutil.disk_usage(folder).free < size:
            raise OSError("no space left on device")
        os.truncate(handle, size)
    except OSError as error:
        raise BadInput(
            f"cached features take {size / 1e9:.3g} GB, for which {folder} has no room"
            f" ({shutil.disk_usage(folder).free / 1e9:.3g} GB free); set TMPDIR to a folder that has, or raise memory"
        ) from error
