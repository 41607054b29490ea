"""Guessed bias labels: sources × data sets, how well each finds the conflicting samples, and the mask under each.

    BISE_DATA=data python benchmarks/pseudo_sources.py --scale small    # minutes on a CPU
    BISE_DATA=data python benchmarks/pseudo_sources.py --scale full     # the recipes' own sizes, on a GPU
    python benchmarks/pseudo_sources.py --page

Writes results/pseudo_sources_cpu.json, or results/pseudo_sources.json at full scale, row by row; a row that is there
is not done again. The small scale has fewer samples and epochs, and a smaller network for BiasedMNIST; its figures are
not those of the full one. Nothing selects on val: a mask is the last one of its search, as it is for somebody without
any labels.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import bise
from bise.base.errors import BadInput
from bise.base.files import read_json, write_json
from bise.base.names import BIAS_SOURCES
from bise.data.core.contract import labels
from bise.engine.config import TrainConfig
from bise.extraction.config import ExtractConfig
from bise.jobs.bench_problems import Problem, problems_named
from bise.methods.shared.interface import Setting
from bise.methods.shared.stages import train_stage
from bise.studies.origin import machine, origin

RESULTS = Path(__file__).parent.parent / "results"
OUT = {"small": RESULTS / "pseudo_sources_cpu.json", "full": RESULTS / "pseudo_sources.json"}
DATA = {
    "small": ("biased-mnist:0.9", "multi-color-mnist", "adult"),
    "full": ("biased-mnist:0.99", "multi-color-mnist", "adult"),
}
LABELS, NONE = "the true labels", "no mask"
ADULT = """age workclass fnlwgt education education-num marital-status occupation relationship race sex capital-gain
capital-loss hours-per-week native-country income"""
SHORT = {"biased-mnist:0.9": (5000, 12), "multi-color-mnist": (15_000, 8)}
"""{data set: (samples, epochs)} at the small scale."""


def adult(seed: int) -> Mapping[str, Any]:
    """Adult's income with the bias sex; a fifth of the first file is left to val, which nothing reads."""
    names = ADULT.split()
    root = Path(os.environ["BISE_DATA"]) / "adult"
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "adult.csv"
        with table.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*names, "split"])
            for source in ("adult.data", "adult.test"):
                rows = csv.reader((root / source).open(), skipinitialspace=True)
                for i, row in enumerate(row for row in rows if len(row) == len(names)):
                    cells = ["" if cell == "?" else cell.rstrip(".") for cell in row]
                    writer.writerow([*cells, "test" if source == "adult.test" else "val" if i % 5 == 0 else "train"])
        read = partial(bise.data.table, table, target="income", bias="sex", split_column="split")
        return {split: read(split=split) for split in ("train", "test")}


def adult_net(width: int, seed: int) -> nn.Module:
    """Two hidden layers of 64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)]
        return nn.Sequential(*layers)


def strided_net(seed: int) -> nn.Module:
    """Three convolutions with strides, for 28 × 28 pictures on a CPU."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for before, after, kernel in ((3, 16, 5), (16, 32, 3), (32, 64, 3)):
            layers += [
                nn.Conv2d(before, after, kernel, stride=2, padding=kernel // 2),
                nn.BatchNorm2d(after),
                nn.ReLU(),
            ]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def problem_of(name: str, scale: str) -> Problem:
    if name == "adult":
        splits = {0: adult(0)}
        width = splits[0]["train"][0][0].numel()
        train = TrainConfig(epochs=10, optimizer="adam", lr=1e-3, schedule="cosine")
        return Problem(
            name=name, splits=lambda _: splits[0], make=partial(adult_net, width), train=train, finetune=train
        )  # fmt: skip
    if scale == "full":
        return problems_named(name)[0]
    samples, epochs = SHORT[name]
    (found,) = problems_named(name, limit=samples, epochs=epochs)
    if name.startswith("biased-mnist"):
        found = replace(found, make=strided_net, train=TrainConfig(epochs=epochs, lr=0.05, schedule="cosine"))
    return found


def masked(problem: Problem, vanilla: nn.Module, train: Any, seed: int, scale: str) -> nn.Module:
    """The last mask of a search on these labels."""
    fewer = {"steps": 10} if scale == "small" else {}
    config = ExtractConfig.balanced(**(dict(problem.search) | {"seed": seed} | fewer))
    return bise.extract(vanilla, train, config=config)


class Rows:
    """The rows of one data set, from one vanilla model."""

    def __init__(self, problem: Problem, device: torch.device, seed: int, scale: str) -> None:
        self.problem, self.device, self.seed, self.scale = problem, device, seed, scale
        self.parts = dict(problem.splits(seed))
        self.train = self.parts["train"]
        self.cells = labels(self.train)
        self.config = replace(problem.train, seed=seed)
        setting = Setting(train=self.config, finetune=self.config, seed=seed, device=device, selects=False)
        self.vanilla = train_stage(problem.make(seed).to(device), self.train, None, setting, select=False)

    def fresh(self) -> Callable[[], nn.Module]:
        seeds = iter(range(self.seed + 1000, self.seed + 2000))
        return lambda: self.problem.make(next(seeds)).to(self.device)

    def figures(self, model: nn.Module) -> dict[str, float]:
        found = bise.audit(model, self.parts["test"], aligned=self.cells, probe=False)
        return {"unbiased": found.unbiased, "worst_group": found.worst_group, "n": found.n}

    def row(self, source: str) -> dict[str, Any]:
        about = {
            "dataset": self.problem.name, "source": source, "seed": self.seed, "train": len(self.cells),
            "conflicting": int(self.cells.conflicting.any(1).sum()),
        }  # fmt: skip
        if source == NONE:
            return about | self.figures(self.vanilla)
        began, quality = time.perf_counter(), {}
        try:
            guessed = self.train
            if source != LABELS:
                guessed = bise.pseudo_bias(self.fresh(), self.train, by=source, config=self.config)
                quality = dict(guessed.quality)
            seconds = time.perf_counter() - began
            model = masked(self.problem, self.vanilla, guessed, self.seed, self.scale)
        except BadInput as error:
            return about | quality | {"skipped": " ".join(str(error).split())}
        return about | quality | {"seconds": seconds} | self.figures(model)


def page(path: Path | None = None) -> str:
    path = path or (OUT["full"] if OUT["full"].exists() else OUT["small"])
    found = read_json(path)
    rows, about = found["rows"], found["machine"]
    small = " A small trial: few samples and epochs." if found["scale"] == "small" else ""
    lines = [
        f"One seed, torch {about['torch']}, {about.get('gpu') or 'CPU'}.{small} n is the number of audited test"
        " samples. Any of several biases may make a sample conflict.",
        "",
        "| data | source | marked (%) | recall (%) | precision (%) | mask, unbiased (%) | mask, worst group (%) | n |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        share = 100 * row["conflicting"] / row["train"]
        data = f"{row['dataset']}, {share:.1f} % conflict" if row["source"] == NONE else ""
        shown = [row.get(key) for key in ("conflicting_share", "recall", "precision", "unbiased", "worst_group")]
        cells = ["–" if value is None else f"{100 * value:.1f}" for value in shown]
        if "skipped" in row:
            cells[-2] = row["skipped"].partition(";")[0]
        source = row["source"] if row["source"] in (LABELS, NONE) else f"`{row['source']}`"
        audited = f"{row['n']:,}" if "n" in row else "–"
        lines.append(f"| {' | '.join([data, source, *cells, audited])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=OUT, default="full")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", action="store_true", help="print the table and do nothing else")
    given = parser.parse_args()
    if given.page:
        print(page(given.out))
        return
    out = given.out or OUT[given.scale]
    device = torch.device("cuda" if given.scale == "full" and torch.cuda.is_available() else "cpu")
    rows: list[dict[str, Any]] = read_json(out)["rows"] if out.exists() else []
    for name in DATA[given.scale]:
        wanted = (NONE, LABELS, *BIAS_SOURCES)
        done = {row["source"] for row in rows if row["dataset"] == name and row["seed"] == given.seed}
        if done >= set(wanted):
            continue
        maker = Rows(problem_of(name, given.scale), device, given.seed, given.scale)
        for source in wanted:
            if source in done:
                continue
            rows.append(maker.row(source) | origin())
            write_json(out, {"machine": machine(), "scale": given.scale, "rows": rows})
            print({key: value for key, value in rows[-1].items() if key not in ("commit", "date", "bise")}, flush=True)


if __name__ == "__main__":
    main()
