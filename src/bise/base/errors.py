"""What goes wrong because of what was handed in, and what can't be written."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


class BadInput(ValueError):
    """Input that can't be worked with: one sentence that names the thing, the value and the remedy.

    The command line turns it into that sentence and exit code 2.
    """


class NoSplit(BadInput):
    """A split that a data set doesn't have; where it isn't needed, one goes on without."""


@contextmanager
def named(source: object) -> Iterator[None]:
    """What is refused while open is said to be of this split or file, since others may be at hand."""
    try:
        yield
    except BadInput as error:
        if type(error) is not BadInput:
            raise
        raise BadInput(f"{source}: {error}") from error


class NonFinite(BadInput):
    """A loss or a gradient that is no number, with the training samples of its batch; or such logits, with theirs.

    `epoch` and `step` are those of the loss, `split` the one that the samples are of.
    """

    def __init__(
        self,
        sentence: str,
        *,
        samples: Sequence[int],
        epoch: int | None = None,
        step: int | None = None,
        split: str = "train",
    ) -> None:
        super().__init__(sentence)
        self.epoch, self.step, self.samples, self.split = epoch, step, list(samples), split


class Unwritable(OSError):
    """A file that can't be written in the middle of a run: the disk is full, or became read-only.

    The command line turns it into a sentence and exit code 1.
    """

    def __str__(self) -> str:
        return f"{self.filename} can't be written ({self.strerror})"


class Lost(RuntimeError):
    """Another process that this one works with has ended; the run can go on from its checkpoint."""


class BiseWarning(UserWarning):
    """Something that works but will probably not do what was meant."""


_listeners: list[Callable[[str], None]] = []


def caution(sentence: str, *, stacklevel: int = 2) -> None:
    """Give a BiseWarning; a command says it even where the user's own module has silenced Python's warnings."""
    if _listeners:
        _listeners[-1](sentence)
    else:
        warnings.warn(sentence, BiseWarning, stacklevel=stacklevel + 1)


@contextmanager
def cautions_go_to(listener: Callable[[str], None]) -> Iterator[None]:
    """While open, `listener` takes the sentences of all cautions."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
