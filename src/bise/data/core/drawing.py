"""Samples of a data set that is code, asked for so that nobody's random numbers move."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from bise.data.core.content import GENERATORS, Content, attributes, digest

MOST_SAMPLES = 1000
MOST_BYTES = 64 << 20
FEWEST = 16
"""Samples that are asked for at least, however large."""
DEPTH = 3
"""How deep in a data set its own generators are looked for: it may wrap one, which has a transform."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A hash of `count` samples, or None where the same sample, asked for twice, isn't the same."""

    sha256: bytes | None
    count: int


def drawn(dataset: Any, ask: Callable[[int], Any]) -> Drawn:
    """Ask for samples evenly over all of `dataset`, each twice, after the same seeds.

    What is drawn from the global random numbers of torch, numpy and Python comes out the same by these seeds, so that
    augmented samples have a fingerprint too.
    """
    count = len(dataset)
    with _undisturbed(dataset):
        size = _hashed(ask, 0)[1] if count else 0
        most = max(FEWEST, min(MOST_SAMPLES, MOST_BYTES // max(1, size)))
        chosen = np.linspace(0, count - 1, min(most, count)).round().astype(int).tolist()
        one, other = (digest("samples", *(_hashed(ask, index)[0] for index in chosen)) for _ in range(2))
    return Drawn(sha256=one if one == other else None, count=len(chosen))


def _hashed(ask: Callable[[int], Any], index: int) -> tuple[bytes, int]:
    """A sample's hash and its bytes; of one that can't be read the error's kind, and whoever needs it says so."""
    torch.default_generator.manual_seed(0)  # not torch.manual_seed, which reaches GPUs that aren't in use yet
    np.random.seed(0)  # noqa: NPY002 - what the user's code may draw from
    random.seed(0)
    content = Content()
    try:
        return content(ask(index)), content.bytes
    except Exception as error:  # a user's data set may raise anything
        return digest("unreadable", type(error).__name__.encode()), 0


@contextmanager
def _undisturbed(dataset: Any) -> Iterator[None]:
    """Random numbers go on afterwards as if nothing had been drawn inside, and no warning is heard."""
    gpus = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    with ExitStack() as stack:
        for source in (random, np.random, torch.default_generator, *gpus, *_generators(dataset, DEPTH)):
            stack.callback(_restoring(source))
        stack.enter_context(torch.no_grad())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # it will be heard when the sample is needed
        yield


def _generators(value: Any, depth: int) -> Iterator[Any]:
    """The random generators that an object holds."""
    for part in attributes(value).values():
        if isinstance(part, GENERATORS):
            yield part
        elif depth > 1 and not isinstance(part, (type, torch.Tensor)):
            yield from _generators(part, depth - 1)


def _restoring(source: Any) -> Callable[[], None]:
    """Puts a source of random numbers back to where it is now."""
    if hasattr(source, "getstate"):
        return partial(source.setstate, source.getstate())
    if hasattr(source, "get_state"):
        return partial(source.set_state, source.get_state())
    bits = getattr(source, "bit_generator", source)
    return partial(setattr, bits, "state", bits.state)
