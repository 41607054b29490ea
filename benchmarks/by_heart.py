"""When margins, smoothed targets and jitter help: for models that know more and more of their training set.

    python benchmarks/by_heart.py --out results/by_heart.json

An MLP on digits of 14 × 14 pixels before coloured backgrounds, ρ = 0.97, trained for longer and longer; then the one
that was trained longest, with more and more wrong bias labels. Extraction is the default's, with margin, smoothing and
jitter as said or, in the last columns, as the run chooses them; masks are selected and judged on the validation set.
Then the last masks of runs that have none, judged on it too. Twenty minutes on one core.
"""

from __future__ import annotations

import argparse
import warnings
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

import bise
from bise.base.files import read_json, write_json
from bise.data import Labelled
from bise.data.core.cells import Cells
from bise.data.core.contract import labels
from bise.engine.inputs import Inputs
from bise.engine.training import fit
from bise.extraction.margins import MARGIN, SMOOTHING
from bise.methods.finetuning import owning
from bise.studies.origin import machine

RESULT = Path(__file__).parent.parent / "results" / "by_heart.json"
EPOCHS = (3, 5, 8, 12, 20, 60)
WRONG = (0.0, 0.05, 0.1, 0.2, 0.3)
VARIANTS: dict[str, dict[str, Any]] = {
    "neither": {"margin": 0.0, "smoothing": 0.0},
    "both": {"margin": MARGIN, "smoothing": SMOOTHING},
    "margin alone": {"margin": MARGIN, "smoothing": 0.0},
    "jitter alone": {"jitter": 1.0},
    "default": {},
    "default, γ = 1, E = 50": {"gamma": 1.0, "head_epochs": 50},
}
BLIND = ("neither", "both", "jitter alone")
"""Those that are tried without a validation set too."""


def digits(split: str, count: int, seed: int) -> tuple[torch.Tensor, Cells]:
    """Pictures of half the size, standardised, and their labels."""
    data = bise.data.load("biased-mnist", split=split, rho=0.97, seed=seed)
    index = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:count]
    x = F.avg_pool2d(torch.stack([torch.as_tensor(data[int(i)][0]).float() for i in index]), 2)
    found = labels(data)
    return (x - x.mean()) / x.std(), labels(Labelled(TensorDataset(x), y=found.y[index], b=found.b[index]))


def trained(x: torch.Tensor, cells: Cells, epochs: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    sizes = (x[0].numel(), 200, 200, 100)
    hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    sub = owning(nn.Sequential(nn.Flatten(), *hidden, nn.Linear(100, 10)))
    data = Labelled(TensorDataset(x), y=cells.y, b=cells.b)
    config = bise.TrainConfig(epochs=epochs, lr=0.05, schedule="cosine", seed=seed)
    fit(sub, Inputs(data, torch.device("cpu")), cells, config)
    return sub.network.eval()


def with_wrong(b: torch.Tensor, share: float, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    wrong = torch.rand(len(b), 1, generator=generator) < share
    return torch.where(wrong, (b + torch.randint(1, 10, b.shape, generator=generator)) % 10, b)


def measured(model: nn.Module, x: torch.Tensor, cells: Cells, val: Labelled, wrong: float, seed: int) -> dict[str, Any]:
    train = Labelled(TensorDataset(x), y=cells.y, b=with_wrong(cells.b, wrong, seed))
    row: dict[str, Any] = {"seed": seed, "wrong": wrong, "vanilla": bise.audit(model, val).accuracy}
    row["right"] = bise.audit(model, Labelled(TensorDataset(x), y=cells.y, b=cells.b)).unbiased
    for name, changes in VARIANTS.items():
        config = bise.ExtractConfig(seed=seed, baseline=False, **changes)
        sub = bise.extract(model, train, val=val, config=config)
        row[name] = bise.audit(sub, val).accuracy
    for name in BLIND if not wrong else ():
        sub = bise.extract(model, train, config=bise.ExtractConfig(seed=seed, **VARIANTS[name]))
        row[f"{name}, no val"] = bise.audit(sub, val).accuracy
    return row


def tables(content: dict[str, Any]) -> str:
    head = ["vanilla", *VARIANTS]
    right = [r for r in content["rows"] if not r["wrong"]]
    long = _table("epochs", EPOCHS, right, "epochs", ["right", *head])
    last = [r for r in content["rows"] if r["epochs"] == EPOCHS[-1]]
    noisy = _table("wrong bias labels, %", WRONG, last, "wrong", head, 100)
    blind = _table("epochs", EPOCHS, right, "epochs", [f"{name}, no val" for name in BLIND])
    return f"{long}\n\n{noisy}\n\n{blind}"


def page() -> str:
    return tables(read_json(RESULT))


def _table(title: str, values: tuple, rows: list[dict[str, Any]], key: str, names: list[str], factor: int = 1) -> str:
    shown = {"right": "right in training, cells alike, %"}
    lines = [f"| {title} | {' | '.join(shown.get(name, name) for name in names)} |", "|---" * (len(names) + 1) + "|"]
    for value in values:
        found = [[100 * r[name] for r in rows if r[key] == value] for name in names]
        cells = [f"{mean(v):.1f} ± {stdev(v):.1f}" for v in found]
        lines.append(f"| {factor * value:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    warnings.simplefilter("ignore")
    rows = []
    for seed in range(3):
        x, cells = digits("train", 20_000, seed)
        vx, vcells = digits("val", 5_000, seed)
        val = Labelled(TensorDataset(vx), y=vcells.y, b=vcells.b)
        for epochs in EPOCHS:
            model = trained(x, cells, epochs, seed)
            for wrong in WRONG if epochs == EPOCHS[-1] else (0.0,):
                rows.append({"epochs": epochs, **measured(model, x, cells, val, wrong, seed)})
                print(rows[-1], flush=True)
    write_json(out, {"schema": 1, "machine": machine(), "rows": rows})


if __name__ == "__main__":
    main()
