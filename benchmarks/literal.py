"""Algorithm 1 as a paper's repository would write it: the yardstick for speed.

Plain PyTorch, nothing sabotaged: a DataLoader over PIL pictures with workers and pinned memory, one mask parameter
per layer in forward hooks, torch.optim.SGD for masks and head, every epoch of the head on the network anew, the
validation set after every mask epoch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from bise.network.architectures.vision import torchvision


class Pictures(Dataset[tuple[Tensor, int, int]]):
    """uint8 pictures [N, H, W, 3] with their labels, handed out as a torchvision pipeline would."""

    def __init__(self, pictures: np.ndarray, y: np.ndarray, b: np.ndarray) -> None:
        transforms = torchvision().transforms
        self.pictures, self.y, self.b = pictures, y, b
        self.transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.5,) * 3, (0.5,) * 3)])

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        picture = Image.fromarray(self.pictures[index])
        return self.transform(picture), int(self.y[index]), int(self.b[index])


class Binarise(torch.autograd.Function):
    """1{σ(m/τ) ≥ 0.5}, with the derivative of σ(m/τ)."""

    @staticmethod
    def forward(ctx: Any, m: Tensor, tau: float) -> Tensor:
        ctx.save_for_backward(m)
        ctx.tau = tau
        return (torch.sigmoid(m / tau) >= 0.5).float()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (m,) = ctx.saved_tensors
        s = torch.sigmoid(m / ctx.tau)
        return grads[0] * s * (1 - s) / ctx.tau, None


@dataclass
class Masked:
    """The model with one mask per ReLU, in hooks."""

    model: nn.Module
    tau: float = 1.0
    masks: list[nn.Parameter] = field(default_factory=list)
    z: Tensor | None = None

    def __post_init__(self) -> None:
        device = next(self.model.parameters()).device
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        blocks = list(self.model.blocks)  # type: ignore[arg-type]
        for block in blocks:
            mask = nn.Parameter(torch.zeros(block[0].out_channels, device=device))
            self.masks.append(mask)
            block[2].register_forward_hook(self._gate(mask))
        self.model.fc.register_forward_pre_hook(self._keep)  # type: ignore[operator]

    def _gate(self, mask: nn.Parameter) -> Any:
        return lambda module, args, output: output * Binarise.apply(mask, self.tau).view(1, -1, 1, 1)

    def _keep(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        self.z = args[0]


def mutual_information(p: Tensor, b: Tensor, classes: int) -> Tensor:
    joint = (F.one_hot(b, classes).float().T @ p / len(b)).clamp_min(1e-15)
    rows, columns = joint.sum(1, keepdim=True), joint.sum(0, keepdim=True)
    return (joint * (joint / (rows @ columns).clamp_min(1e-15)).log()).sum() / math.log(classes)


@dataclass
class Literal:
    """One extraction; `seconds` by kind of epoch are lists, so that a few can be timed and the rest scaled."""

    model: nn.Module
    train: Pictures
    val: Pictures
    classes: int = 10
    workers: int = 8
    batch_size: int = 100
    gamma: float = 1.0

    def __post_init__(self) -> None:
        self.device = next(self.model.parameters()).device
        self.masked = Masked(self.model.eval())
        self.head = nn.Linear(self.model.fc.in_features, self.classes).to(self.device)  # type: ignore[union-attr]
        rates = {"momentum": 0.9, "weight_decay": 1e-4}
        self.mask_optimizer = torch.optim.SGD(self.masked.masks, lr=0.01, **rates)
        self.head_optimizer = torch.optim.SGD(self.head.parameters(), lr=0.1, **rates)
        rho = float((self.train.y == self.train.b).mean())
        c = self.classes
        self.r = (1 / (c * rho), (c - 1) / (c * (1 - rho)))
        self.seconds: dict[str, list[float]] = {"mask": [], "head": [], "evaluation": []}
        options: dict[str, Any] = {"num_workers": self.workers, "pin_memory": self.device.type == "cuda"}
        if self.workers:
            options["persistent_workers"] = True
        self.loader = DataLoader(self.train, batch_size=self.batch_size, shuffle=True, **options)
        self.val_loader = DataLoader(self.val, batch_size=500, **options)

    def batches(self, loader: DataLoader[Any], limit: int | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for i, (x, y, b) in enumerate(loader):
            if i == limit:
                return
            yield tuple(t.to(self.device, non_blocking=True) for t in (x, y, b))  # type: ignore[misc]

    def timed(self, kind: str, start: float, share: float = 1.0) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds[kind].append((time.perf_counter() - start) / share)

    def head_epoch(self, limit: int | None = None) -> None:
        start, done = time.perf_counter(), 0
        for x, _, b in self.batches(self.loader, limit):
            with torch.no_grad():
                self.model(x)
            assert self.masked.z is not None
            loss = F.cross_entropy(self.head(self.masked.z.detach()), b)
            self.head_optimizer.zero_grad()
            loss.backward()
            self.head_optimizer.step()
            done += 1
        self.timed("head", start, done / len(self.loader))

    def mask_epoch(self, limit: int | None = None) -> None:
        start, done = time.perf_counter(), 0
        for x, y, b in self.batches(self.loader, limit):
            logits = self.model(x)
            z = self.masked.z
            assert z is not None
            weights = torch.where(y == b, self.r[0], self.r[1])
            loss = (F.cross_entropy(logits, y, reduction="none") * weights).mean()
            conflicting = y != b
            if conflicting.any():
                p = self.head(z[conflicting]).softmax(1)
                loss = loss + self.gamma * mutual_information(p, b[conflicting], self.classes)
            self.mask_optimizer.zero_grad()
            loss.backward()
            self.mask_optimizer.step()
            head_loss = F.cross_entropy(self.head(z.detach()), b)
            self.head_optimizer.zero_grad()
            head_loss.backward()
            self.head_optimizer.step()
            done += 1
        self.timed("mask", start, done / len(self.loader))

    @torch.no_grad()
    def evaluate(self) -> float:
        start = time.perf_counter()
        correct = sum(int((self.model(x).argmax(1) == y).sum()) for x, y, _ in self.batches(self.val_loader))
        self.timed("evaluation", start)
        return correct / len(self.val)

    def run(self, *, temperatures: list[float], upsilon: int, head_epochs: int) -> float:
        """The whole schedule; returns the best validation accuracy."""
        best = 0.0
        for tau in temperatures:
            self.masked.tau = tau
            for _ in range(head_epochs):
                self.head_epoch()
            for _ in range(upsilon):
                self.mask_epoch()
                best = max(best, self.evaluate())
        return best

    def sample(self, *, epochs: int, limit: int | None) -> None:
        """Time a few epochs of each kind, each cut off after `limit` batches and scaled to a whole one."""
        self.head_epoch(limit)  # starts the workers
        self.mask_epoch(limit)
        self.evaluate()
        self.seconds = {kind: [] for kind in self.seconds}
        for _ in range(epochs):
            self.head_epoch(limit)
            self.mask_epoch(limit)
            self.evaluate()

    def scaled(self, *, temperatures: int, upsilon: int, head_epochs: int) -> dict[str, float]:
        """Seconds of the whole schedule by phase, from the mean epoch of each kind."""
        mean = {kind: sum(times) / len(times) for kind, times in self.seconds.items()}
        return {
            "mask steps": mean["mask"] * temperatures * upsilon,
            "head": mean["head"] * temperatures * head_epochs,
            "evaluation": mean["evaluation"] * temperatures * upsilon,
        }
