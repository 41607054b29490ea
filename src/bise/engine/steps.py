"""One update after another over an order of samples: eagerly, or on a GPU as a recorded graph without the host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bise.base.errors import BadInput, NonFinite, caution
from bise.engine import processes
from bise.engine.inputs import Inputs, in_batches
from bise.engine.precision import repeatable_convolutions

Update = Callable[[Any, Tensor], Tensor]
"""(x, indices of its samples) -> the figures [width] of this step, everything on the device."""
After = Callable[[list[Tensor], int], None]
"""(figures of the steps so far, how many steps are left): told after each step that runs by itself."""
WARM_UP = 3
RECORDING = threading.Lock()
"""Held while a graph is recorded: no other thread's steps may ask for the GPU's memory then."""


@contextmanager
def explained(batch_size: int) -> Iterator[None]:
    """While open, what torch says against a step, and its caller can change, is said in a sentence."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).partition(". ")[0].strip()
        raise BadInput(f"the device ran out of memory ({reason}); lower batch_size (now {batch_size})") from error
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise BadInput(f"BatchNorm can't learn from one sample; raise batch_size (now {batch_size})") from error
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
        raise BadInput(
            "no gradient comes from the model's logits: its forward computes them under no_grad, or detaches them;"
            " leave that out of it"
        ) from error


def check_figures(figures: Tensor, order: Tensor, batch_size: int, *, epoch: int, first: int = 0, advice: str) -> None:
    """Refuse losses and gradients that are no numbers; `figures` [n, width] are those of steps from `first` on.

    A step's figures start with the loss and end with the gradient's size.
    """
    bad = ~figures.isfinite().all(1)
    if not bad.any():
        return
    row = int(bad.nonzero()[0, 0])
    step = first + row
    what, value = ("gradient", -1) if figures[row, :-1].isfinite().all() else ("loss", 0)
    raise NonFinite(
        f"the {what} became non-finite at epoch {epoch}, step {step + 1} ({float(figures[row, value])}); {advice}",
        epoch=epoch,
        step=step + 1,
        samples=in_batches(order, batch_size)[step].tolist(),
    )


class _NotRecordable(Exception):
    """A step that can't be a graph; nothing of it has been done."""


class Steps:
    """Runs `update` over the batches of an order and gives back its figures [steps, width].

    On a GPU, with data that lie there, a step is recorded once as a CUDA graph, gathering and augmenting included,
    and replayed: the host only says go. Sentences have one graph for each length that batches are padded to; which
    one is next, the order tells. `state` lists the tensors that `update` changes, so that warming up before
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
        shared: bool = True,
    ) -> None:
        self.update, self.inputs, self.batch_size, self.state = update, inputs, batch_size, state
        self.shared = shared and processes.count() > 1
        """Whether several processes share the rows of each batch."""
        self.recordable = graphs and inputs.device.type == "cuda" and inputs.on_device and processes.count() == 1
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        """{length that batches are padded to, or 0: the recorded step}; they share rows, draws, position, figures."""
        self.rows = torch.empty(0)
        self.figures: Tensor | None = None

    def run(
        self,
        order: Tensor,
        augment: torch.Generator | None = None,
        *,
        done: Tensor | None = None,
        after: After | None = None,
    ) -> Tensor:
        """One epoch: every batch of `order`, augmented by draws from `augment` where it is given.

        `done` are the figures of its first steps, where those were taken before a stop. `after` is told of each
        step, unless steps are recorded: then the host doesn't wait for them.
        """
        with explained(self.batch_size), repeatable_convolutions():
            return self._run(order, augment, done, after)

    def _run(
        self, order: Tensor, augment: torch.Generator | None, done_before: Tensor | None, after: After | None
    ) -> Tensor:
        full = len(order) // self.batch_size
        if not self.recordable or full == 0 or done_before is not None:
            return self._eager(order, augment, done_before, after)
        rest = len(order) - full * self.batch_size
        if rest == 1:  # it would join the batch before, since BatchNorm can't learn from one
            full, rest = full - 1, rest + self.batch_size
        draws = self.inputs.draws(len(order), augment)
        cut = full * self.batch_size
        figures, done = [], 0
        if full:
            try:
                figures, done = [self._replay(order[:cut], None if draws is None else draws[:cut])], cut
            except _NotRecordable as error:
                self.recordable = False
                caution(f"{error}; its steps run unrecorded, which is slower")
        sizes = [self.batch_size] * ((cut - done) // self.batch_size) + ([rest] if rest else [])
        for index, some in zip(*self._cut(order[done:], draws, done, sizes), strict=True):
            (length,) = self.inputs.padded(index[None])
            there = index.to(self.inputs.device)
            figures.append(self.update(self.inputs.gather(there, some, length), there).unsqueeze(0))
        return torch.cat(figures)

    def _cut(
        self, order: Tensor, draws: Tensor | None, start: int, sizes: list[int]
    ) -> tuple[Iterable[Tensor], Iterable[Tensor | None]]:
        """(indices, draws) of batches of such sizes."""
        return order.split(sizes), [None] * len(sizes) if draws is None else draws[start:].split(sizes)

    def _eager(
        self, order: Tensor, augment: torch.Generator | None, done: Tensor | None, after: After | None
    ) -> Tensor:
        device, chunks = self.inputs.device, in_batches(order, self.batch_size)
        draws = self.inputs.draws(len(order), augment)
        figures = [] if done is None else list(done.to(device))
        first = len(figures) * self.batch_size
        left, draws = chunks[len(figures) :], None if draws is None else draws[first:]
        counted = [len(chunk) for chunk in left]
        if self.shared:
            left, counted, draws = _own(left, draws)
        for rows, (x, index) in zip(counted, self.inputs.runs(left, draws), strict=True):
            with processes.idle(not rows):
                figures.append(self.update(x, index[:rows].to(device)))
            if after is not None:
                after(figures, len(chunks) - len(figures))
        return torch.stack(figures)

    def _replay(self, order: Tensor, draws: Tensor | None) -> Tensor:
        """The full batches of `order` by recorded graphs, which read them row by row from their own buffers."""
        rows = order.view(-1, self.batch_size)
        lengths = self.inputs.padded(rows)
        if len(rows) > len(self.rows):
            self._make_room(rows, draws)
        self.rows[: len(rows)].copy_(rows, non_blocking=True)
        if draws is not None:
            self.draws[: len(rows)].copy_(draws.view(len(rows), self.batch_size, -1))
        for length in set(lengths) - self.graphs.keys():
            self.position.fill_(lengths.index(length))  # warm up on a batch that has this length
            with RECORDING:
                self._record(length, draws is not None)
        self.position.zero_()
        for length in lengths:
            self.graphs[length].replay()
        assert self.figures is not None
        return self.figures[: len(rows)].clone()

    def _make_room(self, rows: Tensor, draws: Tensor | None) -> None:
        """Buffers for as many batches; graphs that were recorded on smaller ones are of no use any more."""
        if self.graphs:  # they may still be at work
            torch.cuda.synchronize(self.inputs.device)
        self.graphs = {}
        self.rows = torch.empty_like(rows, device=self.inputs.device)
        self.draws = torch.empty(0) if draws is None else torch.empty_like(draws.view(len(rows), self.batch_size, -1))
        self.position = torch.zeros(1, dtype=torch.long, device=self.inputs.device)
        self.figures = None

    def _record(self, length: int, augmented: bool) -> None:
        device = self.inputs.device
        kept = [(tensor, tensor.detach().clone()) for tensor in self.state()]
        random = torch.cuda.get_rng_state(device)
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                figures = self.update(*self._batch(length, augmented))
        if self.figures is None:
            self.figures = figures.new_empty(len(self.rows), len(figures))
        torch.cuda.current_stream(device).wait_stream(stream)
        torch.cuda.set_rng_state(random, device)
        self._restore(kept)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                figures = self.update(*self._batch(length, augmented))
                self.figures.index_copy_(0, self.position, figures.unsqueeze(0))
                self.position.add_(1)
        except RuntimeError as error:  # a forward that asks the host for something: .item(), torch.tensor(…)
            reason = str(error).splitlines()[0]
            raise _NotRecordable(f"this model can't be recorded as a CUDA graph ({reason})") from error
        self.graphs[length] = graph

    def _batch(self, length: int, augmented: bool) -> tuple[Any, Tensor]:
        index = self.rows.index_select(0, self.position).squeeze(0)
        draws = self.draws.index_select(0, self.position).squeeze(0) if augmented else None
        return self.inputs.gather(index, draws, length), index

    @torch.no_grad()
    def _restore(self, kept: list[tuple[Tensor, Tensor]]) -> None:
        """Put back what the warm-up changed; what it made anew, an optimizer's state, starts at zero."""
        for tensor, value in kept:
            tensor.copy_(value)
        known = {id(tensor) for tensor, _ in kept}
        for tensor in self.state():
            if id(tensor) not in known:
                tensor.zero_()


def _own(chunks: list[Tensor], draws: Tensor | None) -> tuple[list[Tensor], list[int], Tensor | None]:
    """This process's rows of each batch, how many of them count, and their draws.

    Where a batch has fewer rows than there are processes, its first one stands in, and doesn't count: a network may
    not bear a batch of none.
    """
    own, counted, drawn, start = [], [], [], 0
    for chunk in chunks:
        rows = processes.share(len(chunk))
        counted.append(len(chunk[rows]))
        rows = rows if counted[-1] else slice(0, 1)
        own.append(chunk[rows])
        if draws is not None:
            drawn.append(draws[start : start + len(chunk)][rows])
        start += len(chunk)
    return own, counted, torch.cat(drawn) if drawn else None
