"""The conditions that every measurement puts on its tensors."""

import torch
from torch import Tensor


def check_vectors(**vectors: Tensor) -> int:
    """Return N, after checking that every tensor has shape [N] with one and the same N >= 1."""
    for name, vector in vectors.items():
        if vector.dim() != 1:
            raise ValueError(f"{name}: shape {list(vector.shape)}; give one value per sample, shape [N]")
    lengths = {name: len(vector) for name, vector in vectors.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{', '.join(lengths)}: lengths {list(lengths.values())}; give one value per sample")
    n = next(iter(lengths.values()))
    if n == 0:
        raise ValueError(f"{', '.join(lengths)}: 0 samples; nothing can be measured, give at least one")
    return n


def check_labels(**labels: Tensor) -> int:
    """Return N, after checking that every tensor holds N >= 1 whole numbers, shape [N]."""
    for name, label in labels.items():
        if label.is_floating_point() or label.is_complex() or label.dtype == torch.bool:
            raise TypeError(f"{name}: dtype {label.dtype}; labels are whole numbers, convert with .long()")
    return check_vectors(**labels)


def check_boolean(**flags: Tensor) -> None:
    """Refuse tensors that are not boolean: a probability read as "correct" would go unnoticed."""
    for name, flag in flags.items():
        if flag.dtype != torch.bool:
            raise TypeError(f"{name}: dtype {flag.dtype}; give a boolean tensor, such as prediction == y")
