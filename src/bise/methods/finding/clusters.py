"""Groups from features: k-means with k by the silhouette, and what a linear classifier reads of the target."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bise.base.errors import BadInput
from bise.base.extras import sklearn

COUNTS = (2, 3, 4, 5, 6, 8, 10, 12, 16)
"""Numbers of clusters that are tried."""
FITTED, COMPARED = 6000, 1500
"""Samples, at most, that clusters are fitted on, and that the silhouette is taken of."""
COMPONENTS = 16
LEAST_SILHOUETTE = 0.15
"""Below it features are a cloud, and a cut through a cloud is no group."""
READ_ON = 5000
"""Samples, at most, that a linear classifier learns from."""
PER_CLUSTER = 10
"""Samples that have to be there for every cluster."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Clusters:
    """Centres [k, c] behind a projection [d, c] of features less their mean [d]."""

    mean: NDArray[np.float64]
    projection: NDArray[np.float64]
    centres: NDArray[np.float64]
    silhouette: float
    """Mean over samples, for the k that was chosen: 1 is apart, 0 is one cloud."""

    @property
    def k(self) -> int:
        return len(self.centres)

    def __call__(self, features: Tensor) -> Tensor:
        """[N]: the nearest centre of each row of features [N, d]."""
        rows = (features.numpy().astype(np.float64) - self.mean) @ self.projection
        far = (rows**2).sum(1)[:, None] - 2 * rows @ self.centres.T + (self.centres**2).sum(1)
        return torch.from_numpy(far.argmin(1))


def fit_clusters(features: Tensor, *, seed: int = 0) -> Clusters | None:
    """Clusters of features [N, d]; None where these are one cloud, or the same for all.

    Principal components, of features that are centred and not scaled: units that say little of these samples stay
    small. k has the highest silhouette; of equal ones the smallest.
    """
    check_features(features)
    cluster, decomposition, metrics = (sklearn(name) for name in ("cluster", "decomposition", "metrics"))
    some = _drawn(len(features), FITTED, seed)
    x = features[some].numpy().astype(np.float64)
    mean = x.mean(0)
    if not np.ptp(x, 0).max() > 0:
        return None
    found = decomposition.PCA(min(COMPONENTS, *x.shape), svd_solver="full").fit(x - mean)
    projection = found.components_.T[:, found.explained_variance_ > 1e-12 * found.explained_variance_[0]]
    rows = (x - mean) @ projection
    distinct = len(np.unique(rows.round(9), axis=0))
    best: tuple[float, Any] | None = None
    for k in (k for k in COUNTS if k * PER_CLUSTER <= len(rows) and k < distinct + 1):
        fitted = cluster.KMeans(k, n_init=3, max_iter=50, random_state=seed).fit(rows)
        labels = fitted.labels_[:COMPARED]
        if not 1 < len(np.unique(labels)) < len(labels):
            continue
        value = float(metrics.silhouette_score(rows[:COMPARED], labels))
        if best is None or value > best[0]:
            best = value, fitted.cluster_centers_
    if best is None or best[0] < LEAST_SILHOUETTE:
        return None
    return Clusters(mean=mean, projection=projection, centres=best[1], silhouette=best[0])


@dataclass(frozen=True, kw_only=True, eq=False)
class Readings:
    """Linear classifiers [2, d, C] and [2, C] of standardised features, each learned from one half of the samples."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]
    constants: NDArray[np.float64]
    values: NDArray[np.int64]
    """The classes that the columns stand for."""

    def __call__(self, features: Tensor, half: Tensor | None = None) -> Tensor:
        """[N]: the class that is read; with `half` [N], each sample by the classifier that didn't learn from it."""
        x = (features.numpy().astype(np.float64) - self.mean) / self.scale
        logits = np.stack([x @ w + c for w, c in zip(self.weights, self.constants, strict=True)])
        if half is None:
            return torch.from_numpy(self.values[logits.mean(0).argmax(1)])
        chosen = logits[1 - half.numpy(), np.arange(len(x))]
        return torch.from_numpy(self.values[chosen.argmax(1)])


def fit_readings(features: Tensor, y: Tensor, half: Tensor, *, seed: int = 0) -> Readings:
    """What is read of the targets y [N] in features [N, d], by the halves 0 and 1 of the samples [N]."""
    check_features(features)
    linear = sklearn("linear_model")
    x = features.numpy().astype(np.float64)
    mean, deviation = x.mean(0), x.std(0)
    scale = np.where(deviation > 1e-9 * max(deviation.max(), 1e-30), deviation, 1.0)
    values = np.unique(y.numpy())
    weights, constants = [], []
    for part in (0, 1):
        rows = (half == part).nonzero().flatten()
        rows = rows[_drawn(len(rows), READ_ON, seed)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it could go on for longer; a group needs no last digit
            fitted = linear.LogisticRegression(max_iter=100).fit((x[rows] - mean) / scale, y[rows].numpy())
        w, c = np.zeros((len(values), x.shape[1])), np.full(len(values), -np.inf)
        places = np.searchsorted(values, fitted.classes_)
        two = len(fitted.classes_) == 2  # then there is one row, of the second class
        w[places] = np.concatenate([-fitted.coef_, fitted.coef_]) / 2 if two else fitted.coef_
        c[places] = np.concatenate([-fitted.intercept_, fitted.intercept_]) / 2 if two else fitted.intercept_
        weights.append(w.T)
        constants.append(c)
    return Readings(mean=mean, scale=scale, weights=np.stack(weights), constants=np.stack(constants), values=values)


def check_features(features: Tensor) -> None:
    """Refuse features that nothing can be grouped by."""
    if features.dim() != 2 or features.shape[1] == 0:
        raise BadInput(f"features have shape {tuple(features.shape)}; give one row of numbers a sample")
    bad = (~features.isfinite().all(1)).nonzero().flatten()
    if len(bad):
        raise BadInput(
            f"features of sample {int(bad[0])} hold nan or infinite values; check the model that makes them, and its"
            " inputs"
        )
    if len(features) < COUNTS[0] * PER_CLUSTER:
        raise BadInput(
            f"{len(features)} samples are too few for {COUNTS[0]} groups of {PER_CLUSTER}; give at least"
            f" {COUNTS[0] * PER_CLUSTER}"
        )


def _drawn(count: int, most: int, seed: int) -> Tensor:
    """At most so many of the numbers below `count`, in a drawn order."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))[:most]
