"""Tokenizers as the token store takes them: a BERT vocabulary, one of transformers, or a function of one's own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from bise.base.errors import BadInput
from bise.base.files import write_bytes
from bise.data.core.tokens import Coder, check_length
from bise.network.architectures.text import offline, transformers

_FRAME = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def word_pieces(vocabulary: Path, length: int) -> Coder:
    """BERT's uncased WordPiece tokenizer over a vocab.txt, or a folder that holds one."""
    check_length(length)
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
    missing = [word for word in _FRAME if word not in numbers]
    if missing:
        raise BadInput(f"{path} has no {missing[0]}; give the vocab.txt of bert-base-uncased")
    made = BertWordPieceTokenizer(numbers, lowercase=True)
    made.enable_truncation(length + 1)
    pad, unknown, start, end = (numbers[word] for word in _FRAME)
    return Coder(
        encode=lambda texts: [found.ids for found in made.encode_batch(list(texts))],
        cut=lambda found: [*found[: length - 1], end],
        length=length,
        pad=pad,
        unknown=unknown,
        special=frozenset({pad, start, end}),
        key=_hash("word pieces, uncased", *words),
        file=lambda: _file(made.to_str(), length, pad, "[PAD]"),
    )


def write_tokenizer(path: Path, coder: Coder) -> None:
    """A file for `tokenizers.Tokenizer.from_file`, which cuts texts and pads batches as the model expects it."""
    if coder.file is None:
        raise BadInput(
            f"{path} can't be written: this tokenizer has no form for a file; keep your own beside the model"
        )
    write_bytes(path, coder.file().encode())


def _file(made: str, length: int, pad: int | None, word: str | None, side: str = "right") -> str:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(made)
    tokenizer.enable_truncation(length, direction=side)
    if pad is not None:
        tokenizer.enable_padding(pad_id=pad, pad_token=word)
    return str(tokenizer.to_str(pretty=True))


def coder_of(given: Any, length: int) -> Coder:
    """From a tokenizer of transformers, what AutoTokenizer knows, a vocab.txt, or a function from text to numbers."""
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise BadInput(f"length={length} is no number of tokens; give at least 1")
    made = tokenizer_of(given)
    return _of_transformers(made, length) if hasattr(made, "pad_token_id") else _of_function(made, length)


def _of_function(made: Callable[[str], Any], length: int) -> Coder:
    def encode(texts: Sequence[str]) -> list[list[int]]:
        return [torch.as_tensor(made(text), dtype=torch.long).flatten().tolist() for text in texts]

    return Coder(encode=encode, cut=lambda found: found[:length], length=length)


def _of_transformers(made: Any, length: int) -> Coder:
    special = frozenset(made.all_special_ids) - {made.unk_token_id, made.mask_token_id}
    side = getattr(made, "truncation_side", "right")

    def encode(texts: Sequence[str]) -> list[list[int]]:
        found = made(list(texts), truncation=True, max_length=length + 1)
        if any(any(row) for row in found.get("token_type_ids", ())):
            raise BadInput(f"{type(made).__name__} numbers the parts of a text; bring a data set of your own for it")
        return [list(row) for row in found["input_ids"]]

    def cut(found: list[int]) -> list[int]:
        """Without the word that is too many, at the side where this tokenizer cuts."""
        head = next((i for i, n in enumerate(found) if n not in special), 0)
        tail = next((i for i, n in enumerate(reversed(found)) if n not in special), 0)
        at = head if side == "left" else len(found) - tail - 1
        return [*found[:at], *found[at + 1 :]][:length]

    backend = getattr(made, "backend_tokenizer", None)
    return Coder(
        encode=encode,
        cut=cut,
        length=length,
        pad=made.pad_token_id if made.pad_token_id is not None else 0,
        unknown=made.unk_token_id,
        special=special,
        key=None if backend is None else _hash(type(made).__name__, _uncut(backend.to_str()), side),
        file=None
        if backend is None
        else lambda: _file(backend.to_str(), length, made.pad_token_id, made.pad_token, side),
    )


def _uncut(made: str) -> str:
    """A tokenizer's JSON without how it cuts and pads, which every use of it may set."""
    return json.dumps({**json.loads(made), "truncation": None, "padding": None}, sort_keys=True)


def tokenizer_of(given: Any, *, local: bool = False) -> Any:
    """What a tokenizer is given as, loaded; where it is to be `local`, no hub is asked for a name."""
    if callable(given):
        return given
    if not isinstance(given, (str, Path)):
        raise BadInput("text needs a tokenizer; give tokenizer= a vocab.txt, a folder, a name, or a function")
    library: Any = transformers()
    try:
        if Path(given).suffix == ".txt":
            if not Path(given).is_file():
                raise BadInput(f"tokenizer={str(given)!r} does not exist; name a vocab.txt, a folder or a model")
            return library.BertTokenizer(str(given))
        with offline() if local else nullcontext():
            return library.AutoTokenizer.from_pretrained(str(given), trust_remote_code=False, local_files_only=local)
    except BadInput:
        raise
    except Exception as error:  # transformers raises anything where a file is missing or broken
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        where = "; a run's tokenizer is looked for on this machine only" if local else ""
        raise BadInput(f"tokenizer={str(given)!r} can't be loaded ({reason}){where}") from error


def _hash(*parts: str) -> str:
    """SHA-256 of some texts, in order."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
