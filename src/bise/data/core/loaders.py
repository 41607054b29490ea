"""A DataLoader in place of a data set: its data set is used, and so is a collate_fn of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from bise.base.errors import BadInput, caution


class Collated(Dataset[Any]):
    """The samples of a loader's data set, and the inputs of a batch as the loader's collate_fn makes them."""

    def __init__(self, dataset: Any, collate: Any) -> None:
        self.dataset = dataset
        self.collate = collate

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def batch(self, indices: list[int]) -> Any:
        """x of these samples; refused where the collate_fn changes how many they are, their order or their targets."""
        samples = [self.dataset[index] for index in indices]
        try:
            made = self.collate(samples)
        except BadInput:
            raise
        except Exception as error:
            raise BadInput(
                f"{self._name} raised {type(error).__name__} ({(str(error) or 'no message').splitlines()[0]}) on"
                f" {len(samples)} samples; where it takes inputs without labels, wrap the DataLoader in"
                " bise.data.Labelled(loader, y=…, b=…)"
            ) from error
        x = made[0] if isinstance(made, (tuple, list)) and made else made
        tensors = [value for value in (x.values() if isinstance(x, Mapping) else [x]) if isinstance(value, Tensor)]
        if not tensors:
            raise BadInput(
                f"{self._name} makes {type(made).__name__} of a batch; it has to return (x, y, b) or x, where x is a"
                " tensor or a dict of tensors"
            )
        if any(tensor.dim() == 0 or len(tensor) != len(indices) for tensor in tensors):
            raise BadInput(
                f"{self._name} makes inputs of another length from {len(indices)} samples; it has to keep every sample,"
                " one row each"
            )
        given = [sample[1] for sample in samples if isinstance(sample, (tuple, list)) and len(sample) > 1]
        if isinstance(made, (tuple, list)) and len(made) > 1 and given and not _same(made[1], given):
            raise BadInput(
                f"{self._name} changes the targets or the order of a batch, as mixing of samples does, so it can't be"
                " respected; give a DataLoader without it"
            )
        return dict(x) if isinstance(x, Mapping) else x

    @property
    def _name(self) -> str:
        return f"the DataLoader's collate_fn {getattr(self.collate, '__name__', type(self.collate).__name__)}"


def check_loader(loader: DataLoader[Any]) -> None:
    """Refuse a loader whose samples can't be asked for by number, and say which of its settings aren't used."""
    name = type(loader.dataset).__name__
    if isinstance(loader.dataset, IterableDataset):
        raise BadInput(
            f"the DataLoader's {name} is an IterableDataset, whose samples have no number; give a map-style data set,"
            " with __len__ and __getitem__"
        )
    if loader.batch_size is None and loader.batch_sampler is None:
        raise BadInput(
            "the DataLoader has batch_size=None, so that its data set makes batches itself; give one whose data set"
            " yields single samples"
        )
    drawn = loader.batch_sampler if type(loader.batch_sampler) is not BatchSampler else loader.sampler
    if not _draws_everything(drawn, len(loader.dataset)):  # type: ignore[arg-type]
        caution(
            f"the DataLoader's {type(drawn).__name__} isn't used: all {len(loader.dataset):,} samples of its data set"  # type: ignore[arg-type]
            " count, and batches are drawn anew; to leave samples out, give a torch.utils.data.Subset of them",
            stacklevel=4,
        )


def collate_of(loader: DataLoader[Any]) -> Any:
    """The loader's collate_fn where it is one of its own, else None."""
    return None if loader.collate_fn is default_collate else loader.collate_fn


def _draws_everything(sampler: Any, samples: int) -> bool:
    """Whether a sampler is one of those that hand out each sample once."""
    if isinstance(sampler, RandomSampler):
        return not sampler.replacement and sampler.num_samples == samples
    return isinstance(sampler, (SequentialSampler, DistributedSampler))


def _same(made: Any, given: list[Any]) -> bool:
    """Whether a batch's targets are those of its samples."""
    try:
        found, wanted = torch.as_tensor(made), torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        return False
    return found.shape == wanted.shape and bool((found == wanted).all())
