"""Numbers for what columns say: labels by sorted value, splits by the words in use for them or by chance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from bise.base.checking import check_choice
from bise.base.errors import BadInput, caution
from bise.data.core.arguments import SPLITS

_SPLIT_WORDS = {
    **dict.fromkeys(("train", "training", "0"), 0),
    **dict.fromkeys(("val", "valid", "validation", "dev", "1"), 1),
    **dict.fromkeys(("test", "testing", "2"), 2),
}
MOST_LABELS = 1000
_GAPS = ("na", "n/a", "nan", "null")
"""What programs write where a label is missing."""
_WHOLE = re.compile(r"[+-]?\d{1,18}(\.0*)?", re.ASCII)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def number_labels(
    values: Iterable[str], what: str, known: Sequence[str] | None = None
) -> tuple[Tensor, tuple[str, ...]]:
    """[N] label numbers by sorted distinct value, −1 where a value is empty, and the names by number.

    Whole numbers are sorted as such, 1, 01 and 1.0 are one label, and NaN among them is empty; anything else is
    sorted as text. Where the names are `known`, their places are the numbers, and others are refused.
    """
    codes: dict[str, int] = {}
    raw = torch.from_numpy(np.fromiter((codes.setdefault(v, len(codes)) for v in values), np.int64))
    names = {text: text.strip() for text in codes}
    filled = {name for name in names.values() if name}
    gaps = {name for name in filled if name.lower() == "nan"}
    if filled > gaps and all(NUMBER.fullmatch(name) for name in filled - gaps):  # among names it would be one
        names = {text: "" if name in gaps else name for text, name in names.items()}
        filled -= gaps
    ordered: list[str]
    if known is not None and filled <= set(known):
        ordered = list(known)
    elif filled and all(_WHOLE.fullmatch(name) for name in filled):
        names = {text: str(int(name.partition(".")[0])) if name else "" for text, name in names.items()}
        ordered = sorted({name for name in names.values() if name}, key=int)
    elif filled and all(NUMBER.fullmatch(name) for name in filled):
        odd = min(name for name in filled if not _WHOLE.fullmatch(name))
        raise BadInput(f"{what} holds {odd}, which is no whole number; labels are names or whole numbers")
    else:
        ordered = sorted(filled)
        gap = next((name for name in ordered if name.lower() in _GAPS), None)
        if gap is not None:
            caution(
                f"{what}: {gap!r} is taken for a label like the others; empty these cells if they have none",
                stacklevel=4,
            )
    if len(ordered) > MOST_LABELS:
        raise BadInput(
            f"{what} has {len(ordered):,} different values ({', '.join(map(repr, ordered[:3]))}, …), more than"
            f" {MOST_LABELS:,}; it is probably the wrong column"
        )
    if known is not None:
        strange = [name for name in ordered if name not in known]
        if strange:
            own = ", ".join(known[:5]) + (", …" if len(known) > 5 else "")
            raise BadInput(f"{what} holds {strange[0]!r}, which the training data didn't ({own}); leave these rows out")
        ordered = list(known)
    number = {name: i for i, name in enumerate(ordered)} | {"": -1}
    lookup = torch.tensor([number[names[text]] for text in codes], dtype=torch.long)
    return lookup[raw] if len(raw) else raw, tuple(ordered)


def check_targets(y: Tensor, names: Sequence[str], what: str) -> None:
    """Refuse a target that is missing somewhere, or that has one class only."""
    empty = (y < 0).nonzero().flatten()
    if len(empty):
        rows = ", ".join(str(int(row) + 1) for row in empty[:5]) + (", …" if len(empty) > 5 else "")
        raise BadInput(f"{what} is empty in {len(empty)} of {len(y)} rows (rows {rows}); fill them or leave them out")
    if len(names) < 2:
        raise BadInput(f"{what} holds one class only ({names[0]!r}); a target needs at least two")


def split_numbers(values: Iterable[str], what: str) -> Tensor:
    """[N]: 0 for train, 1 for val, 2 for test, by the words that are in use for them."""
    codes: dict[str, int] = {}
    raw = torch.from_numpy(np.fromiter((codes.setdefault(v, len(codes)) for v in values), np.int64))
    lookup = [split_word(text) for text in codes]
    if None in lookup:
        odd = [text.strip() for text in codes if split_word(text) is None]
        shown = ", ".join(repr(text) for text in odd[:5]) + (", …" if len(odd) > 5 else "")
        raise BadInput(f"{what} holds {shown}; a split is train, val or test (or 0, 1, 2)")
    return torch.tensor(lookup, dtype=torch.long)[raw]


def split_word(text: str) -> int | None:
    """The number of the split that a word stands for, None where it is none."""
    return _SPLIT_WORDS.get(text.strip().lower().removesuffix(".0"))


def held_out(rows: int, holdout: tuple[float, float] | None, seed: int) -> Tensor:
    """[N]: every row train, or shares of them val and test, drawn by `seed`."""
    part = torch.zeros(rows, dtype=torch.long)
    if holdout is None:
        return part
    val, test = holdout
    if not (val >= 0 and test >= 0 and val + test < 1):
        raise BadInput(f"holdout={holdout} leaves no row to train on; give two shares that sum to less than 1")
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    first, second = round(rows * val), round(rows * test)
    part[order[:first]] = 1
    part[order[first : first + second]] = 2
    return part


def split_number(name: str) -> int:
    check_choice("split", name, SPLITS)
    return SPLITS.index(name)
