"""The (x, y, b) contract, the cells that labels form, and how batches are drawn from them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

from bise.base.errors import BadInput
from bise.data.core.cells import Cells
from bise.data.core.contract import Labelled, labels
from bise.data.core.naming import LabelNames
from bise.data.core.noise import noisy_bias
from bise.data.core.pictures import PictureFiles
from bise.data.core.transforms import Transform
from bise.data.own.folders import image_folder
from bise.data.own.hugging_face import hugging_face
from bise.data.own.one_table import table
from bise.data.sets.biased_madlibs import biased_madlibs
from bise.data.sets.biased_mnist import biased_mnist
from bise.data.sets.celeba import celeba
from bise.data.sets.civilcomments import civilcomments
from bise.data.sets.corrupted_cifar10 import corrupted_cifar10
from bise.data.sets.fetching import download
from bise.data.sets.multi_color_mnist import multi_color_mnist

__all__ = [
    "Cells",
    "LabelNames",
    "Labelled",
    "PictureFiles",
    "Transform",
    "download",
    "hugging_face",
    "image_folder",
    "labels",
    "load",
    "names",
    "noisy_bias",
    "table",
]

_SETS: dict[str, Callable[..., Labelled]] = {
    "biased-mnist": biased_mnist,
    "multi-color-mnist": multi_color_mnist,
    "corrupted-cifar10": corrupted_cifar10,
    "celeba": celeba,
    "civilcomments": civilcomments,
    "biased-madlibs": biased_madlibs,
}


def names() -> tuple[str, ...]:
    """The data sets that `load` knows.

    Returns:
        Their names.

    Example:
        >>> "biased-mnist" in bise.data.names()
        True
    """
    return tuple(_SETS)


def load(
    name: str,
    *,
    split: str,
    rho: float | tuple[float, float] | None = None,
    seed: int = 0,
    protocol: str | None = None,
    root: str | Path | None = None,
) -> Labelled:
    """A data set by name.

    Args:
        name: One of `bise.data.names()`.
        split: "train", "val" or "test".
        rho: The share of aligned samples, for sets that are made; None is the set's own default.
        seed: Draws colours, splits and whatever else is drawn.
        protocol: How splits are made, where a set has several ways; None is its own default.
        root: The folder of data sets; None is the one that BISE_DATA names.

    Returns:
        A data set of (x, y, b) whose labels have names.

    Raises:
        BadInput: The name is unknown, files are missing, or the set takes no such rho, protocol or split.

    Example:
        >>> train = bise.data.load("biased-mnist", split="train", rho=0.99)  # doctest: +SKIP
    """
    if name not in _SETS:
        raise BadInput(f"data set {name!r} is unknown; use {' or '.join(_SETS)}")
    if rho is not None and "rho" not in signature(_SETS[name]).parameters:
        raise BadInput(f"rho={rho} can't be set for {name}, whose bias is fixed; leave it out")
    given: dict[str, Any] = {"rho": rho, "protocol": protocol}
    return _SETS[name](split, seed=seed, root=root, **{key: v for key, v in given.items() if v is not None})
