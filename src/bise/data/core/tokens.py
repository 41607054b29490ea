"""Sentences as token numbers: cut into pieces once, kept in one block, handed out padded to a few lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from bise.base.errors import BadInput
from bise.data.core.cache import cached, digest
from bise.data.core.strings import Strings

LENGTHS = (8, 16, 32, 64, 128, 256, 512)
"""Lengths that batches are padded to, up to that of the longest text; on a GPU each needs a recording of its own."""
KEPT = 10_000
"""Fewer texts are cut into tokens in less time than it takes to keep the result."""
CHUNK = 8192
"""Sentences that are handed to the tokenizer at once."""


@dataclass(frozen=True, kw_only=True)
class Coder:
    """A tokenizer as the store needs it: `encode` gives the numbers of each text, special tokens included, uncut."""

    encode: Callable[[Sequence[str]], list[list[int]]]
    """Texts -> numbers, at most length + 1 of them where a text is longer than that."""
    cut: Callable[[list[int]], list[int]]
    """Numbers beyond the length -> numbers of that length, ending as every text does."""
    length: int
    pad: int = 0
    unknown: int | None = None
    special: frozenset[int] = frozenset()
    """What every text starts and ends with: says nothing about it."""
    key: str | None = None
    """What tells this tokenizer from others, so that its results can be kept; None where nothing does."""
    file: Callable[[], str] | None = None
    """The tokenizer in the JSON of the library `tokenizers`, cutting and padding; None where it has no such form."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Sentences that lost something, of `texts`."""

    texts: int
    empty: int
    """Without any word."""
    cut: int
    """Longer than the length they are cut to."""
    unknown: int
    """With words, but none that the vocabulary has."""

    length: int

    def lines(self) -> list[str]:
        """What there is to say about them."""
        return [
            f"{count:,} text{'s' * (count != 1)} {what}"
            for count, what in (
                (self.empty, "without a word"),
                (self.cut, f"cut off at {self.length} tokens"),
                (self.unknown, "without a word of the vocabulary"),
            )
            if count
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Tokens:
    """The numbers of N texts one after another, on any device, with what it takes to hand them out in batches."""

    flat: Tensor
    """int32 [T]"""
    starts: Tensor
    """int64 [N], into `flat`"""
    lengths: Tensor
    """int64 [N]"""
    host_lengths: Tensor
    """The same on the CPU: how long a batch has to be is known without asking the device."""
    pad: int

    @staticmethod
    def of(flat: Tensor, lengths: Tensor, *, pad: int = 0) -> Tokens:
        lengths = lengths.long()
        return Tokens(flat=flat, starts=lengths.cumsum(0) - lengths, lengths=lengths, host_lengths=lengths, pad=pad)

    def __len__(self) -> int:
        return len(self.host_lengths)

    @property
    def device(self) -> torch.device:
        return self.flat.device

    @property
    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in (self.flat, self.starts, self.lengths))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The lengths that batches of these texts are padded to."""
        longest = int(self.host_lengths.max())
        return (*(size for size in LENGTHS if size < longest), longest)

    def to(self, device: torch.device) -> Tokens:
        moved = {name: getattr(self, name).to(device) for name in ("flat", "starts", "lengths")}
        return replace(self, **moved)

    def take(self, index: Tensor) -> Tokens:
        """The texts `index` alone, in that order."""
        kept = self.host_lengths[index]
        flat = torch.cat([self.flat[start : start + n] for start, n in zip(*self._spans(index), strict=True)])
        return Tokens.of(flat, kept, pad=self.pad)

    def _spans(self, index: Tensor) -> tuple[list[int], list[int]]:
        return self.starts.cpu()[index].tolist(), self.host_lengths[index].tolist()

    def padded(self, rows: Tensor) -> list[int]:
        """The length that each batch of `rows` [batches, n], on the CPU, is padded to."""
        longest = self.host_lengths[rows].amax(1)
        return [self.sizes[i] for i in torch.searchsorted(torch.tensor(self.sizes), longest).tolist()]

    def gather(self, index: Tensor, length: int) -> dict[str, Tensor]:
        """{input_ids, attention_mask, …}, int64 [n, length] each, where the store lies; the host isn't asked."""
        columns = torch.arange(length, device=self.device)
        inside = columns < self.lengths[index].unsqueeze(1)
        at = (self.starts[index].unsqueeze(1) + columns).clamp_max(len(self.flat) - 1)
        ids = self.flat[at].long().masked_fill(~inside, self.pad)
        return {"input_ids": ids, "attention_mask": inside.long()}


class Sentences(Dataset[dict[str, Tensor]]):
    """Texts that are cut into tokens when the first of them is asked for; each alone is padded to the full length."""

    def __init__(self, texts: Strings | Sequence[str], coder: Coder) -> None:
        self.texts = texts if isinstance(texts, Strings) else Strings(map(_sound, texts))
        self.coder = coder

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"text {index} of {len(self)}")
        x = self.tokens.gather(torch.tensor([index % len(self)]), self.coder.length)
        return {name: value[0] for name, value in x.items()}

    @cached_property
    def tokens(self) -> Tokens:
        return self._cut[0]

    @property
    def counts(self) -> Counts:
        return self._cut[1]

    @cached_property
    def _cut(self) -> tuple[Tokens, Counts]:
        keep = self.coder.key is not None and len(self) >= KEPT
        packed = cached("tokens", self._recipe(), self._packed) if keep else self._packed()
        head, lengths, flat = packed.split([3, len(self), len(packed) - len(self) - 3])
        empty, cut, unknown = head.tolist()
        tokens = Tokens.of(flat, lengths, pad=self.coder.pad)
        return tokens, Counts(texts=len(self), empty=empty, cut=cut, unknown=unknown, length=self.coder.length)

    def _recipe(self) -> dict[str, Any]:
        text = torch.frombuffer(self.texts.buffer, dtype=torch.uint8) if self.texts.buffer else torch.zeros(0)
        return {
            "text": bytes(digest(text.to(torch.uint8)).tolist()).hex(),
            "ends": bytes(digest(torch.tensor(self.texts.ends)).tolist()).hex(),
            "tokenizer": self.coder.key,
            "length": self.coder.length,
        }

    def _packed(self) -> Tensor:
        """int32: the three counts, the lengths [N], the numbers [T]; one tensor, as the cache keeps it."""
        coder = self.coder
        silent = coder.special | ({coder.unknown} if coder.unknown is not None else frozenset())
        lengths: list[int] = []
        flat: list[Tensor] = []
        empty = cut = unknown = 0
        for start in range(0, len(self), CHUNK):
            rows: list[int] = []
            chunk = [_sound(self.texts[i]) for i in range(start, min(start + CHUNK, len(self)))]
            for numbers in coder.encode(chunk):
                if len(numbers) > coder.length:
                    numbers, cut = coder.cut(numbers), cut + 1
                words = [n for n in numbers if n not in coder.special]
                empty += not words
                unknown += bool(words) and all(n in silent for n in words)
                numbers = numbers or [coder.pad]  # attention over nothing would be 0 / 0
                rows += numbers
                lengths.append(len(numbers))
            flat.append(torch.tensor(rows, dtype=torch.int32))
        head = torch.tensor([empty, cut, unknown, *lengths], dtype=torch.int32)
        return torch.cat([head, *flat])


def _sound(text: str) -> str:
    """A text without lone surrogates, which stand for bytes that are no UTF-8 and which tokenizers refuse."""
    return text.encode("utf-8", "replace").decode("utf-8")


def sentences_of(dataset: Any) -> Sentences | None:
    """The sentences behind a labelled set, or None where its inputs are something else."""
    inner = getattr(dataset, "dataset", dataset)
    return inner if isinstance(inner, Sentences) else None


def check_length(length: Any) -> None:
    if isinstance(length, bool) or not isinstance(length, int) or length < 3:
        raise BadInput(f"length={length} leaves no room for a word; give 3 or more")
