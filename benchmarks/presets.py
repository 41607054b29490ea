"""Extraction presets on BiasedMNIST, on the same vanilla checkpoint: accuracy, units, seconds, as JSON.

    python benchmarks/presets.py --rho 0.99 --seed 0 --epochs 40 --out presets.json balanced "balanced mi=none" paper

Each job is a preset and changes to it. The test set is looked at once for each result.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import bise
from bise.base.files import write_json
from bise.engine.inputs import Inputs
from bise.engine.training import fit
from bise.methods.finetuning import owning
from bise.network.architectures.small import SimpleConvNet
from bise.runs.folder import machine


def value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def config(job: str, seed: int) -> bise.ExtractConfig:
    preset, *changes = job.split()
    make = {"balanced": bise.ExtractConfig.balanced, "paper": bise.ExtractConfig.paper}[preset]
    return make(seed=seed, **{k: value(v) for k, v in (change.split("=") for change in changes)})


def row(audit: bise.Audit) -> dict[str, float]:
    return {
        "accuracy": audit.accuracy,
        "unbiased": audit.unbiased,
        "worst_group": audit.worst_group,
        "conflicting": audit.conflicting.accuracy,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="+")
    parser.add_argument("--rho", type=float, default=0.99)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--finetune", type=int, default=0, help="epochs of finetuning after each extraction")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = {
        split: bise.data.load("biased-mnist", split=split, rho=args.rho, seed=args.seed, protocol="paper")
        for split in ("train", "val", "test")
    }
    torch.manual_seed(args.seed)
    vanilla = owning(SimpleConvNet().to(device))
    milestones = (args.epochs // 2, args.epochs * 3 // 4)
    train = bise.TrainConfig(epochs=args.epochs, lr=0.1, schedule="steps", milestones=milestones, seed=args.seed)
    start = time.perf_counter()
    fit(vanilla, Inputs(data["train"], device), bise.data.labels(data["train"]), train)
    model = vanilla.bare()
    results: dict[str, Any] = {
        "study": "presets",
        "rho": args.rho,
        "seed": args.seed,
        "vanilla_epochs": args.epochs,
        "machine": machine(),
        "vanilla": row(bise.audit(model, data["test"], probe=False)) | {"seconds": time.perf_counter() - start},
        "jobs": {},
    }
    print(args.seed, "vanilla", results["vanilla"], flush=True)
    for job in args.jobs:
        sub = bise.extract(model, data["train"], val=data["val"], config=config(job, args.seed))
        found = {
            "best": row(bise.audit(sub, data["test"], probe=False)),
            "last": row(bise.audit(sub.last, data["test"], probe=False)),
            "open": sub.units[0],
            "open_last": sub.last.units[0],
            "units": sub.units[1],
            "seconds": sub.record["seconds"],
            "stopped": sub.record["stopped"],
            "selection": sub.record["selection"],
        }
        if args.finetune:
            tune = bise.TrainConfig.finetuning(epochs=args.finetune, seed=args.seed)
            tuned = bise.finetune(sub, data["train"], val=data["val"], config=tune)
            found["finetuned"] = row(bise.audit(tuned, data["test"], probe=False))
        results["jobs"][job] = found
        print(args.seed, job, json.dumps(found), flush=True)
        write_json(args.out, results)


if __name__ == "__main__":
    main()
