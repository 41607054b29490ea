"""The same 12 short runs by both engines: what Ray adds to them, once its cluster is up.

    python benchmarks/engines.py --rounds 3

Writes results/engines_cpu.json. A comparison on coloured digits, three methods and the vanilla model with three seeds,
is done by the local engine and on a Ray cluster of one slot, in turns. Both have the same share of a machine with other
work: one process at a time, in one session, equally nice. The cluster is started before. `whole` has what a command
spends beside the runs: to connect, and to start a process of the cluster, which loads torch. `runs` is from the first
row to the last. The rows of both engines are compared as well.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from bise.base.files import read_json, write_json
from bise.jobs.bench import compare
from bise.jobs.bench_sources import Asked
from bise.jobs.bench_work import Elsewhere
from bise.jobs.tasks import Cluster
from bise.studies.origin import machine

OUT = Path(__file__).parent.parent / "results/engines_cpu.json"
ASKED = Asked(datasets="demo", methods="erm,rwg,jtt", seeds="3", limit=1500, epochs=3)
UP = "Ray runtime started"


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """One on this machine, with one slot, that asks for a token of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # before Ray is imported; its processes would give way to a machine's other work
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(), "RAY_worker_niceness": "0"}
    words = ["start", "--head", "--block", "--num-cpus=1", f"--port={port}", "--disable-usage-stats"]
    words += ["--node-ip-address=127.0.0.1", "--include-dashboard=false", "--object-store-memory=100000000"]
    command = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", *words]
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("w") as log:
        head = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            while UP not in Path(folder, "log").read_text(errors="replace"):
                time.sleep(0.2)
            yield Cluster(address=f"127.0.0.1:{port}")
        finally:
            head.terminate()
            head.wait()


def timed(elsewhere: Elsewhere | None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """({whole, runs} in seconds, figures by row)."""
    rows: dict[float, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        found = compare(
            ASKED.plan(),
            Path(folder, "run"),
            about=ASKED.about(),
            elsewhere=elsewhere,
            arrived=lambda row: rows.update({time.perf_counter(): row["method"]}),
        )
        ended = time.perf_counter()
    return {"whole": ended - begun, "runs": max(rows) - min(rows)}, [row["figures"] for row in found["rows"]]


def measured(rounds: int) -> list[dict[str, Any]]:
    """A line for each round, and a first one that warms both up and isn't kept."""
    out = []
    with cluster() as there:
        elsewhere = Elsewhere(cluster=there, plan=ASKED.plan)
        for number in range(rounds + 1):
            (local, rows), (ray, others) = timed(None), timed(elsewhere)
            assert rows == others, "the engines came to other figures"
            line = {"local": local, "ray": ray, "ratio": {key: ray[key] / local[key] for key in local}}
            print(line, flush=True)
            if number:
                out.append(line)
    return out


def page() -> str:
    found = read_json(OUT)
    rows = found["rows"]
    lines = [
        f"{found['runs']} runs, one at a time, {found['machine']['threads']} CPU thread, torch"
        f" {found['machine']['torch']}, Ray {found['ray']}; medians of {len(rows)} rounds, on a machine with other work"
        f" (load {found['load']:.0f}).",
        "",
        "| seconds | local | Ray | ratio | ratios of the rounds |",
        "|---|---|---|---|---|",
    ]
    for key, name in (("runs", "from the first row to the last"), ("whole", "the whole command, its cluster being up")):
        local, ray = (statistics.median(row[engine][key] for row in rows) for engine in ("local", "ray"))
        ratios = [row["ratio"][key] for row in rows]
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        lines.append(f"| {name} | {local:.1f} | {ray:.1f} | {statistics.median(ratios):.2f} | {each} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    about = {"machine": machine(), "ray": version("ray"), "load": os.getloadavg()[0]}
    rows = measured(given.rounds)
    write_json(OUT, about | {"runs": ASKED.plan().rows, "rows": rows})
    print(page())


if __name__ == "__main__":
    main()
