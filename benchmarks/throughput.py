"""Training throughput in images a second: our loop, and plain eager PyTorch with a DataLoader, in one process.

    python benchmarks/throughput.py --compiled --out results/throughput.json

Pictures are random bytes: only time is measured. The plain loop decodes PIL pictures in worker processes, crops, flips
and normalises them there, and trains in fp32, as most repositories do. Ours keeps bytes on the device, augments there,
and replays a recorded step in bf16. After a run that warms up, the difference of two runs of different length is
taken, so that starting up (workers, recording, compiling) is left out.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

import bise
from bise.base.files import write_json
from bise.data.core.contract import Labelled
from bise.data.core.transforms import Transform
from bise.engine.inputs import Inputs
from bise.engine.precision import resolved
from bise.engine.training import fit
from bise.methods.finetuning import owning
from bise.network.architectures.small import SimpleConvNet
from bise.network.architectures.vision import torchvision
from bise.studies.origin import machine

NORM = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.2023, 0.1994, 0.2010)}


def model_of(name: str) -> nn.Module:
    if name == "SimpleConvNet":
        return SimpleConvNet()
    return torchvision().models.resnet18(weights=None, num_classes=10)


class PIL(Dataset[Any]):
    def __init__(self, pictures: np.ndarray, y: torch.Tensor, augment: bool) -> None:
        t = torchvision().transforms
        self.pictures, self.y = pictures, y
        steps = [t.RandomCrop(32, padding=4), t.RandomHorizontalFlip()] if augment else []
        self.transform = t.Compose([*steps, t.ToTensor(), t.Normalize(**NORM)])

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(self.pictures[index])), int(self.y[index])


def plain(name: str, x: torch.Tensor, y: torch.Tensor, batch: int, augment: bool, epochs: int, workers: int) -> float:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pin = device.type == "cuda"
    data = PIL(x.permute(0, 2, 3, 1).contiguous().numpy(), y, augment)
    loader = DataLoader(data, batch, shuffle=True, num_workers=workers, pin_memory=pin, persistent_workers=workers > 0)
    model = model_of(name).to(device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    start = time.perf_counter()
    for _ in range(epochs):
        for images, targets in loader:
            images, targets = images.to(device, non_blocking=True), targets.to(device, non_blocking=True)
            loss = F.cross_entropy(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if pin:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def ours(name: str, x: torch.Tensor, y: torch.Tensor, batch: int, augment: bool, epochs: int, compiled: bool) -> float:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    transform = Transform(**NORM, crop=4 if augment else 0, flip=augment)
    data = Labelled(TensorDataset(x), y=y, classes=10, transform=transform)
    network = owning(model_of(name).to(device))
    start = time.perf_counter()
    config = bise.TrainConfig(epochs=epochs, lr=0.01, batch_size=batch, compile=compiled)
    fit(network, Inputs(data, device), bise.data.labels(data, need_bias=False), config)
    return time.perf_counter() - start


def rate(run: Any, samples: int, epochs: tuple[int, int]) -> dict[str, float]:
    run(1)
    short, long = (run(count) for count in epochs)
    each = (long - short) / (epochs[1] - epochs[0])
    return {"images_per_second": samples / each, "epoch_seconds": each}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--models", nargs="+", default=["resnet18", "SimpleConvNet"])
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    content: dict[str, Any] = {"study": "throughput", "samples": args.samples, "machine": machine(), "models": {}}
    for name in args.models:
        side, batch, augment = (28, 100, False) if name == "SimpleConvNet" else (32, 256, True)
        x = torch.randint(0, 256, (args.samples, 3, side, side), generator=generator, dtype=torch.uint8)
        y = torch.randint(0, 10, (args.samples,), generator=generator)
        jobs = {"ours": lambda n: ours(name, x, y, batch, augment, n, False)}  # noqa: B023
        if args.compiled:
            jobs["ours, compiled"] = lambda n: ours(name, x, y, batch, augment, n, True)  # noqa: B023
        jobs["plain"] = lambda n: plain(name, x, y, batch, augment, n, args.workers)  # noqa: B023
        found = {job: rate(run, args.samples, (1, 3) if job == "plain" else (2, 22)) for job, run in jobs.items()}
        found["precision"] = {"ours": resolved("auto", model_of(name).to(device)), "plain": "fp32"}
        found["ratio"] = {
            job: r["images_per_second"] / found["plain"]["images_per_second"] for job, r in found.items() if job in jobs
        }
        content["models"][f"{name}, {side} × {side}, batch {batch}"] = found
        print(name, json.dumps(found), flush=True)
        write_json(args.out, content)


if __name__ == "__main__":
    main()
