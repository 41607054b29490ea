"""`bise audit`: a model, or a network of a run, on a split of its data or on other data."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from bise.base.errors import BadInput, caution, named
from bise.base.names import NETWORKS, VANILLA
from bise.base.plain import check_plain
from bise.data.core.cells import Cells
from bise.data.core.contract import Progress, labels
from bise.jobs.steps import Splits, look_at, other_splits, saved, split_of
from bise.measure.audits import audit
from bise.measure.found import Audit
from bise.measure.standing import told
from bise.runs.folder import read_summary
from bise.runs.schema import read


def default_network(folder: Path | None) -> str:
    """Which network of a run is meant where none is named: what it found, or the model of one that trained it."""
    if folder is None or not (folder / "config.json").is_file():
        return NETWORKS[0]
    check_plain(folder)
    return VANILLA if read(folder / "config.json").get("job") == "train" else NETWORKS[0]


def audit_job(
    model: nn.Module,
    splits: Splits,
    folder: Path | None,
    *,
    of: str,
    zeta: float | None = None,
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
        if of not in (VANILLA, *NETWORKS):
            raise BadInput(f"--of {of!r} is unknown; use {', '.join((VANILLA, *NETWORKS))}")
        if of == VANILLA and zeta is not None:
            raise BadInput("--zeta is about a network with a mask, and vanilla has none; leave one of them out")
        network = model if of == VANILLA else saved(folder, of, model, zeta=zeta)
    elif of != NETWORKS[0] or zeta is not None:
        option = f"--of {of}" if zeta is None else f"--zeta {zeta:g}"
        raise BadInput(f"{option} is about a network of a run; name that: bise audit RUN")
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
        found = audit(network, data, aligned=aligned, workers=workers, progress=progress)
    if found.standing is not None and found.warning:
        said = told("the model" if folder is None else f"{of} of {folder}", vars(found.standing))
        caution(f"{said}; on {split}. {look_at(found.standing.state, labels(data, progress=progress))}")
    return found
