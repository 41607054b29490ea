"""torch.compile for networks with gates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


@contextmanager
def compiled(network: nn.Module) -> Iterator[Any]:
    """The network as torch.compile makes it, while open.

    torch.compile takes two networks of one class for the same where only their hooks differ, and so would train a
    subnetwork by what it had compiled for the dense model, without its gates. So it forgets what was compiled before,
    and afterwards this network. What others have compiled is compiled anew at their next call.
    """
    torch.compiler.reset()
    try:
        yield torch.compile(network)
    finally:
        torch.compiler.reset()
