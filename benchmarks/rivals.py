"""All methods side by side, row by row into one file, which is gone on with where it was stopped.

    BISE_DATA=data python benchmarks/rivals.py --checkpoints FOLDER --out results/rivals.json
    BISE_DATA=data python benchmarks/rivals.py --part digits --minutes 9 --out results/rivals.json
    python benchmarks/rivals.py --page

Three parts: `digits`, BiasedMNIST at ρ = 0.99 and 0.997, every method on seed 0; `seeds`, there the best eight of them
by val and all of ours on seeds 1 and 2; `others`, Corrupted-CIFAR10 at ρ = 0.95 and biased-madlibs, twelve methods on
seed 0. Every method is tried with the same number of settings, and the best on val is taken; --settings says how many.
A row that the file holds already is not done again, unless its settings differ. --page prints the tables of what the
file holds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bise.base.files import read_json, read_tensors, write_json, write_tensors
from bise.cli.terminal import Bars
from bise.jobs.bench_plan import Plan
from bise.jobs.bench_problems import Problem, problems_named
from bise.jobs.bench_table import table_of
from bise.jobs.bench_work import SeedRows
from bise.methods.rivals.listed import METHODS
from bise.reporting.bench_words import text_of
from bise.studies.origin import machine, origin

RESULT = Path(__file__).parent.parent / "results" / "rivals.json"
DIGITS = ("biased-mnist:0.99", "biased-mnist:0.997")
OTHERS = ("corrupted-cifar10:0.95", "biased-madlibs")
OURS = ("bise", "bise-refit", "bise-finetuned")
FOR_OTHERS = (*OURS, "finetuned", "dfr", "leace", "erm", "rwg", "group-dro", "jtt", "lff", "bias-balance")
BEST = 8
PARTS = ("digits", "seeds", "others")


def wanted(part: str, rows: list[dict[str, Any]]) -> Iterator[tuple[str, int, list[str]]]:
    """(data set, seed, methods) of a part; those of `seeds` follow from the rows of seed 0."""
    if part == "digits":
        yield from ((name, 0, list(METHODS)) for name in DIGITS)
    elif part == "others":
        yield from ((name, 0, list(FOR_OTHERS)) for name in OTHERS)
    else:
        for name in DIGITS:
            yield from ((name, seed, best(name, rows)) for seed in (1, 2))


def best(dataset: str, rows: list[dict[str, Any]]) -> list[str]:
    """Ours, and those that did best on val with seed 0."""
    found = [row for row in rows if row["dataset"] == dataset and row["seed"] == 0 and "figures" in row]

    def score(row: dict[str, Any]) -> float:
        return max(one["val"] or 0.0 for one in row["tried"])

    others = sorted((row for row in found if row["method"] in METHODS and row["method"] not in OURS), key=score)
    return [*OURS, *(row["method"] for row in others[::-1][:BEST])]


class Kept:
    """The file of rows."""

    def __init__(self, path: Path, settings: int, select: str) -> None:
        self.path, self.about = path, {"select": select, "settings": settings}
        self.rows: list[dict[str, Any]] = read_json(path)["rows"] if path.exists() else []

    def has(self, dataset: str, seed: int, method: str) -> bool:
        return any(
            (row["dataset"], row["seed"], row["method"]) == (dataset, seed, method)
            and {key: row[key] for key in self.about} == self.about
            for row in self.rows
        )

    def add(self, row: dict[str, Any]) -> None:
        """A row, in the place of one of the same method that was done otherwise."""
        place = row["dataset"], row["seed"], row["method"]
        self.rows = [one for one in self.rows if (one["dataset"], one["seed"], one["method"]) != place]
        self.rows.append(row | self.about | origin())
        write_json(self.path, {"machine": machine(), "rows": self.rows})


def block(problem: Problem, seed: int, names: list[str], given: Any, kept: Kept, until: float) -> bool:
    """The rows of one data set and seed that the file lacks; False where time is up."""
    missing = [name for name in ("vanilla", *names) if not kept.has(problem.name, seed, name)]
    if not missing:
        return True
    weights = None
    if given.checkpoints is not None:
        weights = given.checkpoints / f"{problem.name.replace(':', '-')}-{seed}.safetensors"
        if weights.exists() and "vanilla" not in missing:
            model = problem.make(seed)
            model.load_state_dict(read_tensors(weights))
            problem = replace(problem, vanilla=model)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    methods = [METHODS[name] for name in names]
    plan = Plan(
        problems=[problem], methods=methods, seeds=[seed], select=given.select, settings=given.settings, device=device
    )
    with Bars() as bars:
        rows = SeedRows(plan, problem, seed, None, bars)
        for number, name in enumerate(missing, 1):
            if time.monotonic() > until:
                return False
            row = rows.vanilla() if name == "vanilla" else rows.row(METHODS[name])
            kept.add(row)
            if name == "vanilla" and weights is not None and rows.block is not None:
                write_tensors(weights, rows.block.vanilla.state_dict())
            bars("rows", number, len(missing))
            said = row.get("skipped") or row.get("failed") or f"{100 * row['figures']['unbiased']:.1f}"
            print(f"{problem.name}  {seed}  {name:<16} {said}", flush=True)
    return True


def page(path: Path) -> str:
    """The tables of what the file holds."""
    rows = read_json(path)["rows"]
    names = list(METHODS)
    rows.sort(key=lambda row: names.index(row["method"]) + 1 if row["method"] in names else 0)
    seeds = sorted({row["seed"] for row in rows})
    about = {key: rows[0][key] for key in ("select", "settings")} | {"seeds": seeds, "against": OURS[0]}
    return text_of({"bench": about, "rows": rows, "table": table_of(rows, OURS[0])})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--methods", help="only these, with commas")
    parser.add_argument("--settings", type=int, default=3, help="settings of each method that are tried on val")
    parser.add_argument("--select", default="unbiased-val")
    parser.add_argument("--minutes", type=float, help="begin no row after so many")
    parser.add_argument("--limit", type=int, help="samples of each split, for a trial")
    parser.add_argument("--epochs", type=int, help="of a training anew, for a trial")
    parser.add_argument("--checkpoints", type=Path, help="folder of vanilla models, read where they are, else written")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--page", action="store_true", help="print the tables and do nothing else")
    given = parser.parse_args()
    if given.page:
        print(page(given.out))
        return
    until = time.monotonic() + 60 * (given.minutes if given.minutes is not None else float("inf"))
    kept = Kept(given.out, given.settings, given.select)
    for part in given.part:
        for name, seed, methods in wanted(part, kept.rows):
            if given.methods is not None:
                methods = [method for method in methods if method in given.methods.split(",")]
            (problem,) = problems_named(name, limit=given.limit, epochs=given.epochs)
            if not block(problem, seed, methods, given, kept, until):
                print("time is up; the same command goes on behind the last row")
                return
    seconds = [row["cost"]["seconds"] for row in kept.rows if row.get("cost", {}).get("seconds") is not None]
    if seconds:
        print(f"{len(kept.rows)} rows, {sum(seconds):.0f} s, median {statistics.median(seconds):.0f} s a row")


if __name__ == "__main__":
    main()
