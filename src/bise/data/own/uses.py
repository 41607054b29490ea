"""What a table's columns are for: those that are named, those that become features, and those that would mislead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bise.base.errors import BadInput, caution
from bise.data.core.numbering import NUMBER, split_word
from bise.data.core.strings import Strings

ALL = "*"
"""Among the features it stands for every column that has no other use."""
FEWEST_IDS = 20
"""Rows from which on a column with another value in every row is an id: in fewer, ages are all different too."""
READ, PASSED_OVER, BIAS = "read by the model", "passed over, with every row for training", "taken for a bias"
"""What would become of a column of splits that nobody named."""
REMEDIES = {
    READ: "name it with split_column=…, list it with features=… if the model should read it, or leave it out with"
    " ignore=…",
    PASSED_OVER: "name it with split_column=…, draw splits with holdout=…, or say with ignore=… that it is none",
    BIAS: "name the biases with bias=…",
}
_NAMES_OF_SPLITS = {"split", "splits", "splitting", "fold", "folds", "kfold", "partition", "partitions"}
_BESIDE = {"cv", "col", "column", "data", "id", "index", "inner", "k", "name", "no", "number", "nr", "outer", "train"}
_BESIDE |= {"val", "valid", "test", "dev", "set", "random", "label"}
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def check_arguments(
    what: Any,
    used: Sequence[str],
    holdout: tuple[float, float] | None,
    split_column: str | None,
    image: str | None,
    text: str | None,
    features: Sequence[str] | None,
    ignore: Sequence[str],
    separator: str | None = None,
) -> None:
    """Refuse columns that contradict each other; `used` are the target, the biases and the split's."""
    if sum(bool(given) for given in (image, text, features)) > 1:
        raise BadInput("x comes from image, text or features; name one of them only")
    if split_column is not None and holdout is not None:
        raise BadInput("splits come from split_column or from holdout; give one of them only")
    twice = next((name for i, name in enumerate(used) if name in used[:i]), None)
    if twice is not None:
        raise BadInput(f"{what}: column {twice!r} is named for two purposes (target, bias, split); name each once")
    if features and used[0] in features:
        raise BadInput(f"{what}: the target {used[0]!r} is among the features; the model would read its answer")
    if separator is not None and len(separator) != 1:
        raise BadInput(f"separator={separator!r} is not one character")
    kept = next((name for name in ignore if name in {*used, image, text, *(features or ())}), None)
    if kept is not None:
        raise BadInput(f"{what}: column {kept!r} is to be ignored, and is named for a purpose too; do one of them")


def chosen(
    what: Any, columns: Mapping[str, Strings], free: Sequence[str], features: Sequence[str] | None
) -> tuple[str, ...]:
    """The columns that become features: those that are named, or else all of `free` that don't mislead.

    `free` are the names without another use. One that says which split a row is in stops the run, and an id is left
    out, with a word, unless it is named.
    """
    asked = tuple(features or ())
    if asked and (ALL not in asked or ALL in free):
        return asked
    rest = [name for name in free if name not in asked]
    if "" in rest:
        rest = [name for name in rest if name]
        caution(
            f"{what} has a column without a name, probably row numbers; it is left out of the features", stacklevel=5
        )
    check_splits(what, {name: columns[name] for name in rest}, READ)
    ids = [name for name in rest if is_id(columns[name])]
    kept = (*(name for name in rest if name not in ids), *(name for name in asked if name != ALL))
    if ids:
        shown = ", ".join(map(repr, ids[:5])) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
        said = f"another value in every row of {shown}, as ids have"
        them = "it" if len(ids) == 1 else "them"
        if not kept:
            raise BadInput(
                f"{what}: no column is left for the features, since there is {said}; list what the model should read"
                " with features=…, or name the column of its input with text=… or image=…"
            )
        caution(
            f"{what}: there is {said}, so the model doesn't read {them}; list {them} with features=… if it should"
            f" ('{ALL},{ids[0]}' are all columns and this one), or with ignore=… if not",
            stacklevel=5,
        )
    return kept


def check_splits(what: Any, columns: Mapping[str, Iterable[str]], otherwise: str) -> None:
    """Refuse a column that says which split a row is in, and that nothing was said of; it would be … `otherwise`."""
    for name, values in columns.items():
        why = "is named like one of splits" if is_named_for_splits(name) else ""
        why = "holds nothing but words for splits, such as train" if not why and holds_splits(values) else why
        if why:
            raise BadInput(f"{what}: column {name!r} {why}, and would be {otherwise}; {REMEDIES[otherwise]}")


def is_named_for_splits(name: str) -> bool:
    """Whether a column is called split, fold, cv_fold or the like; fold_change and split_time are not."""
    words = {word.lower() for word in _WORD.findall(name)}
    words = {word for word in words if not word.isdecimal()}
    return bool(words & _NAMES_OF_SPLITS) and words <= _NAMES_OF_SPLITS | _BESIDE


def holds_splits(values: Iterable[str]) -> bool:
    """Whether every cell is a word for a split; 0, 1 and 2 are numbers like others."""
    known: dict[str, bool] = {}
    for text in values:
        if text not in known:
            known[text] = split_word(text) is not None and NUMBER.fullmatch(text.strip()) is None
            if not known[text]:
                return False
    return bool(known)


def is_id(values: Iterable[str]) -> bool:
    """Whether every row has another value, and these are whole numbers, or texts for the most part.

    Measurements with decimals may differ in every row too. A few odd cells among numbers don't make these ids.
    """
    seen: set[str] = set()
    numbers = 0
    for text in values:
        text = text.strip()
        if not text or text in seen:
            return False
        if NUMBER.fullmatch(text):
            if not _WHOLE.fullmatch(text):
                return False
            numbers += 1
        seen.add(text)
    return len(seen) >= FEWEST_IDS and (numbers == len(seen) or 2 * numbers <= len(seen))
