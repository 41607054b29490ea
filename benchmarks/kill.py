"""Kill -9 at random moments: does every run go on, and end with the same bits as one that was never stopped?

    python benchmarks/kill.py --kills 200 --out results/kill.json

Small runs of `bise train`, `bise extract` and `bise finetune` at the command line's own entry, each in a process that
is forked from this one, where the libraries are imported already. A process is killed by SIGKILL at a moment that is
uniform over the duration of a whole run; then every file in its folder is read, and the same command with --resume
goes on, or is killed as well, one time in four. What the folder holds in the end is compared with that of a run without
a stop: tensors, rows and figures bit by bit; seconds and the description of the machine aside.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # what optimizers bring in when they first step
import torch.export._trace  # and what shrinking brings in
from safetensors import safe_open

from bise.base.files import read_json, write_json
from bise.cli.app import main
from bise.studies.origin import machine

TIMES = ("seconds", "phases", "machine")
MODULE = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3)
    )
"""


def prepare(folder: Path, epochs: int) -> dict[str, list[str]]:
    """Data, a model and the three commands, without the run folder that ends each of them."""
    generator = torch.Generator().manual_seed(0)
    (folder / "mnist").mkdir()
    for part, count in (("train", 1500), ("t10k", 3000)):
        y = torch.arange(count) % 10
        x = torch.zeros(count, 28, 28, dtype=torch.uint8)  # a white bar stands for a digit
        x[torch.arange(count), 2 * y + 4, 4:24] = 255
        write_idx(folder / f"mnist/{part}-labels-idx1-ubyte.gz", y)
        write_idx(folder / f"mnist/{part}-images-idx3-ubyte.gz", x)
    (folder / "kill_net.py").write_text(MODULE)
    rows = [",".join([*(f"x{i}" for i in range(8)), "kind", "colour", "part"])]
    for part, count, rho in (("train", 900, 0.9), ("val", 300, 0.33), ("test", 300, 0.33)):
        y = torch.randint(0, 3, (count,), generator=generator)
        other = (y + torch.randint(1, 3, (count,), generator=generator)) % 3
        b = torch.where(torch.rand(count, generator=generator) < rho, y, other)
        x = torch.randn(count, 8, generator=generator)
        x[torch.arange(count), y] += 2
        x[torch.arange(count), 3 + b] += 3
        rows += [
            ",".join([*(f"{value:.4f}" for value in row), "abc"[i], "rgb"[j], part])
            for row, i, j in zip(x.tolist(), y.tolist(), b.tolist(), strict=True)
        ]
    (folder / "people.csv").write_text("\n".join(rows) + "\n")
    often = ["--checkpoint-every", "0.02"]
    own = [
        "--data",
        "people.csv",
        "--target",
        "kind",
        "--bias",
        "colour",
        "--split",
        "part",
        "--model",
        "kill_net:make",
    ]
    recipe = ["multi-color-mnist", "--rho", "0.8", "--data-root", ".", "--epochs", str(epochs), "--device", "cpu"]
    return {
        "train": ["train", *recipe, *often, "--out"],
        "extract": ["extract", "--model", "kill_net:make", *own, "--upsilon", "4", "--steps", "8", *often, "--out"],
        "finetune": ["finetune", "--epochs", "10", "--trust", *often],  # copies of a run, which nobody trusts yet
    }


def write_idx(path: Path, values: torch.Tensor) -> None:
    head = struct.pack(f">BBBB{values.dim()}I", 0, 0, 8, values.dim(), *values.shape)
    path.write_bytes(gzip.compress(head + values.to(torch.uint8).numpy().tobytes(), mtime=0))


def start(arguments: list[str], folder: Path) -> int:
    """The command in a process of its own that starts with everything imported; returns its number."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        os.chdir(folder)
        for stream in (1, 2):
            os.dup2(os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
        torch.set_num_threads(1)
        sys.argv = ["bise", *arguments]
        main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 99
    finally:
        os._exit(code)


def finish(pid: int) -> int:
    """Its exit code, once it has ended."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed(pid: int, after: float) -> float | None:
    """Kill it so many seconds from now; where it ends before, after how many seconds."""
    started = time.monotonic()
    while (passed := time.monotonic() - started) < after:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return passed
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)  # it hasn't been waited for, so its number is still its own
    finish(pid)
    return None


def unreadable(run: Path) -> list[str]:
    """What can't be read of a run folder; files that are still being written have names of their own."""
    found = []
    for path in run.rglob("*") if run.exists() else ():
        try:
            if path.name.startswith("."):
                continue
            if path.suffix == ".json":
                read_json(path)
            elif path.suffix == ".safetensors":
                with safe_open(path, framework="pt") as file:
                    for name in file.keys():  # noqa: SIM118
                        file.get_tensor(name)
        except Exception as error:
            found.append(f"{path.relative_to(run)}: {type(error).__name__}: {error}")
    return found


def differences(one: Path, other: Path) -> list[str]:
    """The files in which two finished runs differ."""
    names = {path.relative_to(run) for run in (one, other) for path in run.rglob("*") if path.is_file()}
    found = []
    for name in sorted(names - {Path("report.html")}):  # which shows times
        if not ((one / name).exists() and (other / name).exists()):
            found.append(f"{name} is there once")
        elif name.suffix == ".json":
            if timeless(read_json(one / name)) != timeless(read_json(other / name)):
                found.append(str(name))
        elif (one / name).read_bytes() != (other / name).read_bytes():
            found.append(str(name))
    return found


def timeless(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: timeless(value) for key, value in content.items() if key not in TIMES}
    return content


def stage(run: Path, job: str) -> str:
    """Where a kill met a run."""
    states = run / "checkpoints" / job
    if not (run / ("finetune.json" if job == "finetune" else "config.json")).exists():
        return "before it began"
    if not states.exists():
        return "at its very end"
    kept = sorted(states.glob("*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
    if not kept:
        return "before the first checkpoint"
    with safe_open(kept[-1], framework="pt") as file:
        names = set(file.keys())
    if "done" in names:
        return "with a checkpoint in the middle of an epoch"
    return "with a checkpoint between epochs" if "random.own" in names else "with a part's result"


class Trials:
    """Kills of one job, and what came of them."""

    def __init__(self, job: str, command: list[str], folder: Path, base: Path | None) -> None:
        self.job, self.command, self.folder, self.base = job, command, folder, base
        self.whole = self.fresh("whole")
        started = time.monotonic()
        code = finish(start(self.arguments(self.whole), folder))
        self.seconds = time.monotonic() - started
        if code:
            raise SystemExit(f"{job} failed: {(folder / 'output.txt').read_text()[-2000:]}")
        self.kills, self.runs = 0, 0
        self.stages: Counter[str] = Counter()
        self.troubles: list[str] = []

    def fresh(self, name: str) -> Path:
        """A run folder to be, on top of the finished extraction where the job needs one."""
        run = self.folder / f"{self.job}-{name}"
        if self.base is not None:
            shutil.copytree(self.base, run)
        return run

    def arguments(self, run: Path) -> list[str]:
        return [*self.command, str(run)]

    def trial(self, moments: random.Random) -> None:
        """One run that is killed, perhaps more than once, and then goes on to its end."""
        run = self.fresh("killed")
        resume: list[str] = []
        met = 0
        while True:
            pid = start([*self.arguments(run), *resume], self.folder)
            ended = killed(pid, moments.uniform(0, self.seconds))
            if ended is not None:
                self.seconds = self.seconds if resume else ended  # this is how long it takes
                break
            met += 1
            resume = ["--resume"]
            self.stages[stage(run, self.job)] += 1
            self.troubles += [f"kill {self.kills + met}: {what}" for what in unreadable(run)]
            if moments.random() < 0.75:
                break
        if met:
            self.kills, self.runs = self.kills + met, self.runs + 1
            self.end(run)
        shutil.rmtree(run)

    def end(self, run: Path) -> None:
        """Let a killed run go on to its end, and hold it against the one without a stop."""
        code = finish(start([*self.arguments(run), "--resume"], self.folder))
        if code:
            said = (self.folder / "output.txt").read_text().strip().splitlines()[-1:]
            self.troubles.append(f"kill {self.kills}: exit code {code}: {said}")
        else:
            self.troubles += [f"kill {self.kills}: {what} differs" for what in differences(self.whole, run)]

    def report(self) -> dict[str, Any]:
        return {
            "kills": self.kills,
            "runs": self.runs,
            "seconds_without_a_stop": round(self.seconds, 2),
            "killed": dict(self.stages),
            "troubles": self.troubles,
        }


def kill(kills: int, seed: int, epochs: int) -> dict[str, Any]:
    """At least `kills` kills in all, as many of each job."""
    moments = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="bise-kill-"))
    os.environ["BISE_HOME"] = str(folder / "home")
    try:
        commands = prepare(folder, epochs)
        done: dict[str, Trials] = {}
        for job in ("train", "extract", "finetune"):
            done[job] = Trials(job, commands[job], folder, done["extract"].whole if job == "finetune" else None)
        chosen = list(done.values())
        each = -(-kills // len(chosen))
        while (behind := min(chosen, key=lambda trials: trials.kills)).kills < each:
            behind.trial(moments)
            total, troubles = sum(t.kills for t in chosen), sum(len(t.troubles) for t in chosen)
            print(f"{total}/{kills} kills, {troubles} troubles", file=sys.stderr)
    finally:
        shutil.rmtree(folder)
    reports = {trials.job: trials.report() for trials in chosen}
    return {
        "kills": sum(found["kills"] for found in reports.values()),
        "runs": sum(found["runs"] for found in reports.values()),
        "troubles": sum(len(found["troubles"]) for found in reports.values()),
        "seed": seed,
        "jobs": reports,
        "machine": machine(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30, help="of the vanilla model")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    result = kill(given.kills, given.seed, given.epochs)
    write_json(given.out, result)
    print(json.dumps({job: found["troubles"][:5] for job, found in result["jobs"].items()}, indent=2))
    sys.exit(1 if result["troubles"] else 0)
