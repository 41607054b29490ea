"""Batches of x by index: from memory where the data set holds tensors, streamed through a loader where it doesn't."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bise.data.contract import input_of, stored, tensors_of
from bise.data.tokens import Sentences, Tokens
from bise.errors import BadInput
from bise.models.outputs import tensors_in, to_device


class Inputs:
    """The inputs of a data set on `device`.

    A `TensorDataset` (or a `Labelled` one over it) is deterministic, so it moves to the device whole where it
    takes at most `budget` bytes; so do sentences, as token numbers, whose batches are padded to one of a few lengths.
    Any other data set may augment, so it is asked anew for every batch. A `Labelled` set's transform is done on the
    device, batch by batch, in either case.
    """

    channels_last = False

    def __init__(
        self, dataset: Any, device: torch.device, *, budget: int = 8 << 30, workers: int = 0, checked: bool = False
    ) -> None:
        # "cuda" is the current one, and tensors there say which that is
        self.device = torch.device("cuda", torch.cuda.current_device()) if device == torch.device("cuda") else device
        self.workers = workers
        self.dataset, self.transform = stored(dataset)
        tensors = tensors_of(self.dataset)
        self.x: Tensor | None = None
        self.tokens: Tokens | None = None
        if isinstance(self.dataset, Sentences):
            tokens = self.dataset.tokens
            self.tokens = tokens.to(self.device) if tokens.bytes <= budget else tokens
        elif tensors is not None:
            if not checked:
                _check_finite(tensors[0], torch.arange(len(tensors[0])))
            fits = tensors[0].numel() * tensors[0].element_size() <= budget
            self.x = tensors[0].to(device) if fits else tensors[0]

    def __len__(self) -> int:
        return len(self.dataset)

    def batches(self, order: Tensor, size: int, augment: torch.Generator | None = None) -> Iterator[tuple[Any, Tensor]]:
        """(x, indices) for each run of `size` indices of `order`; the last one may be short.

        A single sample at the end joins the batch before it, since BatchNorm can't learn from one. With `augment`
        the transform augments, by draws from it.
        """
        chunks = list(order.split(size))
        if len(chunks) > 1 and len(chunks[-1]) == 1:
            chunks[-2:] = [torch.cat(chunks[-2:])]
        draws = self.draws(len(order), augment)
        start = 0
        for x, index in self._stored(chunks):
            chosen = None if draws is None else draws[start : start + len(index)]
            start += len(index)
            yield self._laid_out(x if self.transform is None else self.transform(x, chosen)), index

    @property
    def on_device(self) -> bool:
        """Whether all inputs lie on the device already."""
        held = self.x if self.tokens is None else self.tokens
        return held is not None and held.device == self.device

    def padded(self, rows: Tensor) -> list[int]:
        """The length that each batch of `rows` [batches, n], on the CPU, is padded to; 0 where all have one shape."""
        return [0] * len(rows) if self.tokens is None else self.tokens.padded(rows)

    def by_length(self, order: Tensor) -> Tensor | None:
        """Where to find the samples `order` from the shortest to the longest; None where inputs have one shape."""
        return None if self.tokens is None else self.tokens.host_lengths[order].argsort(stable=True)

    def gather(self, index: Tensor, draws: Tensor | None = None, length: int = 0) -> Any:
        """x of the samples `index` [n], where the inputs lie on the device; nothing is asked of the host.

        `length` is what `padded` says of them.
        """
        if self.tokens is not None:
            return self.tokens.gather(index, length)
        assert self.x is not None
        x = self.x[index]
        return self._laid_out(x if self.transform is None else self.transform(x, draws))

    def draws(self, count: int, augment: torch.Generator | None) -> Tensor | None:
        """Random numbers for augmenting `count` samples, on the device; None where nothing is to be augmented."""
        if self.transform is None or augment is None:
            return None
        draws = self.transform.draw(count, augment)
        return None if draws is None else draws.to(self.device)

    def _stored(self, chunks: list[Tensor]) -> Iterator[tuple[Any, Tensor]]:
        """x of each run of indices as it is stored, on the device."""
        held = self.x if self.tokens is None else self.tokens
        if held is not None:
            order = torch.cat(chunks).to(held.device)  # at once: each copy to a GPU would wait for it
            for index, there in zip(chunks, order.split([len(chunk) for chunk in chunks]), strict=True):
                x = held[there] if isinstance(held, Tensor) else held.gather(there, held.padded(index[None])[0])
                yield to_device(x, self.device), index
            return
        loader = DataLoader(
            _XOnly(self.dataset),
            batch_sampler=[chunk.tolist() for chunk in chunks],
            num_workers=self.workers,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # else it would draw from the caller's random numbers
        )
        for x, index in zip(_named(loader), chunks, strict=True):
            _check_finite(x, index)
            yield to_device(x, self.device), index

    def _laid_out(self, x: Any) -> Any:
        return x.contiguous(memory_format=torch.channels_last) if self.channels_last else x

    @torch.no_grad()
    def prefer_channels_last(self, run: Callable[[Any], Any]) -> None:
        """Hand out images with their channels innermost, which convolutions take about twice as fast.

        Only where `run`, the model, can take them so: a `view` in its code may not. The results differ in rounding.
        """
        x = self.example()
        if isinstance(x, Tensor) and x.dim() == 4 and x.is_floating_point():
            try:
                run(x.contiguous(memory_format=torch.channels_last))
            except RuntimeError:
                return
            self.channels_last = True

    def roomy_batch(self) -> int:
        """A batch for inference: large enough to keep the device busy, small enough for a network's activations."""
        if self.tokens is not None:  # a token becomes a vector
            numel = 64 * self.tokens.sizes[-1]
        else:
            numel = max((t.numel() // len(t) for t in tensors_in(self.example(1))), default=1)
        most, elements = (4096, 1 << 23) if self.device.type == "cuda" else (500, 1 << 21)
        return max(16, min(most, elements // max(1, numel)))

    def example(self, count: int = 4) -> Any:
        """The first few inputs, as a batch."""
        return next(self.batches(torch.arange(min(count, len(self))), count))[0]


def _named(loader: DataLoader[Any]) -> Iterator[Any]:
    """The loader's batches; bad input in a worker comes wrapped in its traceback, of which the sentence is kept."""
    try:
        yield from loader
    except BadInput as error:
        if not loader.num_workers:
            raise
        raise BadInput(str(error).strip().splitlines()[-1].partition(": ")[2]) from error


class _XOnly(Dataset[Any]):
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return input_of(self.dataset[index])


def _check_finite(x: Any, index: Tensor) -> None:
    for value in x.values() if isinstance(x, Mapping) else (x,):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        if not value.isfinite().all():
            bad = ~value.flatten(1).isfinite().all(1) if value.dim() > 1 else ~value.isfinite()
            sample = int(index[int(bad.nonzero()[0, 0])])
            raise BadInput(f"the input of sample {sample} holds NaN or infinity; repair it or leave it out")
