"""transformers, imported with the care that it needs."""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType

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
