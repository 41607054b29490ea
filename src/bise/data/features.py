"""What a model takes from one's own columns: numbers standardised, categories one-hot, text as token numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from bise.data.strings import Strings
from bise.errors import BadInput

MOST_CATEGORIES = 1000
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def encode_features(columns: Mapping[str, Strings], train: Tensor) -> tuple[Tensor, tuple[str, ...]]:
    """[N, F] float32 and the names of the F features, by what the rows in `train` [N] (bool) hold.

    A column of numbers is standardised by train's mean and standard deviation; where cells are empty they take
    the mean, and a column "NAME missing" says so. Any other column is one-hot over train's categories; a category
    that train lacks is all zeros.
    """
    parts: list[NDArray[np.float32]] = []
    names: list[str] = []
    seen = train.numpy()
    for name, column in columns.items():
        numbers = _numbers(column, name)
        block, new = _categories(column, name, seen) if numbers is None else _standardised(numbers, name, seen)
        parts.append(block)
        names += new
    if not names:
        raise BadInput("no column is left for the features; name them with features=[…]")
    return torch.from_numpy(np.concatenate(parts, axis=1)), tuple(names)


def _numbers(column: Strings, name: str) -> NDArray[np.float64] | None:
    """The column as numbers, NaN where a cell is empty; None where a cell is something else, or all are empty."""
    out = np.full(len(column), np.nan)
    for i, text in enumerate(column):
        text = text.strip()
        if not text or text.lower() == "nan":
            continue
        if _NUMBER.fullmatch(text) is None:
            return None
        out[i] = float(text)
        if not abs(out[i]) <= 1e30:  # its square must be finite too
            raise BadInput(f"column {name!r} holds {text[:40]} in row {i + 1}, too large a number for a feature")
    return None if np.isnan(out).all() else out


def _standardised(
    numbers: NDArray[np.float64], name: str, train: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], list[str]]:
    missing = np.isnan(numbers)
    known = numbers[train & ~missing]
    mean = known.mean() if len(known) else 0.0
    spread = known.std() if len(known) else 0.0
    # a constant column has the rounding error of its mean for a spread
    scale = spread if spread > 1e-9 * max(abs(mean), 1e-30) else 1.0
    scaled = np.where(missing, 0.0, (numbers - mean) / scale).astype(np.float32)
    if not missing.any():
        return scaled[:, None], [name]
    return np.stack([scaled, missing.astype(np.float32)], axis=1), [name, f"{name} missing"]


def _categories(column: Strings, name: str, train: NDArray[np.bool_]) -> tuple[NDArray[np.float32], list[str]]:
    codes: dict[str, int] = {}
    number = np.fromiter((codes.setdefault(text.strip(), len(codes)) for text in column), np.int64, len(column))
    in_train = np.zeros(len(codes), dtype=bool)
    in_train[np.unique(number[train])] = True
    kept = sorted(text for text, code in codes.items() if in_train[code])
    if len(kept) > MOST_CATEGORIES:
        raise BadInput(
            f"column {name!r} has {len(kept):,} different texts, too many for one-hot features; leave it out of"
            " features=[…]"
        )
    place = np.full(len(codes), len(kept))
    place[[codes[text] for text in kept]] = np.arange(len(kept))
    block = np.zeros((len(column), len(kept) + 1), dtype=np.float32)
    block[np.arange(len(column)), place[number]] = 1
    return block[:, :-1], [f"{name}={text}" for text in kept]


class Texts(Dataset[dict[str, Tensor]]):
    """Sentences as {"input_ids", "attention_mask", …}, each int64 [length]: cut or padded to `length` tokens.

    `tokenizer` is a tokenizer of transformers, a folder or name that AutoTokenizer knows, a BERT vocabulary
    (vocab.txt), or any function that takes a text and gives its token numbers; the latter is padded with 0.
    """

    def __init__(self, texts: Strings | Sequence[str], *, tokenizer: Any, length: int) -> None:
        if length < 1:
            raise BadInput(f"length={length} is no number of tokens; give at least 1")
        self.texts, self.length = texts, length
        self.tokenizer = _tokenizer(tokenizer)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        text = self.texts[index]
        if hasattr(self.tokenizer, "pad_token_id"):
            encoded = self.tokenizer(text, padding="max_length", truncation=True, max_length=self.length)
            return {key: torch.tensor(value, dtype=torch.long) for key, value in encoded.items()}
        ids = torch.as_tensor(self.tokenizer(text), dtype=torch.long).flatten()[: self.length]
        mask = torch.zeros(self.length, dtype=torch.long)
        mask[: len(ids)] = 1
        return {"input_ids": torch.nn.functional.pad(ids, (0, self.length - len(ids))), "attention_mask": mask}


def _tokenizer(given: Any) -> Callable[..., Any]:
    if callable(given):
        return given
    if not isinstance(given, (str, Path)):
        raise BadInput("text needs a tokenizer; give tokenizer= a vocab.txt, a folder, a name, or a function")
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise BadInput("transformers is not installed; install the extra: pip install 'bise[text]'") from error
    try:
        if Path(given).suffix == ".txt":
            if not Path(given).is_file():
                raise BadInput(f"tokenizer={str(given)!r} does not exist; name a vocab.txt, a folder or a model")
            from transformers import BertTokenizer

            return BertTokenizer(str(given))
        return transformers.AutoTokenizer.from_pretrained(str(given))
    except BadInput:
        raise
    except Exception as error:  # transformers raises anything where a file is missing or broken
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise BadInput(f"tokenizer={str(given)!r} can't be loaded ({reason})") from error
