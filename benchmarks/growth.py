"""Time and peak memory of an extraction against the number of samples, of units and of sites.

    python benchmarks/growth.py --out results/growth_cpu.json
    python benchmarks/growth.py --device cuda --out results/growth_cuda.json
    python benchmarks/growth.py --figure docs/figures/growth.svg results/growth_cpu.json results/growth_cuda.json

Each extraction runs in a process of its own, by the default preset on pictures in memory, after a brief one that
brings the libraries in. Seconds are the process's own on a CPU, with one thread, so that others at work don't count,
and those of the clock on a GPU. Memory is the peak above what the process held before: resident memory on a CPU,
memory of PyTorch's allocator on a GPU, where the pictures are copied to.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import bise
from bise.base.files import read_json, write_json
from bise.studies.origin import machine

RESULTS = Path(__file__).parent.parent / "results"
SMALL = {"samples": 4000, "width": 16, "depth": 3, "size": 12}
LARGE = {"samples": 16000, "width": 64, "depth": 4, "size": 28}
AXES = {"samples": (1, 2, 4, 8, 16), "width": (0.5, 1, 2, 4), "depth": (1, 2, 4)}
NAMES = {"samples": "samples", "width": "units a site", "depth": "sites"}


def pictures(samples: int, size: int, rho: float, seed: int) -> bise.data.Labelled:
    """Four classes by a faint row, four biases by a loud column."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (samples,), generator=generator)
    other = (y + torch.randint(1, 4, (samples,), generator=generator)) % 4
    b = torch.where(torch.rand(samples, generator=generator) < rho, y, other)
    x = torch.randn(samples, 3, size, size, generator=generator) / 2
    rows = torch.arange(samples)
    x[rows, 0, y] += 1
    x[rows, 1, :, b] += 2
    return bise.data.Labelled(TensorDataset(x), y=y, b=b)


def network(width: int, depth: int) -> nn.Module:
    """`depth` gated sites of `width` units, 3 × 3 convolutions with BatchNorm."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for i in range(depth):
        layers += [nn.Conv2d(width if i else 3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 4)).eval()


def peak(device: str, *, begin: bool = False) -> int:
    """Bytes at the peak since it was asked to `begin`."""
    if device == "cuda":
        if begin:
            torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() if begin else torch.cuda.max_memory_allocated()
    if begin:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS" if begin else "VmHWM")) * 1024


def one(device: str, samples: int, width: int, depth: int, size: int, steps: int) -> dict[str, Any]:
    """An extraction in this process; no early stop, so that all do the same number of steps."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    brief = bise.ExtractConfig(upsilon=1, tau_min=0.6, steps=3, head_epochs=1, head_steps=2)
    bise.extract(network(width, depth).to(device), pictures(400, size, 0.9, 2), config=brief)
    train, val = pictures(samples, size, 0.95, 0), pictures(samples // 4, size, 0.25, 1)
    model = network(width, depth).to(device)
    before = peak(device, begin=True)
    config = bise.ExtractConfig(early_stop=False, upsilon=steps)
    used = time.process_time()
    sub = bise.extract(model, train, val=val, config=config)
    used = time.process_time() - used
    return {
        "samples": samples,
        "width": width,
        "depth": depth,
        "seconds": used if device == "cpu" else sub.record["seconds"],
        "wall_seconds": sub.record["seconds"],
        "wall_phases": sub.record["phases"],
        "peak": peak(device) - before,
    }


def apart(*arguments: Any) -> dict[str, Any]:
    """`one` in a process of its own."""
    command = [sys.executable, __file__, "--one", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(device: str, upsilon: int) -> dict[str, Any]:
    base = SMALL if device == "cpu" else LARGE
    curves: dict[str, list[dict[str, Any]]] = {}
    for axis, factors in AXES.items():
        curves[axis] = []
        for factor in factors:
            case = base | {axis: max(1, int(base[axis] * factor))}
            curves[axis].append(apart(device, *case.values(), upsilon))
            print(axis, curves[axis][-1], flush=True)
    return {
        "study": "growth",
        "machine": machine(),
        "device": device,
        "base": base,
        "upsilon": upsilon,
        "curves": curves,
    }


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Seconds above, memory below, one column an axis, one line a device."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "bise"  # the same figures give the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(AXES), figsize=(9, 5), layout="constrained", sharex="col", sharey="row")
    for column, axis in enumerate(AXES):
        for result in results:
            rows = result["curves"][axis]
            x = [row[axis] for row in rows]
            label = "GPU" if result["device"] == "cuda" else "CPU"
            axes[0, column].plot(x, [row["seconds"] for row in rows], "o-", label=label)
            axes[1, column].plot(x, [row["peak"] / 1e6 for row in rows], "o-", label=label)
        axes[1, column].set_xlabel(NAMES[axis])
        ticks = sorted({row[axis] for result in results for row in result["curves"][axis]})
        for row in axes[:, column]:
            row.set_xscale("log")
            row.set_yscale("log")
            row.set_xticks(ticks, [f"{n // 1000}k" if n >= 1000 else str(n) for n in ticks])
            row.minorticks_off()
            row.grid(alpha=0.3)
    for row, least, steps in ((0, 1, (1, 2, 5, 10, 20, 50, 100)), (1, 10, (10, 20, 50, 100, 200, 500, 1000, 2000))):
        axes[row, 0].set_yticks(steps, map(str, steps))
        axes[row, 0].set_ylim(bottom=least)
    axes[0, 0].set_ylabel("seconds")
    axes[1, 0].set_ylabel("peak memory, MB")
    axes[0, 0].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def table(results: list[dict[str, Any]]) -> str:
    lines = [
        "| device | along | samples | units a site | sites | seconds | peak, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        for axis, rows in result["curves"].items():
            for row in rows:
                lines.append(
                    f"| {'GPU' if result['device'] == 'cuda' else 'CPU'} | {NAMES[axis]} | {row['samples']:,} |"
                    f" {row['width']} | {row['depth']} | {row['seconds']:.1f} | {row['peak'] / 1e6:.0f} |"
                )
    return "\n".join(lines)


def memory_table(result: dict[str, Any]) -> str:
    """What benchmarks/memory.py found: a row a preset and budget, a column a number of samples."""
    rows = result["rows"]
    samples = sorted({row["samples"] for row in rows})
    lines = ["| preset | memory | " + " | ".join(f"{n:,} samples" for n in samples) + " |"]
    lines.append("|---" * (2 + len(samples)) + "|")
    for preset, budget in dict.fromkeys((row["preset"], row["memory"]) for row in rows):
        found = {row["samples"]: row["peak"] for row in rows if (row["preset"], row["memory"]) == (preset, budget)}
        peaks = " | ".join(f"{found[n] / 1e6:.0f} MB" for n in samples)
        lines.append(f"| `{preset}` | {budget / 1e6:,.0f} MB | {peaks} |")
    features = " | ".join(f"{next(r['features'] for r in rows if r['samples'] == n) / 1e6:.0f} MB" for n in samples)
    return "\n".join([*lines, f"| features of all samples | | {features} |"])


def page() -> str:
    """The table of every device that results/ holds."""
    return table([read_json(path) for path in sorted(RESULTS.glob("growth_*.json"))])


def memory_page() -> str:
    return memory_table(read_json(RESULTS / "memory.json"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="*", help="with --figure: what was measured")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--upsilon", type=int, default=2, help="epochs at each temperature; the preset has 10")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--figure", type=Path, default=None)
    parser.add_argument("--one", nargs=6, default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.one[0], *map(int, args.one[1:]))))
    elif args.figure is not None:
        results = [read_json(path) for path in args.results]
        draw(results, args.figure)
    else:
        found = measure(args.device, args.upsilon)
        if args.out is not None:
            write_json(args.out, found)


if __name__ == "__main__":
    main()
