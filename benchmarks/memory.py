"""Peak memory of an extraction on streamed data at 1×, 4× and 16× the samples, within a budget and without one.

    python benchmarks/memory.py --out results/memory.json

Each extraction runs in a process of its own, which reports its peak resident memory above what it held before the
extraction began. The fixed part, a batch's activations and PyTorch's own buffers, is what the smallest run takes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import bise
from bise.base.files import write_json
from bise.studies.origin import machine


class Stream(Dataset[tuple[Tensor, int, int]]):
    """Pictures [3, 8, 8] that exist only while somebody looks at them: y in one corner, b in all of them."""

    def __init__(self, samples: int, rho: float, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, 4, (samples,), generator=generator)
        other = (self.y + torch.randint(1, 4, (samples,), generator=generator)) % 4
        self.b = torch.where(torch.rand(samples, generator=generator) < rho, self.y, other)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        y, b = int(self.y[index]), int(self.b[index])
        x = torch.full((3, 8, 8), 0.1 * (index % 7))
        x[0, y] += 1
        x[1, :, b] += 3
        return x, y, b


def network(features: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(144, features),
        nn.ReLU(),
        nn.Linear(features, 4),
    ).eval()


def resident(which: str) -> int:
    """The process's resident memory in bytes, now (VmRSS) or at its peak (VmHWM), as Linux counts it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(which)) * 1024


def one(samples: int, features: int, memory: int, preset: str) -> dict[str, Any]:
    """An extraction in this process: a pass over the data for each kind of epoch."""
    warnings.simplefilter("ignore")
    brief = {"upsilon": 1, "tau_min": 0.6, "head_epochs": 2}
    config = getattr(bise.ExtractConfig, preset)(memory=memory, **brief)
    bise.extract(network(features), Stream(600, 0.9, 2), config=config)  # what the first run of all brings in
    train, val = Stream(samples, 0.9, 0), Stream(samples, 0.25, 1)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    bise.extract(network(features), train, val=val, config=config)
    return {
        "samples": samples,
        "preset": preset,
        "features": samples * (features + 1) * 4,
        "memory": memory,
        "peak": resident("VmHWM") - before,
    }


def apart(*arguments: Any) -> dict[str, Any]:
    """`one` in a process of its own."""
    command = [sys.executable, __file__, "--one", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--memory", type=int, default=32 << 20, help="the budget, in bytes")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--one", nargs=4, default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(*map(int, args.one[:3]), args.one[3])))
        return
    rows = []
    for preset in ("paper", "balanced"):
        for memory in (args.memory, 4 << 30):
            for times in (1, 4, 16):
                rows.append(apart(args.samples * times, args.features, memory, preset))
                print(
                    {k: f"{v / 1e6:.1f} MB" if k in ("features", "memory", "peak") else v for k, v in rows[-1].items()}
                )
    if args.out is not None:
        write_json(args.out, {"study": "memory", "machine": machine(), "rows": rows})


if __name__ == "__main__":
    main()
