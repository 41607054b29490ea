"""Vanilla SimpleConvNet on BiasedMNIST by the paper's recipe: seconds a run, accuracy, share of the bf16 ceiling.

    python benchmarks/vanilla.py --compiled --out results/vanilla_biased_mnist.json --checkpoints FOLDER

The ceiling is a large bf16 matrix product, measured in the same run. A step is counted as three times the forward
pass's multiply-accumulates, two operations each.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity
from torch.profiler import profile as kernels

import bise
from bise.base.files import write_json, write_tensors
from bise.data.core.contract import Labelled
from bise.engine.inputs import Inputs
from bise.engine.precision import resolved
from bise.engine.training import fit
from bise.methods.finetuning import owning
from bise.network.architectures.small import SimpleConvNet
from bise.network.size import size
from bise.studies.origin import machine


def ceiling(device: torch.device, n: int = 8192, repeats: int = 20) -> float:
    """Operations a second of a bf16 product of two n × n matrices."""
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        a @ b
    torch.cuda.synchronize()
    return 2 * n**3 * repeats / (time.perf_counter() - start)


def profile(train: Labelled, config: bise.TrainConfig, device: torch.device) -> dict[str, Any]:
    """Where the GPU's time goes in one epoch: milliseconds of the kernels that take most of it."""
    inputs, cells = Inputs(train, device), bise.data.labels(train)
    with kernels(activities=[ProfilerActivity.CUDA]) as seen:
        fit(owning(SimpleConvNet().to(device)), inputs, cells, config)
        torch.cuda.synchronize()
    found = {event.key[:100]: event.self_device_time_total / 1e3 for event in seen.key_averages()}
    top = sorted(found.items(), key=lambda item: -item[1])[:12]
    return {"milliseconds": sum(found.values()), "kernels": dict(top)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rho", type=float, default=0.99)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=None, help="default: the paper's, by ρ")
    parser.add_argument("--compiled", action="store_true", help="let torch.compile fuse what it can")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--checkpoints", type=Path, default=None)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    epochs, milestones = (80, (40, 60)) if args.rho <= 0.995 else (100, (80, 90))
    if args.epochs:
        milestones = tuple(m * args.epochs // epochs for m in milestones)
        epochs = args.epochs
    runs = []
    for seed in args.seeds:
        parts = ("train", "test")
        data = {s: bise.data.load("biased-mnist", split=s, rho=args.rho, seed=seed, protocol="paper") for s in parts}
        torch.manual_seed(seed)
        network = owning(SimpleConvNet().to(device))
        config = bise.TrainConfig(epochs=epochs, lr=0.1, schedule="steps", milestones=milestones, seed=seed)
        config = replace(config, compile=args.compiled)
        inputs = Inputs(data["train"], device)
        start = time.perf_counter()
        fit(network, inputs, bise.data.labels(data["train"]), config)
        seconds = time.perf_counter() - start
        model = network.bare()
        audit = bise.audit(model, data["test"], probe=False)
        runs.append(
            {
                "seed": seed,
                "seconds": seconds,
                "accuracy": audit.accuracy,
                "unbiased": audit.unbiased,
                "conflicting": audit.conflicting.accuracy,
                "weights": bise.fingerprint(model),
            }
        )
        print(args.rho, runs[-1], flush=True)
        if args.checkpoints:
            write_tensors(args.checkpoints / f"vanilla-{args.rho}-{seed}.safetensors", model.state_dict())
    macs = size(model, inputs.example(1)).macs
    worked = 2 * 3 * macs * len(data["train"]) * epochs
    content = {
        "study": "vanilla",
        "rho": args.rho,
        "epochs": epochs,
        "machine": machine(),
        "macs": macs,
        "operations_per_second": worked / runs[-1]["seconds"],
        "bf16_ceiling": ceiling(device) if device.type == "cuda" else None,
        "compiled": args.compiled,
        "precision": resolved(config.precision, model),
        "profile": profile(data["train"], replace(config, epochs=1), device) if device.type == "cuda" else None,
        "runs": runs,
    }
    write_json(args.out, content)
    print({key: value for key, value in content.items() if key != "runs"}, flush=True)


if __name__ == "__main__":
    main()
