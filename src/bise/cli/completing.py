"""What a shell completes for an option's value, from words that are known before torch is imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence

DEVICES = ("auto", "cpu", "cuda")
SPLITS = ("train", "val", "test")


def one_of(words: Sequence[str]) -> Callable[[str], list[str]]:
    """Completes a value to those of these words that begin as it does."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete
