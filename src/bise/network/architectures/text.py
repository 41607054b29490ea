"""transformers, imported with the care that it needs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

from bise.base.errors import BadInput
from bise.network.architectures.vision import torchvision


def transformers() -> ModuleType:
    """Import transformers; it imports torchvision where that is installed, which may need help beforehand."""
    with suppress(BadInput):  # text needs no torchvision
        torchvision()
    try:
        import transformers as module
    except ModuleNotFoundError as error:
        raise BadInput("transformers is not installed; install the extra: pip install 'bise[text]'") from error
    return module


@contextmanager
def quiet() -> Iterator[None]:
    """While open, neither bars of transformers nor the attempts of the hub's library are shown."""
    log = logging.getLogger("huggingface_hub")
    library: Any = transformers()
    bars = library.utils.logging
    level, shown = log.level, bars.is_progress_bar_enabled()
    log.setLevel(logging.ERROR)
    bars.disable_progress_bar()
    try:
        yield
    finally:
        log.setLevel(level)
        if shown:
            bars.enable_progress_bar()


@contextmanager
def offline() -> Iterator[None]:
    """While open, no hub is asked for anything: `local_files_only` alone still sends it word of who is at work."""
    from huggingface_hub import constants

    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
