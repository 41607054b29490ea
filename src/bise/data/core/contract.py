"""What a data set has to give: (x, y, b), with labels known beforehand or read in one counted pass."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bise.base.errors import BadInput
from bise.data.core.cells import Cells
from bise.data.core.loaders import Collated, check_loader, collate_of
from bise.data.core.naming import LabelNames
from bise.data.core.transforms import Transform

Alignment = Mapping[int, Any] | Sequence[Any]
Progress = Callable[[str, int, int], None]
"""(label, done, total)"""
Log = Callable[[dict[str, Any]], None]
"""Takes a row of figures."""
READ_AT_ONCE = 4096


class Labelled(Dataset[tuple[Any, int, Any]]):
    """A map-style data set with its targets y and biases b known beforehand; yields (x, y, b).

    `dataset` yields x, (x, …) or anything whose first element is x. `b` holds one int a sample, or one tuple
    of ints where there are several biases. `names` says what they are called, for tables and reports; `classes` and
    `bias_classes` default to how many names there are, or else to the largest label plus one.
    `aligned` maps each y to its aligned b (a tuple for several biases); left out, it is measured. `groups` says
    what the metrics average over: "cells", or "alignment" for the 2^K combinations of aligned and conflicting.
    Where `dataset` holds pictures as bytes, `transform` makes them what a network takes, in batches on its device.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        y: Any,
        b: Any = None,
        classes: int | None = None,
        bias_classes: Sequence[int] | int | None = None,
        aligned: Alignment | None = None,
        groups: str = "cells",
        transform: Transform | None = None,
        names: LabelNames | None = None,
    ) -> None:
        self.dataset = dataset = unloaded(dataset)
        self.transform = transform
        self.names = names
        self.y = label_tensor(y, "y")
        self.b = None if b is None else label_tensor(b, "b")
        if self.y.dim() != 1:
            raise BadInput(f"y has shape {tuple(self.y.shape)}; it takes one int a sample")
        for name, values in (("y", self.y), ("b", self.b)):
            if values is not None and len(values) != len(dataset):
                several = ", for several biases [samples, biases]" if values.dim() == 2 else ""
                raise BadInput(
                    f"{name} has {len(values)} labels for {len(dataset)} samples; give one for each sample{several}"
                )
        if names is not None:
            classes = len(names.classes) if classes is None else classes
            bias_classes = (
                [len(found) for found in names.bias_classes] or None if bias_classes is None else bias_classes
            )
        self.classes = classes
        self.bias_classes = (bias_classes,) if isinstance(bias_classes, int) else bias_classes
        self.aligned = aligned
        if groups not in ("cells", "alignment"):
            raise BadInput(f'groups={groups!r} is unknown; use "cells" or "alignment"')
        self.groups = groups

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        of = "" if self.names is None else f" of {' and '.join(self.names.columns)}"
        return f"{type(self).__name__}({len(self):,} samples{of})"

    def __getitem__(self, index: int) -> tuple[Any, int, Any]:
        b = None if self.b is None else self.b[index].tolist()
        x = input_of(self.dataset[index])
        x = x if self.transform is None else self.transform(x.unsqueeze(0))[0]
        return x, int(self.y[index]), tuple(b) if isinstance(b, list) else b

    @property
    def tensors(self) -> tuple[Tensor, ...] | None:
        """The inputs as one tensor, as they are handed out, where they are held in memory; else None."""
        inner, transform = stored(self)
        tensors = tensors_of(inner)
        return tensors if tensors is None or transform is None else (transform(tensors[0]), *tensors[1:])


class PseudoLabelled(Labelled):
    """A data set whose b are predictions of a model that was trained briefly; `quality` says how good they are."""

    quality: dict[str, float]


class Deferred(Dataset[tuple[Tensor, ...]]):
    """A tensor of samples that `make` makes when they are first asked for, so that labels come without pictures."""

    def __init__(self, make: Callable[[], Tensor], count: int) -> None:
        self.make, self.count = make, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return (self.tensors[0][index],)

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.make(),)


def unloaded(data: Any) -> Any:
    """What a DataLoader reads, its own collate_fn included; anything else as it is."""
    if not isinstance(data, DataLoader):
        return data
    check_loader(data)
    dataset, collate = data.dataset, collate_of(data)
    if collate is None:
        return dataset
    if not isinstance(dataset, Labelled):
        return Collated(dataset, collate)
    known = copy.copy(dataset)  # labels and names stay known
    known.dataset, known.transform = Collated(dataset, collate), None
    return known


def stored(dataset: Any) -> tuple[Any, Transform | None]:
    """The data set whose x are as stored, and the transform that is still due, to be done in batches."""
    if isinstance(dataset, Labelled) and type(dataset).__getitem__ is Labelled.__getitem__:
        inner, transform = stored(dataset.dataset)
        if transform is None:
            return inner, dataset.transform
    return dataset, None


def tensors_of(dataset: Any) -> tuple[Tensor, ...] | None:
    """The tensors of a plain `TensorDataset`, x the first of them.

    A class of one's own may do anything on access, so it is asked sample by sample.
    """
    if isinstance(dataset, Deferred):
        return dataset.tensors
    plain = isinstance(dataset, TensorDataset) and type(dataset).__getitem__ is TensorDataset.__getitem__
    return dataset.tensors if plain and dataset.tensors else None


def input_of(sample: Any) -> Any:
    """x of a sample that is x itself or a tuple that starts with it."""
    return sample[0] if isinstance(sample, (tuple, list)) else sample


def labels(
    dataset: Any,
    *,
    aligned: Alignment | None = None,
    need_bias: bool = True,
    progress: Progress | None = None,
) -> Cells:
    """The cells of a data set: those that a `Labelled` one knows, else by one counted pass over it.

    Args:
        dataset: A data set or DataLoader that yields (x, y, b).
        aligned: {y: b}, or a tuple of b for several biases; None measures which b is over-represented for each y.
        need_bias: Whether a data set of (x, y) alone is refused.
        progress: Called with (label, done, total); `bise.Bars()` shows bars.

    Returns:
        `Cells` with y [N], b [N, K], counts, ρ, and which samples are aligned.

    Raises:
        BadInput: Samples have no number, labels are no ints from 0, or there is no bias.

    Example:
        >>> round(bise.data.labels(train).rho[0], 2)
        0.97
    """
    dataset = unloaded(dataset)
    if isinstance(dataset, Cells):
        return dataset
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise BadInput(
            f"{type(dataset).__name__} is no map-style data set; it needs __len__ and __getitem__, yielding (x, y, b)"
        )
    if len(dataset) == 0:
        raise BadInput("the data set is empty; it needs at least two classes with samples")
    # other data sets may use the names y, b and classes for something else
    own = dataset if isinstance(dataset, Labelled) else None
    y, b = (own.y, own.b) if own is not None else _read_labels(dataset, progress)
    if b is None:
        if need_bias:
            raise BadInput(
                "the data set has no bias labels b; name their column with bias=… (for a folder of pictures their csv"
                " with bias_csv=…), yield (x, y, b), wrap it in bise.data.Labelled(dataset, y=…, b=…), or let"
                " bise.pseudo_bias make them"
            )
        b = torch.zeros(len(dataset), 1, dtype=torch.long)
    return Cells.of(
        y,
        b,
        classes=own.classes if own is not None else None,
        bias_classes=own.bias_classes if own is not None else None,
        aligned=aligned if aligned is not None or own is None else own.aligned,
        groups=own.groups if own is not None else "cells",
        called=own.names if own is not None and own.b is not None else None,
    )


def _read_labels(dataset: Any, progress: Progress | None) -> tuple[Tensor, Tensor | None]:
    """y and b of every sample, as tensors piece by piece: Python's own numbers take ten times the memory."""
    ys, bs = _Pieces("y"), _Pieces("b")
    every = max(1, len(dataset) // 200)
    for i in range(len(dataset)):
        sample = _sample(dataset, i)
        if not isinstance(sample, (tuple, list)) or len(sample) not in (2, 3):
            raise BadInput(
                f"sample {i} is a {type(sample).__name__}, not (x, y, b); wrap the data set in bise.data.Labelled"
            )
        ys.append(sample[1])
        if len(sample) == 3:
            bs.append(sample[2])
        if progress is not None and (i % every == 0 or i + 1 == len(dataset)):
            progress("reading labels", i + 1, len(dataset))
    y, b = ys.tensor(), bs.tensor()
    assert y is not None
    return y, b


def _sample(dataset: Any, index: int) -> Any:
    """A sample by its number; columns by name, and streams, have none."""
    try:
        return dataset[index]
    except (KeyError, NotImplementedError) as error:
        raise BadInput(
            f"{type(dataset).__name__} gives no sample {index} ({type(error).__name__}); it needs __getitem__ from 0,"
            " yielding (x, y, b): columns go into a TensorDataset or a csv file, a stream into a list"
        ) from error


class _Pieces:
    """Labels that are made a tensor every so often."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: list[Any] = []
        self.done: list[Tensor] = []

    def append(self, value: Any) -> None:
        self.values.append(value)
        if len(self.values) == READ_AT_ONCE:
            self._close()

    def _close(self) -> None:
        made = label_tensor(self.values, self.name)
        if self.done and made.shape[1:] != self.done[0].shape[1:]:
            raise BadInput(f"{self.name} has several shapes; give one int, or as many each time, for every sample")
        self.done.append(made)
        self.values = []

    def tensor(self) -> Tensor | None:
        if self.values:
            self._close()
        return torch.cat(self.done) if self.done else None


def label_tensor(values: Any, name: str) -> Tensor:
    """Labels as int64, [N] or [N, K]; anything that is not a whole number is refused, not rounded."""
    try:
        if isinstance(values, Tensor):
            tensor = values.detach().cpu()
        else:
            if hasattr(values, "to_numpy"):  # a pandas column: torch can't read its index
                values = values.to_numpy()
            tensor = torch.as_tensor(_plain(values))
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"{name} can't be read as whole numbers ({error}); {_ints(name)}") from error
    if tensor.is_floating_point():
        odd = tensor[(tensor != tensor.round()) | ~tensor.isfinite()]
        if len(odd):
            raise BadInput(f"{name} holds {odd[0].item()}, which is no whole number; {_ints(name)}")
    elif tensor.is_complex():
        raise BadInput(f"{name} is complex; {_ints(name)}")
    return tensor.to(torch.long)


def _ints(name: str) -> str:
    return "give ints from 0" + (", and −1 where it is not known" if name.startswith("b") else "")


def _plain(values: Any) -> Any:
    """Lists of tuples or of 0-dimensional tensors and arrays as nested lists that torch reads in one go."""
    if isinstance(values, (list, tuple)):
        return (
            [_plain(v) if isinstance(v, (list, tuple, Tensor, np.ndarray)) else v for v in values] if values else values
        )
    scalar = isinstance(values, np.ndarray) and not values.ndim
    return values.tolist() if scalar or isinstance(values, Tensor) else values
