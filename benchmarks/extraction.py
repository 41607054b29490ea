"""An extraction on BiasedMNIST, ours beside Algorithm 1 written literally, in one process: accuracy, seconds, ratio.

    python benchmarks/extraction.py --rho 0.95 --workers 0 --literal-batches 20 --out results/extraction_cpu.json
    python benchmarks/extraction.py --scale full --seeds 10 11 12 --jobs default plain paper --short-paper \
        --checkpoints FOLDER --out results/extraction_cuda.json

`full` is SimpleConvNet on 60,000 digits; its vanilla checkpoints are those that benchmarks/vanilla.py writes. `small`
is a smaller one on the same digits at 14 × 14, for two CPU cores. The literal loop is timed over a few epochs of each
kind and scaled to its schedule, the one that the preset `paper` has. Our runs are whole, except for `paper` at the
small scale or with `--short-paper`: one epoch for each temperature, its mask steps and evaluations scaled to ten. The
first run of a process also pays for starting the GPU's libraries, and is shown apart.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path
from typing import Any

import torch
from literal import Literal, Pictures
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import bise
from bise.base.files import read_tensors, write_json
from bise.data.core.contract import Labelled
from bise.engine.inputs import Inputs
from bise.engine.training import fit
from bise.extraction.config import ExtractConfig
from bise.methods.finetuning import owning
from bise.network.architectures.small import SimpleConvNet
from bise.network.size import size
from bise.studies.origin import machine

PRESETS = {
    "default": {},
    "paper": {"preset": "paper"},
    "plain": {"graphs": False, "cache": False, "precision": "fp32"},
    "unrecorded": {"graphs": False, "precision": "fp32"},
}
"""`plain` is the default preset by the plain path: no graphs, no caches, fp32."""


def splits(scale: str, rho: float, seed: int) -> dict[str, Labelled]:
    """train, val and test as bytes."""
    out = {}
    for split in ("train", "val", "test"):
        whole = bise.data.load("biased-mnist", split=split, rho=rho, seed=seed, protocol="paper")
        _ = whole.dataset.tensors  # coloured now, not while an extraction is timed
        if scale == "small":
            keep = slice(None) if split == "train" else slice(2000)
            x = F.avg_pool2d(whole.dataset.tensors[0][keep].float(), 2).round().to(torch.uint8)
            whole = Labelled(
                TensorDataset(x),
                y=whole.y[keep],
                b=whole.b[keep],
                classes=10,
                bias_classes=10,
                aligned=list(range(10)),
                transform=whole.transform,
            )
        out[split] = whole
    return out


def vanilla(scale: str, data: dict[str, Labelled], seed: int, checkpoint: Path | None, device: torch.device) -> Any:
    torch.manual_seed(seed)
    model = SimpleConvNet() if scale == "full" else SimpleConvNet(widths=(8, 16, 32), kernel=5)
    if checkpoint is not None:
        model.load_state_dict(read_tensors(checkpoint))
        return model.to(device)
    network = owning(model.to(device))
    config = bise.TrainConfig(epochs=3, lr=0.1, schedule="cosine", seed=seed)
    fit(network, Inputs(data["train"], device), bise.data.labels(data["train"]), config)
    return network.bare()


def pictures(data: Labelled) -> Pictures:
    x: Tensor = data.dataset.tensors[0]
    assert data.b is not None
    return Pictures(x.permute(0, 2, 3, 1).contiguous().numpy(), data.y.numpy(), data.b.numpy())


def literal(model: nn.Module, data: dict[str, Labelled], args: argparse.Namespace) -> dict[str, Any]:
    run = Literal(copy.deepcopy(model), pictures(data["train"]), pictures(data["val"]), workers=args.workers)
    run.sample(epochs=args.literal_epochs, limit=args.literal_batches)
    config = ExtractConfig.paper()
    phases = run.scaled(temperatures=len(config.temperatures()), upsilon=config.upsilon, head_epochs=config.head_epochs)
    return {
        "seconds": sum(phases.values()),
        "phases": phases,
        "epochs": {kind: {"seconds": times} for kind, times in run.seconds.items()},
        "batches_timed": args.literal_batches,
        "workers": args.workers,
    }


def ours(
    job: str, model: nn.Module, data: dict[str, Labelled], seed: int, *, short_paper: bool
) -> tuple[dict[str, Any], Tensor]:
    changes = dict(PRESETS[job])
    make = ExtractConfig.paper if changes.pop("preset", None) else ExtractConfig
    shortened = short_paper and job == "paper"
    if shortened:
        changes["upsilon"] = 1
    start = time.perf_counter()
    sub = bise.extract(model, data["train"], val=data["val"], config=make(seed=seed, **changes))
    seconds = time.perf_counter() - start
    phases = sub.record["phases"]
    phases |= {"set-up": seconds - sum(phases.values())}
    if shortened:
        phases |= {kind: phases[kind] * ExtractConfig.paper().upsilon for kind in ("mask steps", "evaluation")}
        seconds = sum(phases.values())
    best, last = (bise.audit(s, data["test"], probe=False) for s in (sub, sub.last))
    kept, units = sub.units
    row = {
        "job": job,
        "seed": seed,
        "seconds": seconds,
        "phases": phases,
        "scaled": shortened,
        "accuracy": best.accuracy,
        "accuracy_last": last.accuracy,
        "unbiased": best.unbiased,
        "sparsity": 1 - kept / units,
        "sparsity_last": 1 - sub.last.units[0] / units,
        "stopped": sub.record["stopped"],
        "selection": sub.record["selection"],
        "validations": sum("val" in entry for entry in sub.record["history"]),
        "precision": sub.record["precision"],
        "margin": sub.record["targets"]["margin"],
        "smoothing": sub.record["targets"]["smoothing"],
    }
    return row, torch.cat(list(sub.last.masks.values())).cpu()


def floor(model: nn.Module, data: dict[str, Labelled], row: dict[str, Any], device: torch.device) -> dict[str, float]:
    """What the default preset must multiply, over the rate of a large matrix product on the same device."""
    dtype = torch.bfloat16 if row["precision"] == "bf16" else torch.float32
    n = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    repeats = 20
    for count in (3, repeats):
        start = time.perf_counter()
        for _ in range(count):
            a @ b
        if device.type == "cuda":
            torch.cuda.synchronize()
    rate = n**3 * repeats / (time.perf_counter() - start)
    config = ExtractConfig()
    macs = size(model, data["train"][0][0].unsqueeze(0).to(device)).macs
    draws = config.total_steps(len(data["train"])) * config.batch_size
    # the gradient towards activations costs as much as the forward pass; weights have none
    work = macs * (2 * draws + row["validations"] * len(data["val"]))
    return {"macs": work, "macs_per_second": rate, "seconds": work / rate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=("small", "full"), default="small")
    parser.add_argument("--rho", type=float, default=0.99)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", nargs="+", default=["default", "paper"], choices=tuple(PRESETS))
    parser.add_argument("--checkpoints", type=Path, default=None)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--literal-epochs", type=int, default=2)
    parser.add_argument("--literal-batches", type=int, default=None, help="cut timed epochs off after so many")
    parser.add_argument("--short-paper", action="store_true", help="an epoch for each temperature, scaled to ten")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    content: dict[str, Any] = {"study": "extraction", "scale": args.scale, "rho": args.rho, "machine": machine()}
    content |= {"vanilla": [], "literal": None, "first": None, "runs": []}
    masks: dict[tuple[str, int], Tensor] = {}
    short_paper = args.short_paper or args.scale == "small"
    for job in args.jobs:  # by job, so that what is cut off last matters least
        for seed in args.seeds:
            data = splits(args.scale, args.rho, seed)
            checkpoint = None
            if args.checkpoints is not None:
                checkpoint = args.checkpoints / f"vanilla-{args.rho}-{seed}.safetensors"
            model = vanilla(args.scale, data, seed, checkpoint, device)
            if content["literal"] is None:
                content["literal"] = literal(model, data, args)
                print("literal", json.dumps(content["literal"]), flush=True)
                content["first"] = ours(job, model, data, seed, short_paper=short_paper)[0]
                print("first", json.dumps(content["first"]), flush=True)
            if job == args.jobs[0]:
                audit = bise.audit(model, data["test"], probe=False)
                content["vanilla"].append({"seed": seed, "accuracy": audit.accuracy, "unbiased": audit.unbiased})
            row, masks[job, seed] = ours(job, model, data, seed, short_paper=short_paper)
            row["ratio"] = content["literal"]["seconds"] / row["seconds"]
            content["runs"].append(row)
            print(json.dumps(row), flush=True)
            if "floor" not in content:
                content["floor"] = floor(model, data, row, device)
            content["agreement"] = {
                f"{a[0]} {a[1]}, {b[0]} {b[1]}": float((masks[a] == masks[b]).double().mean())
                for i, a in enumerate(masks)
                for b in list(masks)[i + 1 :]
            }
            write_json(args.out, content)
    print("agreement", json.dumps(content["agreement"]), "floor", json.dumps(content["floor"]), flush=True)


if __name__ == "__main__":
    main()
