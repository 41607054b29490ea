"""The (x, y, b) contract, the cells that labels form, and how batches are drawn from them."""

from bise.data.cells import Cells
from bise.data.contract import Labelled, labels

__all__ = ["Cells", "Labelled", "labels"]
