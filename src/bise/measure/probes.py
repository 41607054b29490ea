"""How well a fresh linear classifier reads the bias from features."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from bise.measure.checks import check_labels, check_vectors

L2 = 1e-4
MAX_ITERATIONS = 200
MAX_TRAINING_SAMPLES = 5_000
"""Enough for a few thousand weights, and it bounds the time of a probe whatever the size of the data set."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What a linear classifier reads of b from z."""

    accuracy: float
    """On samples that it was not trained on, all cells counting evenly."""
    chance: float
    """What the best constant answer reaches on the same samples with the same weights."""
    n: int
    """Samples that accuracy and chance were measured on."""


def linear_probe(z: Tensor, b: Tensor, *, cell: Tensor, seed: int = 0) -> Probe:
    """Train logistic regression from features z [N, d] to b [N] on half of each cell; measure it on the rest.

    All cells with samples (cell ids [N]) count evenly in both halves: under the natural shares a probe that
    knows y, which z is made for, would get b right by way of y. Cells of one sample are only trained on.
    """
    if z.dim() != 2 or z.shape[1] == 0:
        raise ValueError(f"z: shape {list(z.shape)}; give one row of features per sample, shape [N, d]")
    check_labels(b=b, cell=cell)
    check_vectors(**{"z[:, 0]": z[:, 0], "b": b, "cell": cell})
    if not z.isfinite().all():
        raise ValueError("z: holds nan or infinite values; check the model that made these features")

    # A caller may measure under inference_mode; the probe still has to learn (no_grad is lifted by LBFGS).
    with torch.inference_mode(False):
        train, test = _split(cell, seed)
        if len(test) == 0:
            raise ValueError("cell: no cell has two samples, one for training and one for testing; give more")
        values, target = torch.unique(b, return_inverse=True)
        train_x, test_x = _standardise(z[train].detach().double(), z[test].detach().double())
        weight, bias = fit_logistic(train_x, target[train], _even_weights(cell[train]), len(values))
        share = _even_weights(cell[test])
        hit = (test_x @ weight.T + bias).argmax(dim=1) == target[test]
        constant = torch.bincount(target[test], weights=share)
        # The shares sum to 1 only up to rounding.
        accuracy, chance = min(1.0, float(share[hit].sum())), min(1.0, float(constant.max()))
        return Probe(accuracy=accuracy, chance=chance, n=len(test))


def fit_logistic(x: Tensor, target: Tensor, share: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """W [C, d] and c [C] that minimise Σ share_i CE(W x_i + c, target_i) + λ/2 ‖W‖², λ = 1e-4, x [N, d]."""
    weight = torch.zeros(classes, x.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=MAX_ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        errors = cross_entropy(torch.addmm(bias, x, weight.T), target, reduction="none")
        value = share @ errors + L2 / 2 * weight.square().sum()
        torch.autograd.backward(value)
        return value

    optimizer.step(loss)
    return weight.detach(), bias.detach()


def _split(cell: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Indices of a random half of each cell (rounded up) for training, cut to the maximum, and the rest."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(cell), generator=generator)
    order = shuffled[torch.argsort(cell[shuffled], stable=True)]
    _, inverse, sizes = torch.unique(cell[order], return_inverse=True, return_counts=True)
    rank = torch.arange(len(cell)) - (sizes.cumsum(0) - sizes)[inverse]
    in_train = rank < ((sizes + 1) // 2)[inverse]
    # The lowest ranks come from all cells alike, so the cut shortens large cells before small ones.
    by_rank = torch.argsort(rank[in_train], stable=True)
    return order[in_train][by_rank][:MAX_TRAINING_SAMPLES], order[~in_train]


def _even_weights(cell: Tensor) -> Tensor:
    """Weights [N] with sum 1 that give each non-empty cell the same share."""
    _, inverse, sizes = torch.unique(cell, return_inverse=True, return_counts=True)
    by_cell: Tensor = 1 / (sizes.double() * len(sizes))
    return by_cell[inverse]


def _standardise(train: Tensor, test: Tensor) -> tuple[Tensor, Tensor]:
    """Both, shifted and scaled per feature to the mean 0 and standard deviation 1 of train."""
    # A closed unit is constant; its computed deviation may be 1e-17 instead of 0, a divisor that makes noise.
    constant = train.amax(dim=0) == train.amin(dim=0)
    mean = torch.where(constant, train[0], train.mean(dim=0))
    scale = torch.where(constant, 1.0, train.std(dim=0, correction=0))
    return (train - mean) / scale, (test - mean) / scale
