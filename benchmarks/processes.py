"""Two processes on two cores against one process on two cores: the same extraction, by torchrun and without it.

    python benchmarks/processes.py --rounds 3

Writes results/processes_cpu.json. Networks of three convolutions on pictures of noise, the default extraction cut
short, at batches of two sizes: in one process of one thread, in one of two threads, and in two processes of a thread
each, in turns. What is timed is the extraction alone, after a short one that warms up; messages go over gloo on this
machine. Beside the clock there are the CPU seconds of the first process, which other work on the machine changes less:
those of a process that has a core to itself are its time, but for what it waits for the other one. Threads that wait
sleep (OMP_WAIT_POLICY), since a machine with other work stands still where they spin.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import bise
from bise.base.files import read_json, write_json
from bise.studies.origin import machine

OUT = Path(__file__).parent.parent / "results/processes_cpu.json"
SIZES = ((16, 100), (48, 400))
"""(filters of the first layer, batch)."""
STEPS = {"upsilon": 1, "head_epochs": 1, "head_steps": 5, "steps": 5, "tau_min": 0.4, "early_stop": False, "seed": 0}
WAYS = {"one": (1, 1), "threads": (1, 2), "two": (2, 1)}
"""{way: (processes, threads of each)}."""


def network(width: int) -> nn.Module:
    """Three layers of convolutions, each twice as wide as the one before."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for k, (before, after) in enumerate(((3, width), (width, 2 * width), (2 * width, 4 * width))):
        layers += [nn.Conv2d(before, after, 3, stride=2 if k else 1, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10)).eval()


def data() -> bise.data.Labelled:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(2000) % 10
    b = torch.where(torch.rand(2000, generator=generator) < 0.9, y, (y + 1) % 10)
    return bise.data.Labelled(TensorDataset(torch.randn(2000, 3, 32, 32, generator=generator)), y=y, b=b)


def worker(out: Path) -> None:
    """Times each size once, in as many processes as torchrun started."""
    found, train = {}, data()
    with bise.together():
        for width, batch in SIZES:
            model = network(width)
            bise.extract(model, train, config=bise.ExtractConfig(**STEPS | {"steps": 1}, batch_size=batch))
            begun, used = time.perf_counter(), time.process_time()
            bise.extract(model, train, config=bise.ExtractConfig(**STEPS, batch_size=batch))
            clock, cpu = time.perf_counter() - begun, time.process_time() - used
            found[f"{width}, {batch}"] = {"clock": clock, "cpu": cpu}
    if os.environ.get("RANK", "0") == "0":
        out.write_text(json.dumps(found), encoding="utf-8")


def timed(processes: int, threads: int) -> dict[str, Any]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "seconds.json")
        words = [*(launcher if processes > 1 else []), __file__, "--worker", str(out)]
        settings = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
        subprocess.run([sys.executable, *words], check=True, env=os.environ | settings, stderr=subprocess.DEVNULL)
        return json.loads(out.read_text(encoding="utf-8"))


def page() -> str:
    found = read_json(OUT)
    rows = found["rows"]
    lines = [
        f"Two cores, torch {found['machine']['torch']}, gloo; medians of {len(rows)} rounds, on a machine with other"
        f" work (load {found['load']:.0f}). Seconds by the clock and, in brackets, CPU seconds of the first process.",
        "",
        "| filters | batch | one process | one process, two threads | two processes | clock, two / two threads"
        " | CPU, two / one |",
        "|---|---|---|---|---|---|---|",
    ]
    for width, batch in SIZES:
        key = f"{width}, {batch}"
        middle = {
            way: {kind: statistics.median(row[way][key][kind] for row in rows) for kind in ("clock", "cpu")}
            for way in WAYS
        }
        cells = [f"{one['clock']:.1f} ({one['cpu']:.1f})" for one in middle.values()]
        clocks = statistics.median(row["two"][key]["clock"] / row["threads"][key]["clock"] for row in rows)
        used = statistics.median(row["two"][key]["cpu"] / row["one"][key]["cpu"] for row in rows)
        filters = f"{width}, {2 * width}, {4 * width}"
        lines.append(f"| {filters} | {batch} | {' | '.join(cells)} | {clocks:.2f} | {used:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker is not None:
        worker(given.worker)
        return
    torch.set_num_threads(2)
    about: dict[str, Any] = {"machine": machine(), "load": os.getloadavg()[0]}
    rows = []
    for _ in range(given.rounds):
        rows.append({way: timed(*how) for way, how in WAYS.items()})
        print(rows[-1], flush=True)
    write_json(OUT, about | {"rows": rows})
    print(page())


if __name__ == "__main__":
    main()
