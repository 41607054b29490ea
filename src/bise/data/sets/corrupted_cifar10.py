"""Corrupted-CIFAR10: pictures whose corruption goes with the class, made from CIFAR-10 and kept."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from bise.base.checking import check_choice, check_share
from bise.base.errors import BadInput, NoSplit
from bise.data.core.arguments import SPLITS
from bise.data.core.cache import cached, digest
from bise.data.core.contract import Deferred, Labelled
from bise.data.core.naming import LabelNames
from bise.data.core.transforms import Transform
from bise.data.sets.cifar10 import Cifar10, cifar10
from bise.data.sets.cifar10c_archive import archive
from bise.data.sets.corruptions import VERSION, corrupt

LISTS = {
    "dfa": (
        "brightness", "contrast", "gaussian_noise", "frost", "elastic_transform",
        "gaussian_blur", "defocus_blur", "impulse_noise", "saturate", "pixelate",
    ),
    "lff-0": (
        "snow", "frost", "fog", "brightness", "contrast",
        "spatter", "elastic_transform", "jpeg_compression", "pixelate", "saturate",
    ),
    "lff-1": (
        "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "gaussian_blur",
        "defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "original",
    ),
}  # fmt: skip
"""The corruption that goes with each class, in the classes' order."""
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ALIASES = {"held-out": "dfa", "paper": "dfa", "authors": "archive"}
TRANSFORM = Transform(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010), crop=4, flip=True)
TEST = 1 << 20
"""Added to the numbers of test pictures, so that they share no random numbers with training pictures."""


def corrupted_cifar10(
    split: str,
    *,
    rho: float = 0.99,
    seed: int = 0,
    protocol: str = "dfa",
    root: str | Path | None = None,
    severity: int = 5,
) -> Labelled:
    """The train, val or test split [N, 3, 32, 32], kept as bytes; b is the number of the corruption, aligned is b = y.

    `protocol="dfa"` (also called "held-out" and "paper") has the corruptions of Lee et al. 2021 and keeps a tenth of
    the training pictures for val alone. "lff-0" and "lff-1" are the two lists of Nam et al. 2020, with all training
    pictures, the conflicting ones where the source has them, and no val; its "severity 4" is level 5 here. "archive"
    (also called "authors", whose code reads it) reads the pictures that Lee et al. share, from `root`/cifar10c. val
    and test have ρ = 0.1, every corruption evenly, but the archive's are as they come.
    """
    protocol = ALIASES.get(protocol, protocol)
    _check(split, rho, protocol, severity)
    if protocol == "archive":
        pictures, y, b = archive(split, rho, root)
    else:
        source = cifar10("test" if split == "test" else "train", root)
        everything = source.labels()
        index = _part(everything, split, seed, protocol)
        y = everything[index]
        b = milestones(y, rho if split == "train" else 0.1)
        pictures = Deferred(lambda: _made(source, index, b, seed, protocol, severity), len(y))
    corruptions = LISTS["dfa" if protocol == "archive" else protocol]
    return Labelled(
        pictures,
        y=y,
        b=b,
        classes=10,
        bias_classes=10,
        aligned=list(range(10)),
        transform=TRANSFORM,
        names=LabelNames(target="class", biases=("corruption",), classes=CLASSES, bias_classes=(corruptions,)),
    )


def milestones(y: Tensor, rho: float) -> Tensor:
    """[N] corruptions: each class goes through all ten in turn, from one rounded cumulative share to the next."""
    b = torch.empty_like(y)
    for label in range(10):
        shares = torch.full((10,), (1 - rho) / 9, dtype=torch.float64)
        shares[label] = rho
        index = (y == label).nonzero().flatten()
        ends = torch.round(len(index) * shares.cumsum(0))
        b[index] = torch.searchsorted(ends, torch.arange(len(index)).double(), right=True).clamp(max=9)
    return b


def _check(split: str, rho: float, protocol: str, severity: int) -> None:
    check_choice("split", split, SPLITS)
    check_choice("protocol", protocol, (*LISTS, "archive"))
    if protocol.startswith("lff") and split == "val":
        raise NoSplit(f'protocol="{protocol}" trains on all pictures and has no val; use "dfa", which keeps a tenth')
    check_share(rho)
    if severity not in range(1, 6):
        raise BadInput(f"severity={severity} is unknown; use 1 to 5")
    if protocol == "archive" and severity != 5:
        raise BadInput(f"severity={severity} is not in the archive, whose pictures are made; leave it at 5")


def _part(y: Tensor, split: str, seed: int, protocol: str) -> Tensor:
    """The numbers of a split's pictures: all in the source's order, or shuffled with a tenth of each class for val."""
    if split == "test" or protocol != "dfa":
        return torch.arange(len(y))
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    held_out = torch.zeros(len(y), dtype=torch.bool)
    for label in range(10):
        mine = (y[order] == label).nonzero().flatten()
        held_out[mine[: len(mine) // 10]] = True
    return order[held_out if split == "val" else ~held_out]


def _made(source: Cifar10, index: Tensor, b: Tensor, seed: int, protocol: str, severity: int) -> Tensor:
    """uint8 [N, 3, 32, 32]: the pictures `index` with the corruptions b, from the cache or made now."""
    names = LISTS[protocol]
    recipe = {
        "version": VERSION,
        "source": source.digest(),
        "split": source.split,
        "corruptions": names,
        "severity": severity,
        "seed": seed,
        "index": bytes(digest(index).tolist()).hex(),
        "b": bytes(digest(b).tolist()).hex(),
    }
    return cached(f"corrupted-cifar10-{protocol}", recipe, lambda: _corrupted(source, index, b, seed, names, severity))


def _corrupted(source: Cifar10, index: Tensor, b: Tensor, seed: int, names: tuple[str, ...], severity: int) -> Tensor:
    images = source.images()[index]
    numbers = index + (TEST if source.split == "test" else 0)
    for k, name in enumerate(names):
        part = (b == k).nonzero().flatten()
        images[part] = corrupt(images[part], name, severity=severity, seed=seed, index=numbers[part])
    return images
