"""`bise find` where the bias is known, with its labels hidden: is it among the candidates, and what is a mask worth?

    BISE_DATA=data python benchmarks/find.py                                  # small models, minutes on a CPU
    BISE_DATA=data python benchmarks/find.py --device cuda --scale full       # the recipes' models and data

Writes results/find_cpu.json or results/find_cuda.json. On each data set a vanilla model is trained, and `bise.find`
gets train and val without b. A mask is learned on the groups of that candidate which is nearest to the true bias among
the first three: a person would have to choose it by looking. Another is learned on the true labels, by the same
settings. Each is chosen on val by its own labels; both are audited on test by the true ones. The settings were chosen
on seeds 100 to 102, and never on those that are reported.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import bise
from bise.base.files import read_json, write_json
from bise.data.core.contract import Labelled, labels
from bise.data.core.subset import subset
from bise.engine.inputs import Inputs
from bise.engine.training import fit
from bise.jobs.finding import chosen, without_bias
from bise.jobs.finding_sources import found_by, seen_of
from bise.jobs.recipes import recipe, splits, start
from bise.measure.spread import agreement
from bise.methods.finetuning import owning
from bise.network.architectures.small import MLP, digit_net
from bise.studies.origin import machine

ROOT = Path(__file__).parent.parent
FIRST = 3
"""Candidates that count as seen."""
QUICK: dict[str, Any] = {"upsilon": 2, "margin": 0.0, "smoothing": 0.0, "validate_every": 5}
"""Of both masks at the small scale."""
ADULT = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A data set whose bias is known, and a vanilla model."""

    name: str
    model: nn.Module
    config: bise.TrainConfig
    train: Labelled
    val: Labelled
    test: Labelled
    hidden: tuple[Labelled, Labelled]
    """train and val as `bise.find` gets them."""
    rho: float | None
    vanilla: str
    extract: dict[str, Any]


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(before, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width))
        self.act = nn.ReLU()
        self.second = nn.Sequential(nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        self.beside = nn.Sequential(nn.Conv2d(before, width, 1, 2, bias=False), nn.BatchNorm2d(width))
        self.out = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.second(self.act(self.first(x))) + self.beside(x))


def small_resnet(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
        blocks = [Residual(16, 16), Residual(16, 32), Residual(32, 64)]
        return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def hide(*parts: Labelled) -> tuple[Labelled, Labelled]:
    train, val = (without_bias(part)[0] for part in parts)
    return train, val


def pictures(name: str, make: Callable[[int], nn.Module], seed: int, count: int, epochs: int, words: str) -> Case:
    train, val, test = (bise.data.load(name, split=split, rho=0.95, seed=seed) for split in ("train", "val", "test"))
    train, val = subset(train, count, seed), subset(val, 3000, seed)
    config = bise.TrainConfig(epochs=epochs, lr=0.05, schedule="cosine", seed=seed)
    return Case(
        name=name, model=make(seed), config=config, train=train, val=val, test=test, hidden=hide(train, val), rho=0.95,
        vanilla=f"{words}, {count:,} pictures, {epochs} epochs", extract=QUICK,
    )  # fmt: skip


def by_recipe(name: str, seed: int, *, small: bool) -> Case:
    """A recipe's data and model; at the small scale, as long as a bias takes."""
    chosen_ = recipe(name, seed=seed)
    own = {"recipe": chosen_.name, "rho": chosen_.rho, "protocol": chosen_.protocol, "seed": seed, "select": "best"}
    train, val, test = (splits(split, **own, limit=None) for split in ("train", "val", "test"))
    assert train is not None
    assert val is not None
    assert test is not None
    config = replace(chosen_.train, epochs=3) if small else chosen_.train
    extract = dict(chosen_.extract_balanced) | (QUICK if small else {})
    rho = chosen_.rho if isinstance(chosen_.rho, float) else None
    return Case(
        name=name.removesuffix("-small"), model=start(chosen_, seed=seed)[0], config=config, train=train, val=val,
        test=test, hidden=hide(train, val), rho=rho, vanilla=f"the recipe {name}, {config.epochs} epochs",
        extract=extract,
    )  # fmt: skip


def adult(seed: int, folder: Path) -> Case:
    """The model reads every column, sex too: nobody has said that it is the bias."""
    path = folder / "adult.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*ADULT, "split"])
        for source in ("adult.data", "adult.test"):
            with (Path(os.environ["BISE_DATA"]) / "adult" / source).open() as rows:
                whole = (row for row in csv.reader(rows, skipinitialspace=True) if len(row) == len(ADULT))
                for i, row in enumerate(whole):
                    cells = ["" if cell == "?" else cell.rstrip(".") for cell in row]
                    split = "test" if source == "adult.test" else "val" if i % 5 == 0 else "train"
                    writer.writerow([*cells, split])
    how: dict[str, Any] = {"target": "income", "split_column": "split"}
    train, val = (bise.data.table(path, split=split, **how) for split in ("train", "val"))
    test = bise.data.table(path, split="test", like=train, **how)
    told = [bise.data.table(path, split=split, bias="sex", **how) for split in ("train", "val", "test")]
    known = [Labelled(part, y=part.y, b=other.b, names=other.names) for part, other in zip((train, val, test), told,
             strict=True)]  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MLP(inputs=train[0][0].numel(), classes=2)
    config = bise.TrainConfig(epochs=10, lr=0.01, seed=seed)
    return Case(
        name="adult", model=model, config=config, train=known[0], val=known[1], test=known[2], hidden=(train, val),
        rho=None, vanilla="the MLP of docs/own_data.md, with every column, 10 epochs", extract=QUICK,
    )  # fmt: skip


def cases(scale: str, seed: int, folder: Path) -> dict[str, Callable[[], Case]]:
    if scale == "full":
        names = ("biased-mnist", "corrupted-cifar10", "biased-madlibs")
        made = {name: (lambda name=name: by_recipe(name, seed, small=False)) for name in names}
        return {**made, "adult": lambda: adult(seed, folder)}
    return {
        "adult": lambda: adult(seed, folder),
        "biased-madlibs": lambda: by_recipe("biased-madlibs-small", seed, small=True),
        "corrupted-cifar10": lambda: pictures("corrupted-cifar10", small_resnet, seed, 10_000, 6, "a small ResNet"),
        "biased-mnist": lambda: pictures("biased-mnist", digit_net, seed, 12_000, 10, "the demo's convnet"),
    }


def one(case: Case, device: torch.device, seed: int) -> dict[str, Any]:
    """Train, find, label, extract twice, audit."""
    network = owning(case.model.to(device))
    inputs = Inputs(case.train, device)
    fit(network, inputs, labels(case.hidden[0], need_bias=False), replace(case.config, seed=seed))
    model = network.bare().eval()
    train, val = case.hidden
    clock, cpu = time.perf_counter(), time.process_time()
    seen = seen_of(model, train, val, bottleneck=None, seed=seed, workers=None, progress=None)
    read, read_cpu = time.perf_counter() - clock, time.process_time() - cpu
    clock, cpu = time.perf_counter(), time.process_time()
    raws, left_out = found_by(seen, columns={}, make_model=None, progress=None)
    found = chosen(seen, raws, left_out, {})
    grouped, grouped_cpu = time.perf_counter() - clock, time.process_time() - cpu
    assert case.train.b is not None
    assert case.val.b is not None
    rows = []
    for number, candidate in enumerate(found, 1):
        told = labels(candidate.label(train))
        mine, truth = told.conflicting[:, 0], labels(case.train).conflicting[:, 0]
        both = int((mine & truth).sum())
        on_val = candidate.label(val).b
        assert on_val is not None
        rows.append(
            candidate.as_dict()
            | {
                "number": number,
                "ami_train": agreement(candidate.b, case.train.b),
                "ami_val": agreement(on_val, case.val.b),
                "recall": both / max(1, int(truth.sum())),
                "precision": both / max(1, int(mine.sum())),
            }
        )
    best = max(rows[:FIRST], key=lambda row: row["ami_train"])
    by_gap = sorted(rows, key=lambda row: -(row["spread"] or 0))
    nearest = found[best["number"] - 1]
    config = bise.ExtractConfig.balanced(**(case.extract | {"seed": seed}))
    cells = labels(case.train)
    masks = {"true": (case.train, case.val), "found": (nearest.label(train), nearest.label(val))}
    audits = {"vanilla": figures(model, case.test, cells)}
    for name, (on, by) in masks.items():
        audits[name] = figures(bise.extract(model, on, val=by, config=config), case.test, cells)
    return {
        "dataset": case.name,
        "seed": seed,
        "rho": case.rho,
        "vanilla": case.vanilla,
        "samples": {"train": len(case.train), "val": len(case.val), "test": len(case.test)},
        "chosen": {key: best[key] for key in ("number", "name", "ami_train", "ami_val", "recall", "precision")},
        "place_by_difference_alone": [row["name"] for row in by_gap].index(best["name"]) + 1,
        "audits": audits,
        "seconds": {"reading layers": read, "groups and order": grouped},
        "cpu_seconds": {"reading layers": read_cpu, "groups and order": grouped_cpu},
        "candidates": rows,
        "left_out": list(found.left_out),
    }


def figures(model: nn.Module, test: Any, train: Any) -> dict[str, Any]:
    found = bise.audit(model, test, aligned=train, probe=False)
    return {"unbiased": found.unbiased, "worst_group": found.worst_group, "conflicting": found.conflicting.accuracy}


def timed(samples: int, seed: int) -> dict[str, Any]:
    """Seconds beside the reading of layers, of so many samples of a network as wide as a ResNet-18."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 10, (samples,), generator=generator)
    b = torch.where(
        torch.rand(samples, generator=generator) < 0.95, y, torch.randint(0, 10, (samples,), generator=generator)
    )
    x = torch.randn(samples, 64, generator=generator)
    x[torch.arange(samples), b] += 4
    data = Labelled(torch.utils.data.TensorDataset(x), y=y, classes=10)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MLP(inputs=64, classes=10, hidden=(64, 256, 512))
    seen = seen_of(model, data, None, bottleneck=None, seed=seed, workers=None, progress=None)
    clock, cpu = time.perf_counter(), time.process_time()
    raws, left_out = found_by(seen, columns={}, make_model=None, progress=None)
    chosen(seen, raws, left_out, {})
    return {
        "samples": samples,
        "seconds": time.perf_counter() - clock,
        "cpu_seconds": time.process_time() - cpu,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


HEAD = ["data set", "vanilla model", "nearest candidate", "its place", "by spread alone", "AMI, train", "AMI, val"]
HEAD += ["recall", "precision", "vanilla", "mask, true labels", "mask, found groups"]


def page() -> str:
    """A line for each data set of each file."""
    parts = []
    for path in sorted((ROOT / "results").glob("find_*.json")):
        content = read_json(path)
        about, timing = content["machine"], content["timing"]
        seeds = len({row["seed"] for row in content["rows"]})
        said = f"On {about['gpu'] or 'a CPU'}, torch {about['torch']}, {seeds} seed{'s' * (seeds != 1)} a data set."
        rows = [_line(row) for row in content["rows"]]
        table = "\n".join([f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}", *rows])
        took = (
            f"Grouping and ranking {timing['samples']:,} samples took {timing['cpu_seconds']:.0f} s of one core, beside"
            " reading the layers."
        )
        parts += [said, table, took]
    return "\n\n".join(parts)


def _line(row: dict[str, Any]) -> str:
    chosen_, audits = row["chosen"], row["audits"]
    cells = [
        row["dataset"] if row["rho"] is None else f"{row['dataset']}, ρ = {row['rho']}",
        row["vanilla"],
        chosen_["name"],
        str(chosen_["number"]),
        f"{row['place_by_difference_alone']} of {len(row['candidates'])}",
        *(f"{chosen_[key]:.2f}" for key in ("ami_train", "ami_val", "recall", "precision")),
        *(f"{100 * audits[name]['unbiased']:.1f}" for name in ("vanilla", "true", "found")),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--scale", choices=("small", "full"), default="small")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", nargs="+", help="data sets; the others keep their rows")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    device = torch.device(args.device)
    out = args.out or ROOT / "results" / f"find_{device.type}.json"
    rows: list[dict[str, Any]] = read_json(out)["rows"] if args.only and out.exists() else []
    content: dict[str, Any] = {"study": "find", "scale": args.scale}
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        content["timing"] = timed(60_000, 0)
        print(content["timing"], flush=True)
        for seed in args.seeds:
            for name, make in cases(args.scale, seed, Path(folder)).items():
                if args.only and name not in args.only:
                    continue
                row = one(make(), device, seed) | {"commit": machine()["commit"]}
                rows = [old for old in rows if (old["dataset"], old["seed"]) != (name, seed)] + [row]
                print(name, seed, row["chosen"], row["audits"], row["cpu_seconds"], flush=True)
                write_json(out, {**content, "machine": machine(), "rows": rows})
    print(page())


if __name__ == "__main__":
    main()
