"""The (x, y, b) contract, the cells that labels form, and how batches are drawn from them."""

from pathlib import Path

from bise.data.biased_mnist import biased_mnist
from bise.data.cells import Cells
from bise.data.contract import Labelled, labels
from bise.data.folders import hugging_face, image_folder
from bise.data.pictures import PictureFiles
from bise.data.tables import table
from bise.data.transforms import Transform
from bise.errors import BadInput

__all__ = [
    "Cells",
    "Labelled",
    "PictureFiles",
    "Transform",
    "hugging_face",
    "image_folder",
    "labels",
    "load",
    "names",
    "table",
]

_SETS = {"biased-mnist": biased_mnist}


def names() -> tuple[str, ...]:
    """The data sets that `load` knows."""
    return tuple(_SETS)


def load(
    name: str,
    *,
    split: str,
    rho: float = 0.99,
    seed: int = 0,
    protocol: str = "held-out",
    root: str | Path | None = None,
) -> Labelled:
    """A data set of the paper by name, read from `root` or from the folder that BISE_DATA names."""
    if name not in _SETS:
        raise BadInput(f"data set {name!r} is unknown; use {' or '.join(_SETS)}")
    return _SETS[name](split, rho=rho, seed=seed, protocol=protocol, root=root)
