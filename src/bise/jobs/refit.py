"""`bise refit`: the last layer of a run's subnetwork fitted anew, audited, and added to the run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from bise.base.errors import BadInput
from bise.data.core.contract import Progress, labels
from bise.data.core.identity import data_sha256
from bise.engine.checkpoints import key_of
from bise.jobs.work import Splits, _audited, _train, other_splits, saved, split_of
from bise.methods.refit.config import RefitConfig
from bise.methods.refit.refitting import refit
from bise.network.outputs import device_of
from bise.network.twin import fingerprint
from bise.reporting.writing import add_report
from bise.runs.folder import Run, check_complete, read_summary

TOLD = ("layer", "refused", "samples", "l2", "solver", "val", "rest", "seconds")
"""What the summary takes of the record."""


def refit_job(
    model: nn.Module,
    splits: Splits,
    folder: Path,
    *,
    changes: Mapping[str, Any],
    bottleneck: str | None = None,
    workers: int | None = None,
    progress: Progress,
    resume: bool = False,
) -> dict[str, Any]:
    """Refit a run's subnetwork, audit it, save it as `refitted`, and add its figures to the run's summary.

    It takes seconds, so nothing is kept on the way: one that was stopped is done again.
    """
    started = time.perf_counter()
    config = RefitConfig(**changes)
    check_complete(folder)
    sub = saved(folder, "subnetwork", model)
    data = {"train": _train(splits), "val": split_of(splits, "val"), "test": split_of(splits, "test")}
    train, val, test = data.values()
    if others := other_splits(folder, data):
        raise BadInput(
            f"{' and '.join(others)} changed since {folder} was made, so that its figures and those of a refit couldn't"
            " be compared; bring the data back, or extract from the model anew"
        )
    cells = labels(train, progress=progress)
    masks = key_of({name: mask.tolist() for name, mask in sub.masks.items()})
    hashes = {name: data_sha256(split) for name, split in data.items()}
    whole = {
        "refit": asdict(config),
        "bottleneck": bottleneck,
        "device": str(device_of(model)),
        "sha256": {"weights": fingerprint(model), "masks": masks} | hashes,
    }
    with Run(folder, whole, job="refit", resume=resume) as run:
        if run.finished is not None:
            return run.finished
        summary = read_summary(folder)
        refitted = refit(
            sub, train, val=val, **asdict(config), bottleneck=bottleneck, workers=workers, progress=progress
        )
        refitted.save(folder / "refitted")
        found = {} if test is None else _audited(refitted, test, cells, workers=workers, progress=progress)
        summary["refitted"] = found | {"fit": {key: refitted.record[key] for key in TOLD}}
        summary |= {"refit": asdict(config), "seconds": time.perf_counter() - started}
        run.finish(summary)
        add_report(folder)
    return summary
