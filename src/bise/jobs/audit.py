"""`bise audit`: a model, or a network of a run, on a split of its data or on other data."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from bise.base.errors import BadInput, caution, named
from bise.data.core.cells import Cells
from bise.data.core.contract import Progress, labels
from bise.jobs.steps import NETWORKS, Splits, other_splits, saved, split_of
from bise.measure.audits import Audit, audit
from bise.runs.folder import read_summary


def audit_job(
    model: nn.Module,
    splits: Splits,
    folder: Path | None,
    *,
    of: str,
    split: str | None,
    same: bool,
    workers: int | None = None,
    progress: Progress,
) -> Audit:
    """Audit the model, or a network `of` the run in `folder`; where data should be the `same`, it says if they aren't.

    Without a `split` it is test, or all of other data that aren't split.
    What is aligned is the training set's to say: the run's, or else that of the data.
    """
    network: nn.Module = model
    if folder is not None:
        if of not in NETWORKS:
            raise BadInput(f"--of {of!r} is unknown; use {', '.join(NETWORKS)}")
        network = saved(folder, of, model)
    elif of != NETWORKS[0]:
        raise BadInput(f"--of {of} is about a network of a run; name that with --run")
    data = split_of(splits, split or "test")
    if data is None and split is None and folder is not None and not same and split_of(splits, "val") is None:
        data = split_of(splits, "train")  # a file of other samples that isn't split at all
    split = split or "test"
    if data is None:
        raise BadInput(f"--data has no split {split!r}; choose another with --split")
    aligned: Cells | None
    facts = read_summary(folder).get("data") if folder is not None and not same else None
    if facts:
        aligned = labels(data, progress=progress).realigned(torch.tensor(facts["aligned"]))
    else:
        train = split_of(splits, "train")
        aligned = None if train is None else labels(train, progress=progress)
    if folder is not None and same and other_splits(folder, {split: data}):
        caution(
            f"{split} isn't what it was when {folder} was made, so that these figures can't be held against the run's",
        )
    with named(split):
        return audit(network, data, aligned=aligned, workers=workers, progress=progress)
