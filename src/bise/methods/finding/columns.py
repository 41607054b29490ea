"""Groups from a table's columns: few values as they are, numbers in four bins; and which names the law names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MOST_VALUES = 50
"""Different texts that a column may have to be a candidate."""
FEW_NUMBERS = 12
"""Different numbers up to which each is a value by itself."""
BINS = 4
NAMED = {"sex", "gender", "race", "racial", "ethnicity", "ethnic", "nationality", "native", "skin", "caste"}
NAMED |= {"religion", "religious", "faith", "belief", "language", "disability", "disabled", "age", "orientation"}
NAMED |= {"birth", "birthplace"}
"""Words for some of what Article 21 of the EU's Charter of Fundamental Rights names, as columns have them."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """How cells become groups: by their text, or by the bin of their number."""

    name: str
    groups: tuple[str, ...]
    """The names of the groups."""
    edges: tuple[float, ...] | None = None
    """Of the bins, the last of each bin included; None where the text is the group."""

    def __call__(self, values: Iterable[str]) -> Tensor:
        """[N]: the group of each cell, −1 where it is empty or holds what it never held."""
        if self.edges is None:
            place = {text: number for number, text in enumerate(self.groups)}
            return torch.tensor([place.get(text.strip(), -1) for text in values], dtype=torch.long)
        numbers = as_numbers(values)
        if numbers is None:
            return torch.full((len(list(values)),), -1)
        found = np.searchsorted(np.array(self.edges), numbers, side="left")
        return torch.from_numpy(np.where(np.isnan(numbers), -1, found)).long()


def column_of(name: str, values: Sequence[str]) -> Column | None:
    """The groups of a column; None where it has one value, or many texts that aren't numbers."""
    texts = Counter(text.strip() for text in values)
    del texts[""]
    numbers = as_numbers(values)
    if numbers is not None and len(texts) > FEW_NUMBERS:
        known = numbers[~np.isnan(numbers)]
        edges = np.unique(np.quantile(known, np.arange(1, BINS) / BINS, method="lower"))
        edges = edges[edges < known.max()]
        if len(edges):
            return Column(name=name, groups=_ranges(known, edges), edges=tuple(map(float, edges)))
        # one number is almost everything, as the gain of those who have none
        usual = float(np.median(known))
        above = known > usual
        edge = usual if above.any() else float(np.max(known[known < usual], initial=-np.inf))
        if not np.isfinite(edge):
            return None
        return Column(name=name, groups=_ranges(known, np.array([edge])), edges=(edge,))
    if not 1 < len(texts) <= MOST_VALUES:
        return None
    ordered = sorted(texts, key=float) if numbers is not None else sorted(texts)
    return Column(name=name, groups=tuple(ordered))


def columns_of(table: Mapping[str, Sequence[str]]) -> dict[str, Column]:
    """{name: its groups}, of those columns that have groups."""
    found = {name: column_of(name, values) for name, values in table.items()}
    return {name: column for name, column in found.items() if column is not None}


def is_named(name: str) -> bool:
    """Whether a column is called by something that people mustn't be told apart by."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return any(word.lower() in NAMED for word in words)


def as_numbers(values: Iterable[str]) -> NDArray[np.float64] | None:
    """Cells as numbers, nan where one is empty; None where a cell is something else, or all are empty."""
    out = []
    for text in values:
        text = text.strip()
        try:
            out.append(float(text) if text else np.nan)
        except ValueError:
            return None
    numbers = np.array(out, dtype=np.float64)
    return None if not np.isfinite(numbers).any() or np.isinf(numbers).any() else numbers


def _ranges(known: NDArray[np.float64], edges: NDArray[np.float64]) -> tuple[str, ...]:
    """What the bins are called, by the numbers that are in them."""
    ends = [-np.inf, *edges, np.inf]
    inside = [known[(known > low) & (known <= high)] for low, high in pairwise(ends)]
    return tuple(
        f"{part.min():g}" if part.min() == part.max() else f"{part.min():g} to {part.max():g}" for part in inside
    )
