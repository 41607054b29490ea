"""CivilComments (Borkan et al. 2019, WILDS): toxic or not, and whether an identity is mentioned."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from bise.base.checking import check_choice
from bise.base.errors import BadInput
from bise.data.core.arguments import SPLITS
from bise.data.core.coders import word_pieces
from bise.data.core.contract import Labelled
from bise.data.core.naming import yes_or_no
from bise.data.core.numbering import NUMBER, split_numbers
from bise.data.core.strings import Strings
from bise.data.core.tokens import Sentences
from bise.data.own.columns import read_columns
from bise.data.sets.idx import data_root

IDENTITIES = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")
LENGTH = 220


def civilcomments(
    split: str,
    *,
    protocol: str = "paper",
    seed: int = 0,
    length: int = LENGTH,
    vocabulary: str | Path | None = None,
    root: str | Path | None = None,
) -> Labelled:
    """WILDS' official train, val or test split; x is {input_ids, attention_mask} [220] each;
    batches are padded to what they need.

    y is toxicity ≥ 0.5, and b whether any of the eight identities has ≥ 0.5 (the coarse groups); toxic comments
    that mention one and other comments that mention none are aligned. `vocabulary` is a WordPiece vocab.txt, or
    a folder that holds one; by default bert/ beside the data. The split is official, so `seed` changes nothing.
    `protocol="authors"` leaves out comments without a word, as the authors' code does.
    """
    check_choice("split", split, SPLITS)
    check_choice("protocol", protocol, ("paper", "authors"))
    base = data_root(root)
    path = base / "civilcomments" / "all_data_with_identities.csv"
    texts, y, b = read_comments(path, split)
    if protocol == "authors":
        said = [number for number, text in enumerate(texts) if text.strip()]
        if not said:
            raise BadInput(f"{path} has no comment with a word in the split {split!r}; fetch it again")
        texts, y, b = texts.take(said), y[said], b[said]
    return Labelled(
        Sentences(texts, word_pieces(Path(vocabulary) if vocabulary is not None else base / "bert", length)),
        y=y,
        b=b,
        classes=2,
        bias_classes=2,
        aligned=[0, 1],
        names=yes_or_no("toxic", "identity"),
    )


def read_comments(path: Path, split: str) -> tuple[Strings, Tensor, Tensor]:
    """(texts, y [N], b [N]) of one split of WILDS' csv."""
    if not path.is_file():
        raise BadInput(f"{path} does not exist; put the csv of WILDS' CivilComments there")
    columns = read_columns(path, ["comment_text", "split", "toxicity", *IDENTITIES], separator=",").values
    parts = split_numbers(columns["split"], f"{path}, column 'split'")
    rows = (parts == SPLITS.index(split)).nonzero().flatten().tolist()
    if not rows:
        raise BadInput(f"{path} has no comment in the split {split!r}; fetch it again")

    def half(name: str, blank: str) -> Tensor:
        return _at_least_half(columns[name].take(rows), blank, f"{path}: {name}")

    toxic = half("toxicity", blank="")
    # an empty identity counts as not mentioned, as in WILDS' own reader
    mentioned = torch.stack([half(name, blank="0") for name in IDENTITIES]).any(0)
    return columns["comment_text"].take(rows), toxic.long(), mentioned.long()


def _at_least_half(column: Strings, blank: str, what: str) -> Tensor:
    """[N] bool; an empty cell is read as `blank`."""
    values = [text.strip() or blank for text in column]
    bad = next((text for text in values if not NUMBER.fullmatch(text) or not 0 <= float(text) <= 1), None)
    if bad is not None:
        raise BadInput(f"{what} holds {bad[:20]!r}; it takes numbers from 0 to 1")
    return torch.tensor([float(text) >= 0.5 for text in values])
