"""A network with what its objective needs beside it: heads, other networks, tables; all of it is trained as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput
from bise.engine.precision import autocast
from bise.engine.processes import whole_batch
from bise.network.outputs import call, class_logits, device_of
from bise.network.subnetwork import pooled


class Draws(Protocol):
    """Something that draws the order of an epoch."""

    def draw(self, steps: int | None, batch: int, generator: torch.Generator) -> Tensor: ...


class Learner(nn.Module):
    """Runs as `network` does, and says by `loss` what a step minimises.

    Whatever learns beside the network is a submodule: the same optimizer trains it. What a step changes otherwise, such
    as a running mean, is a buffer: checkpoints and recorded graphs know it then. Where a gradient isn't to go, `loss`
    detaches.
    """

    precision = "fp32"
    """Of forward passes; the training sets it."""

    def __init__(self, network: nn.Module, *, bottleneck: str | None = None) -> None:
        super().__init__()
        self.network = network
        self.bottleneck = bottleneck

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.network(*args, **kwargs)

    def loss(self, x: Any, index: Tensor) -> Tensor:
        """What one step minimises, for the samples `index` [n] of the training set; each of several processes asks."""
        raise NotImplementedError

    def begin(self, epoch: int, epochs: int) -> None:
        """Told before each epoch, counted from 1; what follows from that goes into buffers."""

    def logits(self, x: Any, network: nn.Module | None = None) -> Tensor:
        """[n, C] in fp32, of the network or of another one."""
        (found,) = self.whole(x, lambda part: [class_logits(call(network or self.network, part))])
        return found

    def both(
        self, x: Any, network: nn.Module | None = None, run: Callable[..., Any] | None = None
    ) -> tuple[Tensor, Tensor]:
        """(logits [n, C], bottleneck z [n, d]) in fp32, of the network or of another one, or of what `run` does."""
        network = self.network if network is None else network
        if self.bottleneck is None:
            raise BadInput("this learner has no bottleneck; name it")
        caught: list[Tensor] = []

        def note(_: nn.Module, args: tuple[Any, ...]) -> None:
            caught[:] = [pooled(args[0])]

        def forward(part: Any) -> list[Tensor]:
            logits = class_logits(call(run or network, part))  # type: ignore[arg-type]
            return [logits, *caught]

        handle = network.get_submodule(self.bottleneck).register_forward_pre_hook(note)
        try:
            logits, z = self.whole(x, forward)
        finally:
            handle.remove()
        return logits, z

    def whole(self, x: Any, forward: Callable[[Any], Sequence[Tensor]]) -> list[Tensor]:
        """What `forward` gives for the batch, in fp32; several processes share its rows, and each gets all of them."""

        def run(part: Any) -> list[Tensor]:
            with autocast(self.precision, device_of(self.network)):
                found = forward(part)
            return [tensor.float() for tensor in found]

        return list(whole_batch(run, x))
