"""Batches of x by index: from memory where the data set holds tensors, streamed through a loader where it doesn't."""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, default_collate

from bise.base.errors import BadInput
from bise.data.core.contract import input_of, stored, tensors_of
from bise.data.core.loaders import Collated
from bise.data.core.pictures import Pictures
from bise.data.core.tokens import Sentences, Tokens
from bise.data.core.transforms import JITTER_DRAWS, jittered
from bise.engine.storage import Store
from bise.network.outputs import tensors_in, to_device

CHECKED_AT_ONCE = 4096
"""Samples whose numbers are looked over in one go, so that the flags don't take the memory of the data."""
MOST_WORKERS = 4
FEW = 256
"""Pictures that are read before a worker process would have started."""


class Inputs:
    """The inputs of a data set on `device`.

    A `TensorDataset` (or a `Labelled` one over it) is deterministic, so it moves to the device whole where it
    takes at most `budget` bytes; so do sentences, as token numbers, whose batches are padded to one of a few lengths.
    Any other data set may augment, so it is asked anew for every batch. A `Labelled` set's transform is done on the
    device, batch by batch, in either case. The rows of a `Store` serve as inputs too. Data sets that are asked are
    read ahead by `workers` processes; None is up to four for picture files, and none for others, which may not bear it.
    """

    channels_last = False
    jitter = 0.0
    """How much pictures are turned, stretched, slanted and shifted where they are augmented."""
    augments = True
    """Whether the transform augments too where there are draws, or jitter alone does."""

    def __init__(
        self,
        dataset: Any,
        device: torch.device,
        *,
        budget: int = 8 << 30,
        workers: int | None = None,
        checked: bool = False,
    ) -> None:
        if workers is not None and workers < 0:
            raise BadInput(f"workers={workers} is no number of processes; give 0 or more")
        # "cuda" is the current one, and tensors there say which that is
        self.device = torch.device("cuda", torch.cuda.current_device()) if device == torch.device("cuda") else device
        self.workers = workers
        self.seeds = torch.Generator()  # of the workers, so that an epoch's differ from the one's before
        self.room: int | None = None
        """Samples that the device has been seen to have room for, where that is less than was tried."""
        self.dataset, self.transform = stored(dataset)
        tensors = tensors_of(self.dataset)
        self.store = dataset if isinstance(dataset, Store) else None
        self.x: Tensor | None = None if self.store is None else self.store.rows
        self.tokens: Tokens | None = None
        self.copied = 0
        """Bytes on the device that the data set itself doesn't hold."""
        if isinstance(self.dataset, Sentences):
            tokens = self.dataset.tokens
            self.tokens = tokens.to(self.device) if tokens.bytes <= budget else tokens
            self.copied = tokens.bytes if self.tokens.device != tokens.device else 0
        elif tensors is not None:
            if not checked:
                _check_finite(tensors[0])
            size = tensors[0].numel() * tensors[0].element_size()
            self.x = tensors[0].to(device) if size <= budget else tensors[0]
            self.copied = size if self.x is not tensors[0] else 0

    def __len__(self) -> int:
        return len(self.dataset)

    def batches(
        self, order: Tensor, size: int, augment: torch.Generator | Tensor | None = None
    ) -> Iterator[tuple[Any, Tensor]]:
        """(x, indices) for each of the `in_batches` of `order`.

        With `augment` the transform augments, by draws from it, or by these draws.
        """
        yield from self.runs(in_batches(order, size), self.draws(len(order), augment))

    def runs(self, chunks: list[Tensor], draws: Tensor | None) -> Iterator[tuple[Any, Tensor]]:
        """(x, indices) for each of these runs of indices; `draws` are those of all, one run after the other."""
        start = 0
        for x, index in self._stored(chunks):
            chosen = None if draws is None else draws[start : start + len(index)]
            start += len(index)
            yield self._prepared(x, chosen), index

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
        return self._prepared(x, draws)

    def draws(self, count: int, augment: torch.Generator | Tensor | None) -> Tensor | None:
        """Random numbers for augmenting `count` samples, on the device; None where nothing is to be augmented."""
        if augment is None or isinstance(augment, Tensor):
            return augment
        draws = self.transform.draw(count, augment) if self.transform is not None and self.augments else None
        if self.jitter:
            more = torch.rand(count, JITTER_DRAWS, generator=augment, dtype=torch.float32)
            draws = more if draws is None else torch.cat([draws, more], 1)
        return None if draws is None else draws.to(self.device)

    @property
    def changing(self) -> bool:
        """Whether a sample is another picture each time, where there are draws."""
        return self.jitter > 0 or (self.augments and self.transform is not None and self.transform.augments)

    def jitter_by(self, share: float) -> None:
        """Turn, stretch, slant and shift pictures so much wherever there are draws."""
        if share and not _are_pictures(self.example(1)):
            raise BadInput(f"jitter={share:g} turns and shifts pictures, and these inputs are none; leave it at 0")
        self.jitter = share

    def _stored(self, chunks: list[Tensor]) -> Iterator[tuple[Any, Tensor]]:
        """x of each run of indices as it is stored, on the device."""
        held = self.x if self.tokens is None else self.tokens
        if held is not None:
            order = torch.cat(chunks).to(held.device)  # at once: each copy to a GPU would wait for it
            for index, there in zip(chunks, order.split([len(chunk) for chunk in chunks]), strict=True):
                if self.tokens is not None:
                    x: Any = self.tokens.gather(there, self.tokens.padded(index[None])[0])
                else:
                    x = held[there] if self.store is None else self.store.take(there)  # type: ignore[index]
                yield to_device(x, self.device), index
            return
        loader = DataLoader(
            _XOnly(self.dataset),
            batch_sampler=_Lists(chunks),
            num_workers=self._workers(chunks),
            pin_memory=self.device.type == "cuda",
            generator=self.seeds,  # else it would draw from the caller's random numbers
            collate_fn=_batched,
        )
        for x, index in zip(_living(loader), chunks, strict=True):
            if isinstance(x, _Refused):
                raise BadInput(x.sentence)
            _check_finite(x, index)
            yield to_device(x, self.device), index

    def _workers(self, chunks: list[Tensor]) -> int:
        """How many processes read these runs of indices."""
        if len(chunks) == 1:  # nothing to read ahead
            return 0
        if self.workers is not None:
            return self.workers
        many = sum(len(chunk) for chunk in chunks) >= FEW
        return automatic_workers(self.dataset, max(len(chunk) for chunk in chunks)) if many else 0

    def _prepared(self, x: Any, draws: Tensor | None) -> Any:
        """Stored x as the network takes it, augmented and jittered where there are draws for it."""
        own, more = draws, None
        if self.jitter and draws is not None:
            own, more = draws[:, :-JITTER_DRAWS], draws[:, -JITTER_DRAWS:]
            own = own if own.shape[1] else None
        x = x if self.transform is None else self.transform(x, own)
        return self._laid_out(x if more is None else jittered(x, more, self.jitter))

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
        return self.room or max(16, min(most, elements // max(1, numel)))

    def example(self, count: int = 4) -> Any:
        """The first few inputs, as a batch."""
        return next(self.batches(torch.arange(min(count, len(self))), count))[0]


def in_batches(order: Tensor, size: int) -> list[Tensor]:
    """`order` in runs of `size`; the last one may be short.

    A single sample at the end joins the batch before it, since BatchNorm can't learn from one.
    """
    chunks = list(order.split(size))
    if len(chunks) > 1 and len(chunks[-1]) == 1:
        chunks[-2:] = [torch.cat(chunks[-2:])]
    return chunks


def automatic_workers(dataset: Any, batch: int) -> int:
    """Processes to read picture files in such batches, by cores and shared memory; none where they can't be forked."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    # the first is the default; asking for it would settle it for the caller's program
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    if not isinstance(dataset, Pictures) or method != "fork" or multiprocessing.current_process().daemon:
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # batches come through shared memory, of which a container may have little: two wait and one is made, in each
    each = 3 * batch * dataset.channels * dataset.size[0] * dataset.size[1]
    return min(MOST_WORKERS, cores - 1, _shared_memory() // each)


def _shared_memory() -> int:
    """Free bytes of it."""
    try:
        return shutil.disk_usage("/dev/shm").free
    except OSError:
        return 0


def _living(loader: DataLoader[Any]) -> Iterator[Any]:
    """The loader's batches; one of its processes may be killed, where memory runs out."""
    try:
        yield from loader
    except (RuntimeError, ConnectionError, EOFError) as error:
        # what the data set itself raised comes as "Caught … in DataLoader worker"
        died = str(error).startswith("DataLoader worker") if isinstance(error, RuntimeError) else loader.num_workers
        if not died or str(error).startswith("Caught"):
            raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise BadInput(
            f"a process that reads ahead was killed, perhaps for memory ({reason}); use fewer workers, or 0"
        ) from error


@dataclass(frozen=True)
class _Refused:
    """Bad input that a worker met: raised there, the sentence would come wrapped in its traceback."""

    sentence: str


@dataclass(frozen=True)
class _Batch:
    """What a loader's own collate_fn has made."""

    x: Any


class _Lists:
    """Indices as the lists that a loader asks for, each made when it is due: a Python int takes 40 bytes."""

    def __init__(self, chunks: list[Tensor]) -> None:
        self.chunks = chunks

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[list[int]]:
        return (chunk.tolist() for chunk in self.chunks)


def _are_pictures(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dim() == 4 and x.is_floating_point()


class _XOnly(Dataset[Any]):
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, indices: list[int]) -> list[Any] | _Refused | _Batch:
        try:
            if isinstance(self.dataset, Collated):
                return _Batch(self.dataset.batch(indices))
            return [input_of(self.dataset[index]) for index in indices]
        except BadInput as error:
            return _Refused(str(error))


def _batched(samples: list[Any] | _Refused | _Batch) -> Any:
    if isinstance(samples, _Refused):
        return samples
    if isinstance(samples, _Batch):
        return samples.x
    try:
        return default_collate(samples)
    except (RuntimeError, TypeError, KeyError) as error:
        reason = str(error).splitlines()[0]
        return _Refused(f"the inputs of a batch don't stack ({reason}); give tensors of one shape, or dicts of them")


def _check_finite(x: Any, index: Tensor | None = None) -> None:
    """Refuse NaN and infinity in x, whose samples are `index`, or all in their order."""
    for value in x.values() if isinstance(x, Mapping) else (x,):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        if value.layout != torch.strided:
            raise BadInput(f"the inputs are of layout {value.layout}; make them dense with x.to_dense()")
        start = 0
        for part in value.split(CHECKED_AT_ONCE):
            if not part.isfinite().all():
                bad = ~part.flatten(1).isfinite().all(1) if part.dim() > 1 else ~part.isfinite()
                place = start + int(bad.nonzero()[0, 0])
                sample = place if index is None else int(index[place])
                raise BadInput(f"the input of sample {sample} holds NaN or infinity; repair it or leave it out")
            start += len(part)
