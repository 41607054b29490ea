"""What a model takes from one's own columns: numbers standardised, categories one-hot."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bise.base.errors import BadInput, NoSplit, caution
from bise.data.core.numbering import NUMBER
from bise.data.core.strings import Strings

MOST_CATEGORIES = 1000
FEW, MANY = 0.01, 0.1
"""Shares of cells that tell nothing, beyond training's own, that are passed over: at least, and at most."""


@dataclass(frozen=True, kw_only=True)
class NumberColumn:
    """(number − mean) / scale, 0 where a cell is empty; with `marked`, a second feature says which cells are."""

    name: str
    mean: float
    scale: float
    marked: bool
    empty: float | None = None
    """The share of training rows whose cell is empty; None where an earlier version fitted it."""

    @property
    def names(self) -> list[str]:
        return [self.name, f"{self.name} missing"] if self.marked else [self.name]

    @property
    def usual(self) -> float:
        """The share of cells that told nothing in training."""
        return self.empty if self.empty is not None else float(self.marked)

    def silent(self, values: Iterable[str]) -> float:
        """The share of cells that tell nothing, since they are empty."""
        cells = [text.strip().lower() in ("", "nan") for text in values]
        return sum(cells) / max(1, len(cells))

    def __call__(self, values: Iterable[str]) -> NDArray[np.float32]:
        numbers = _numbers(values, self.name)
        if isinstance(numbers, str):
            raise BadInput(
                f"column {self.name!r} holds {numbers}, and in training it held numbers; write a number there, or leave"
                " the cell empty"
            )
        missing = np.isnan(numbers)
        scaled = np.where(missing, 0.0, (numbers - self.mean) / self.scale)
        return np.stack([scaled, missing] if self.marked else [scaled], axis=1).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class CategoryColumn:
    """One feature for each category; one that isn't among them is all zeros."""

    name: str
    categories: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return [f"{self.name}={text}" for text in self.categories]

    @property
    def usual(self) -> float:
        """The share of cells that told nothing in training: each was a category."""
        return 0.0

    def silent(self, values: Iterable[str]) -> float:
        """The share of cells that tell nothing, since training had no such category."""
        known = set(self.categories)
        cells = [text.strip() not in known for text in values]
        return sum(cells) / max(1, len(cells))

    def __call__(self, values: Iterable[str]) -> NDArray[np.float32]:
        place = {text: i for i, text in enumerate(self.categories)}
        number = np.array([place.get(text.strip(), len(place)) for text in values], dtype=np.int64)
        block = np.zeros((len(number), len(place) + 1), dtype=np.float32)
        block[np.arange(len(number)), number] = 1
        return block[:, :-1]


@dataclass(frozen=True)
class Encoder:
    """How rows become features [N, F], by what the training rows held; for new rows as well."""

    columns: tuple[NumberColumn | CategoryColumn, ...]

    @staticmethod
    def fit(columns: Mapping[str, Strings], train: Tensor) -> Encoder:
        """From whole columns, by the rows in `train` [N] (bool): a column of numbers only is one of numbers."""
        if not columns:
            raise BadInput("no column is left for the features; name them with features=…")
        if not train.any():
            raise NoSplit(
                "features are made by what the training rows hold, and there is none; mark rows as train, or name"
                " what these rows are for with like=…"
            )
        rows = train.numpy()
        return Encoder(tuple(_fitted(name, column, rows) for name, column in columns.items()))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the F features."""
        return tuple(name for column in self.columns for name in column.names)

    def __call__(self, values: Mapping[str, Iterable[Any]]) -> Tensor:
        """[N, F] float32 from {column: its cells}, text or not; an empty cell is "" or None."""
        missing = next((column.name for column in self.columns if column.name not in values), None)
        if missing is not None:
            raise BadInput(f"there is no column {missing!r}; the features need {[c.name for c in self.columns]}")
        blocks = [column("" if v is None else str(v) for v in values[column.name]) for column in self.columns]
        if len({len(block) for block in blocks}) > 1:
            raise BadInput("the columns have different lengths; give one cell a row in each")
        return torch.from_numpy(np.concatenate(blocks, axis=1))

    def tell_silent(self, values: Mapping[str, Iterable[str]], what: object) -> None:
        """Say in which columns far more cells tell nothing than in training: the file may be written in another way."""
        shares = {column.name: (column.silent(values[column.name]), column.usual) for column in self.columns}
        much = {name: share for name, (share, usual) in shares.items() if share - usual > max(FEW, min(usual, MANY))}
        if not much:
            return
        shown = [f"{name} ({100 * share:.0f} %)" for name, share in sorted(much.items(), key=lambda item: -item[1])]
        more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
        caution(
            f"{what}: cells are empty or hold a category that training never had in {', '.join(shown[:8])}{more}, where"
            " training had none or far fewer; the model sees nothing there, so write them as the training data did",
            stacklevel=3,
        )


def _fitted(name: str, column: Strings, train: NDArray[np.bool_]) -> NumberColumn | CategoryColumn:
    numbers = _numbers(column, name)
    if isinstance(numbers, str) or np.isnan(numbers).all():
        _doubt(column, name)
        kept = sorted({text.strip() for text, inside in zip(column, train, strict=True) if inside})
        if len(kept) > MOST_CATEGORIES:
            raise BadInput(
                f"column {name!r} has {len(kept):,} different texts, too many for one-hot features; name the others"
                " with features=…, or this one with image=… or text=… if it is the input"
            )
        return CategoryColumn(name=name, categories=tuple(kept))
    missing = np.isnan(numbers)
    known = numbers[train & ~missing]
    mean = float(known.mean()) if len(known) else 0.0
    spread = float(known.std()) if len(known) else 0.0
    # a constant column has the rounding error of its mean for a spread
    scale = spread if spread > 1e-9 * max(abs(mean), 1e-30) else 1.0
    return NumberColumn(
        name=name, mean=mean, scale=scale, marked=bool(missing.any()), empty=float(missing[train].mean())
    )


def _doubt(column: Strings, name: str) -> None:
    """Say where a column of categories looks like one of numbers."""
    different = {text.strip() for text in column} - {""}
    numbers = {text for text in different if NUMBER.fullmatch(text)}
    if different and all(NUMBER.fullmatch(text.replace(",", ".", 1)) for text in different):
        odd = min(different - numbers)
        raise BadInput(f"column {name!r} holds {odd}, a number with a comma; write 1000 and 1.5")
    if len(numbers) > max(10, len(different) // 2):
        odd = min(different - numbers)
        caution(
            f"column {name!r} is taken for categories, since it holds {odd[:40]!r}, though most of its values are"
            " numbers; empty the cells that are none",
        )


def _numbers(values: Iterable[str], name: str) -> NDArray[np.float64] | str:
    """The cells as numbers, NaN where one is empty; where one is something else, that and its row in words."""
    out = array("d")
    huge = ""
    for text in values:
        text = text.strip()
        if not text or text.lower() == "nan":
            out.append(math.nan)
        elif NUMBER.fullmatch(text) is None and text.lower().lstrip("+-") not in ("inf", "infinity"):
            return f"{text[:40]!r} in row {len(out) + 1}"
        else:
            out.append(float(text))
            if not huge and not abs(out[-1]) <= 1e30:  # its square must be finite too
                huge = f"{text[:40]} in row {len(out)}"
    if huge:
        raise BadInput(f"column {name!r} holds {huge}, too large a number for a feature; empty that cell")
    return np.array(out, dtype=np.float64)
