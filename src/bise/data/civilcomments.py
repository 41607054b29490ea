"""CivilComments (Borkan et al. 2019, WILDS): toxic or not, and whether an identity is mentioned; tokens on access."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from bise.data.arguments import SPLITS, check_choice
from bise.data.contract import Labelled
from bise.data.idx import data_root
from bise.data.strings import Strings
from bise.errors import BadInput

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
    """WILDS' official train, val or test split; x is {input_ids, attention_mask} [220] each, padded.

    y is toxicity ≥ 0.5, and b whether any of the eight identities has ≥ 0.5 (the coarse groups); toxic comments
    that mention one and other comments that mention none are aligned. `vocabulary` is a WordPiece vocab.txt, or
    a folder that holds one; by default bert/ beside the data. The split is official, so `seed` changes nothing.
    """
    check_choice("split", split, SPLITS)
    check_choice("protocol", protocol, ("paper",))
    if not isinstance(length, int) or length < 2:
        raise BadInput(f"length={length} leaves no room for a word; give 3 or more")
    base = data_root(root)
    texts, y, b = read_comments(base / "civilcomments" / "all_data_with_identities.csv", split)
    return Labelled(
        Comments(texts, Path(vocabulary) if vocabulary is not None else base / "bert", length),
        y=y,
        b=b,
        classes=2,
        bias_classes=2,
        aligned=[0, 1],
    ).named("toxicity", ["identity"], ("not toxic", "toxic"), [("none mentioned", "mentioned")])


class Comments(Dataset[dict[str, Tensor]]):
    """Texts in one block of bytes, each cut into word pieces when it is asked for."""

    def __init__(self, texts: Sequence[str], vocabulary: Path, length: int) -> None:
        self.texts = Strings(texts)
        self.tokenizer = tokenizer(vocabulary, length)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        found = self.tokenizer.encode(self.texts[index])
        return {"input_ids": torch.tensor(found.ids), "attention_mask": torch.tensor(found.attention_mask)}


def tokenizer(vocabulary: Path, length: int) -> Any:
    """BERT's uncased WordPiece tokenizer over a vocab.txt, padding and cutting to `length`."""
    try:
        from tokenizers import BertWordPieceTokenizer
    except ModuleNotFoundError as error:
        raise BadInput("tokenizers is not installed; install the extra: pip install 'bise[text]'") from error
    path = vocabulary / "vocab.txt" if vocabulary.is_dir() else vocabulary
    try:
        words = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} can't be read ({error}); give the vocab.txt of bert-base-uncased") from error
    numbers = {word: number for number, word in enumerate(words)}
    missing = [word for word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]") if word not in numbers]
    if missing:
        raise BadInput(f"{path} has no {missing[0]}; give the vocab.txt of bert-base-uncased")
    made = BertWordPieceTokenizer(numbers, lowercase=True)
    made.enable_truncation(length)
    made.enable_padding(length=length, pad_id=numbers["[PAD]"], pad_token="[PAD]")
    return made


def read_comments(path: Path, split: str) -> tuple[list[str], Tensor, Tensor]:
    """(texts, y [N], b [N]) of one split of WILDS' csv."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise BadInput("pandas is not installed; install the extra: pip install 'bise[data]'") from error
    if not path.is_file():
        raise BadInput(f"{path} does not exist; put the csv of WILDS' CivilComments there")
    columns = ["comment_text", "split", "toxicity", *IDENTITIES]
    try:
        # a comment may read "null", which is a word there; only in the columns of numbers a blank is a gap
        table = pandas.read_csv(path, usecols=columns, dtype=str, keep_default_na=False, encoding="utf-8")
    except ValueError as error:  # columns, quoting, encoding: pandas raises all of them as kinds of it
        raise BadInput(f"{path} is not as WILDS ships it ({str(error).strip().splitlines()[-1]})") from error
    known = table["split"].isin(SPLITS)
    if not known.all():
        bad = table["split"][~known].iloc[0]
        raise BadInput(f"{path} has the split {str(bad)[:20]!r}; it takes {', '.join(SPLITS)}")
    table = table[table["split"] == split]
    if len(table) == 0:
        raise BadInput(f"{path} has no comment in the split {split!r}; fetch it again")
    toxic = _at_least_half(table["toxicity"], path, blank=False)
    mentioned = torch.zeros_like(toxic)
    for identity in IDENTITIES:
        mentioned |= _at_least_half(table[identity], path, blank=True)
    return list(table["comment_text"]), toxic.long(), mentioned.long()


def _at_least_half(column: Any, path: Path, *, blank: bool) -> Tensor:
    """[N] bool; where `blank`, an empty entry counts as below one half, as in WILDS' own reader."""
    import pandas

    numbers = pandas.to_numeric(column.where(column != "", "0") if blank else column, errors="coerce")
    values = torch.tensor(numbers.to_numpy(dtype=float, na_value=float("nan")))
    wrong = ~((values >= 0) & (values <= 1))
    if wrong.any():
        bad = column.iloc[int(wrong.nonzero()[0, 0])]
        raise BadInput(f"{path}: {column.name} holds {str(bad)[:20]!r}; it takes numbers from 0 to 1")
    return values >= 0.5
