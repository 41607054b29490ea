"""The (x, y, b) contract, the cells that labels form, and how batches are drawn from them."""

from collections.abc import Callable
from pathlib import Path

from bise.data.biased_mnist import biased_mnist
from bise.data.cells import Cells
from bise.data.contract import Labelled, labels
from bise.data.corrupted_cifar10 import corrupted_cifar10
from bise.errors import BadInput

__all__ = ["Cells", "Labelled", "labels", "load"]

_SETS: dict[str, Callable[..., Labelled]] = {"biased-mnist": biased_mnist, "corrupted-cifar10": corrupted_cifar10}


def load(
    name: str,
    *,
    split: str,
    rho: float = 0.99,
    seed: int = 0,
    protocol: str | None = None,
    root: str | Path | None = None,
) -> Labelled:
    """A data set of the paper by name, read from `root` or from the folder that BISE_DATA names.

    `protocol` says how splits and biases are made; None is the data set's own default.
    """
    if name not in _SETS:
        raise BadInput(f"data set {name!r} is unknown; use {' or '.join(_SETS)}")
    chosen = {} if protocol is None else {"protocol": protocol}
    return _SETS[name](split, rho=rho, seed=seed, root=root, **chosen)
