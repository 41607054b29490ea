"""The demo's data: handwritten digits that ship with scikit-learn, on backgrounds whose colour goes with the class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from bise.base.errors import BadInput
from bise.data.core.contract import Labelled
from bise.data.core.naming import DIGITS, LabelNames
from bise.data.core.transforms import JITTER_DRAWS, jittered

PALETTE = (
    (0.90, 0.10, 0.15), (0.15, 0.70, 0.25), (0.10, 0.35, 0.90), (0.95, 0.80, 0.10), (0.65, 0.20, 0.80),
    (0.10, 0.75, 0.80), (0.95, 0.50, 0.10), (0.95, 0.35, 0.65), (0.50, 0.35, 0.20), (0.50, 0.50, 0.50),
)  # fmt: skip
COLOURS = ("red", "green", "blue", "yellow", "purple", "cyan", "orange", "pink", "brown", "grey")
SIZE = 16


def coloured_digits(
    *,
    rho: float = 0.95,
    seed: int = 0,
    copies: int = 8,
    turned: float = 0.0,
    noise: float = 0.03,
    brightness: float = 1.0,
) -> dict[str, Labelled]:
    """{"train", "val", "test"}: 16 × 16 RGB digits; b is the background's colour, y's own one with probability ρ.

    Training digits come in `copies` shifted versions, `turned` and stretched by as much as a jitter of that size.
    Validation and test hold other digits, as they are, with every colour equally often for every class. A background is
    its colour times `brightness`, with Gaussian `noise` of that standard deviation on each of red, green and blue.
    """
    if not 0 <= rho <= 1:
        raise BadInput(f"rho={rho} is no share of aligned samples; give a value from 0 to 1")
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise BadInput("scikit-learn is not installed; install the extra: pip install 'bise[demo]'") from error
    generator = torch.Generator().manual_seed(seed)
    bunch = load_digits()
    shade = torch.as_tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.as_tensor(bunch.target, dtype=torch.long)
    order = torch.randperm(len(y), generator=generator)
    parts = {"train": order[:1097], "val": order[1097:1397], "test": order[1397:]}
    out = {}
    for split, index in parts.items():
        many = copies if split == "train" else 10
        digits, targets = shade[index].repeat(many, 1, 1, 1), y[index].repeat(many)
        if split == "train":
            own = torch.rand(len(targets), generator=generator, dtype=torch.float32) < rho
            other = (targets + torch.randint(1, 10, (len(targets),), generator=generator)) % 10
            b = torch.where(own, targets, other)
        else:
            b = torch.arange(10).repeat_interleave(len(index))
        digits = F.interpolate(digits, size=SIZE, mode="bilinear")
        if split == "train" and turned:
            draws = torch.rand(len(digits), JITTER_DRAWS, generator=generator, dtype=torch.float32)
            digits = jittered(digits, draws, turned)
        x = _coloured(_shifted(digits, generator), b, generator, noise=noise, brightness=brightness)
        names = LabelNames(target="digit", biases=("colour",), classes=DIGITS, bias_classes=(COLOURS,))
        out[split] = Labelled(TensorDataset(x), y=targets, b=b, aligned=list(range(10)), names=names)
    return out


def digits_split(split: str, **arguments: Any) -> Labelled:
    """One split of them, as a run folder asks for it."""
    return coloured_digits(**arguments)[split]


def _shifted(digits: Tensor, generator: torch.Generator) -> Tensor:
    """Each digit moved by up to one pixel along each axis."""
    padded = F.pad(digits, (1, 1, 1, 1))
    moves = torch.randint(0, 3, (len(digits), 2), generator=generator)
    rows = (moves[:, :1] + torch.arange(SIZE))[:, None, :, None]
    columns = (moves[:, 1:] + torch.arange(SIZE))[:, None, None, :]
    return padded[torch.arange(len(digits))[:, None, None, None], 0, rows, columns]


def _coloured(digits: Tensor, b: Tensor, generator: torch.Generator, *, noise: float, brightness: float) -> Tensor:
    """White strokes on the palette's colour b, a little noise on it, in [−1, 1]."""
    moved = torch.randn(len(b), 3, generator=generator, dtype=torch.float32)
    colour = brightness * torch.tensor(PALETTE, dtype=torch.float32)[b] + noise * moved
    ground = colour[:, :, None, None].expand(-1, -1, SIZE, SIZE)
    return ((digits + (1 - digits) * ground).clamp(0, 1) - 0.5) / 0.5
