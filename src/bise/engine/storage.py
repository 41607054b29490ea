"""Room for what grows with the number of samples: a budget of bytes, and files mapped to memory beyond it."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile

import torch
from torch import Tensor

from bise.errors import BadInput

LABELS = 160
"""Bytes a sample that labels, orders and weights take at most, with one bias; they are always in memory …"""
ANOTHER_BIAS = 24
"""… and for each further bias."""
FAULT = 1 << 16
"""Bytes of a mapping that the system brings in where one of them is asked for."""
LEAST_VIEW = 1 << 22
"""A mapping is looked at through a window of at least so many bytes, whatever is left of the budget."""


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
    """Rows [samples, width] of float32 on `device`, or mapped to a file without a name beyond `budget` bytes.

    What is read or written through a mapping counts as the process's memory until it is dropped, so no more than
    the budget is kept in view.
    """

    def __init__(self, samples: int, width: int, device: torch.device, budget: int) -> None:
        size = samples * width * 4
        self.mapping: mmap.mmap | None = None
        self.view, self.seen = max(LEAST_VIEW, budget), 0
        if size <= budget:
            self.rows = torch.zeros(samples, width, device=device)
            return
        with tempfile.TemporaryFile(prefix="bise-features-") as file:  # the mapping outlives the name and the handle
            _reserve(file.fileno(), size)
            self.mapping = mmap.mmap(file.fileno(), size)
        self.rows = torch.frombuffer(self.mapping, dtype=torch.float32).view(samples, width)

    def __len__(self) -> int:
        return len(self.rows)

    def write(self, start: int, values: Tensor) -> None:
        """Put `values` [n, width] into the rows from `start` on."""
        self._look_at(values.numel() * 4)
        self.rows[start : start + len(values)] = values

    def take(self, index: Tensor) -> Tensor:
        """A copy of the rows `index` [n], which lies where the rows do."""
        if self.mapping is None:
            return self.rows[index]
        each = max(FAULT, self.rows.shape[1] * 4)
        parts = []
        for part in index.split(max(1, self.view // each)):
            self._look_at(len(part) * each)
            parts.append(self.rows[part])
        return torch.cat(parts)

    def _look_at(self, size: int) -> None:
        if self.seen + size > self.view:
            self.drop()
        self.seen += size

    def drop(self) -> None:
        """Take the mapping out of view; what was written stays in the file."""
        if self.mapping is not None and hasattr(self.mapping, "madvise"):
            self.mapping.madvise(mmap.MADV_DONTNEED)
        self.seen = 0


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
