"""One update after another over an order of samples: eagerly, or on a GPU as a recorded graph without the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from bise.engine.inputs import Inputs
from bise.engine.precision import fast_convolutions

Update = Callable[[Any, Tensor], Tensor]
"""(x, indices of its samples) -> the figures [width] of this step, everything on the device."""
WARM_UP = 3


class Steps:
    """Runs `update` over the batches of an order and gives back its figures [steps, width].

    On a GPU, with data that lie there, a step is recorded once as a CUDA graph, gathering and augmenting included,
    and replayed: the host only says go. `state` lists the tensors that `update` changes, so that warming up before
    the recording leaves no trace.
    """

    def __init__(
        self,
        update: Update,
        inputs: Inputs,
        batch_size: int,
        *,
        state: Callable[[], Iterable[Tensor]],
        graphs: bool = True,
    ) -> None:
        self.update, self.inputs, self.batch_size, self.state = update, inputs, batch_size, state
        self.recordable = graphs and inputs.device.type == "cuda" and inputs.on_device
        self.graph: torch.cuda.CUDAGraph | None = None

    def run(self, order: Tensor, augment: torch.Generator | None = None) -> Tensor:
        """One epoch: every batch of `order`, augmented by draws from `augment` where it is given."""
        full = len(order) // self.batch_size
        if not self.recordable or full == 0:
            return self._eager(order, augment)
        rest = len(order) - full * self.batch_size
        if rest == 1:  # it would join the batch before, since BatchNorm can't learn from one
            full, rest = full - 1, rest + self.batch_size
        draws = self.inputs.draws(len(order), augment)
        cut = full * self.batch_size
        figures = [self._replay(order[:cut], None if draws is None else draws[:cut])] if full else []
        if rest:
            index = order[cut:].to(self.inputs.device)
            x = self.inputs.gather(index, None if draws is None else draws[cut:])
            figures.append(self.update(x, index).unsqueeze(0))
        return torch.cat(figures)

    def _eager(self, order: Tensor, augment: torch.Generator | None) -> Tensor:
        device = self.inputs.device
        batches = self.inputs.batches(order, self.batch_size, augment)
        return torch.stack([self.update(x, index.to(device)) for x, index in batches])

    def _replay(self, order: Tensor, draws: Tensor | None) -> Tensor:
        """The full batches of `order` by the recorded graph, which reads them row by row from its own buffers."""
        rows = order.view(-1, self.batch_size)
        if self.graph is None or len(rows) > len(self.rows):
            self._record(rows, draws)
        assert self.graph is not None
        self.rows[: len(rows)].copy_(rows, non_blocking=True)
        if draws is not None:
            self.draws[: len(rows)].copy_(draws.view(len(rows), self.batch_size, -1))
        self.position.zero_()
        for _ in range(len(rows)):
            self.graph.replay()
        return self.figures[: len(rows)].clone()

    def _record(self, rows: Tensor, draws: Tensor | None) -> None:
        device = self.inputs.device
        self.rows = rows.to(device)
        self.draws = torch.empty(0) if draws is None else draws.view(len(rows), self.batch_size, -1).clone()
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        kept = [(tensor, tensor.detach().clone()) for tensor in self.state()]
        random = torch.cuda.get_rng_state(device)
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream), fast_convolutions(device):
            for _ in range(WARM_UP):
                figures = self.update(*self._batch(draws is not None))
                self.figures = figures.new_empty(len(rows), len(figures))
        torch.cuda.current_stream(device).wait_stream(stream)
        torch.cuda.set_rng_state(random, device)
        self._restore(kept)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph), fast_convolutions(device):
            figures = self.update(*self._batch(draws is not None))
            self.figures.index_copy_(0, self.position, figures.unsqueeze(0))
            self.position.add_(1)

    def _batch(self, augmented: bool) -> tuple[Any, Tensor]:
        index = self.rows.index_select(0, self.position).squeeze(0)
        draws = self.draws.index_select(0, self.position).squeeze(0) if augmented else None
        return self.inputs.gather(index, draws), index

    @torch.no_grad()
    def _restore(self, kept: list[tuple[Tensor, Tensor]]) -> None:
        """Put back what the warm-up changed; what it made anew, an optimizer's state, starts at zero."""
        for tensor, value in kept:
            tensor.copy_(value)
        known = {id(tensor) for tensor, _ in kept}
        for tensor in self.state():
            if id(tensor) not in known:
                tensor.zero_()
