"""Many extractions in one process: memory stays flat, and no hook, file handle or thread is left behind.

    python benchmarks/soak.py --runs 200 --out results/soak.json

The runs take turns: as it is by default, BatchNorm learned too, features mapped to a file, with a checkpoint, from
data that another process reads, and one that fails half-way. Memory is what the process holds after each run, its
garbage collected; the first few runs bring in what stays.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import bise
from bise.base.files import write_json
from bise.studies.origin import machine

WARM = 12
"""Runs before memory is held against the last: two of each kind."""
BRIEF: dict[str, Any] = {"upsilon": 1, "steps": 5, "batch_size": 60, "head_epochs": 2}


class Half(RuntimeError):
    """What the failing run raises, from its own log."""


class Read(Dataset[Any]):
    """Samples that are asked for one by one, as picture files are."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.x[index]


def data(seed: int, *, streamed: bool = False) -> bise.data.Labelled:
    """Three classes and three biases in eight features."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (600,), generator=generator)
    other = (y + torch.randint(1, 3, (600,), generator=generator)) % 3
    b = torch.where(torch.rand(600, generator=generator) < 0.9, y, other)
    x = torch.randn(600, 8, generator=generator)
    rows = torch.arange(600)
    x[rows, y] += 2
    x[rows, 4 + b] += 3
    return bise.data.Labelled(Read(x) if streamed else TensorDataset(x), y=y, b=b)


def network(width: int = 32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)
    ).eval()


def extraction(number: int, model: nn.Module, folder: Path) -> None:
    """One extraction, of the kind whose turn it is."""
    kind = number % 6
    config = bise.ExtractConfig(**BRIEF, seed=number)
    if kind == 1:
        config = bise.ExtractConfig(**BRIEF, seed=number, bn="all")
    if kind == 2:
        config = bise.ExtractConfig(**BRIEF, seed=number, memory=200_000)
    seen: list[Any] = []

    def log(row: dict[str, Any]) -> None:
        seen.append(row)
        if kind == 5 and len(seen) == 3:
            raise Half

    try:
        bise.extract(
            model,
            data(number, streamed=kind == 4),
            val=data(number + 1),
            config=config,
            workers=1 if kind == 4 else 0,
            log=log,
            checkpoint=folder / f"{number}.safetensors" if kind == 3 else None,
            checkpoint_every=0.0,
        )
    except Half:
        assert kind == 5


def soak(runs: int, *, warm: int = WARM) -> dict[str, Any]:
    """Figures over `runs` extractions: resident bytes after each, and what was left behind."""
    rows: list[dict[str, int]] = []
    hooked = 0
    model = network()
    before = bise.fingerprint(model)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", bise.BiseWarning)
        for number in range(runs):
            extraction(number, model, Path(folder))
            hooked += hooks(model)
            gc.collect()
            rows.append(held())
    first, last = rows[min(warm, runs - 1)], rows[-1]
    return {
        "runs": runs,
        "warm_up": warm,
        "resident_mb": [round(row["bytes"] / 1e6, 1) for row in rows],
        "growth_percent": 100 * (last["bytes"] / first["bytes"] - 1),
        "hooks_left": hooked,
        "handles": [first["handles"], last["handles"]],
        "threads": [first["threads"], last["threads"]],
        "weights_unchanged": bise.fingerprint(model) == before,
    }


def hooks(model: nn.Module) -> int:
    """Hooks of any kind on any module of the model."""
    kinds = [name for name in vars(model) if name.endswith("_hooks")]
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


def held() -> dict[str, int]:
    """Bytes, open files and threads of this process, as Linux counts them."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "bytes": int(status["VmRSS"].split()[0]) * 1024,
        "handles": len(list(Path("/proc/self/fd").iterdir())),
        "threads": max(threading.active_count(), int(status["Threads"])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = time.perf_counter()
    found = soak(arguments.runs)
    write_json(arguments.out, {**found, "seconds": time.perf_counter() - started, "machine": machine()})
    print({key: value for key, value in found.items() if key != "resident_mb"})


if __name__ == "__main__":
    main()
