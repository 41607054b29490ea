"""`bise refit`: the last layer of a run's subnetwork fitted anew, audited, and added to the run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from bise.data.core.contract import Progress, labels
from bise.data.core.identity import identities
from bise.jobs.pipeline import Work, finish, origin_of, refitting
from bise.jobs.steps import Splits, check_same_data, saved, splits_to_learn
from bise.methods.refit.config import RefitConfig
from bise.runs.folder import Run, check_complete, read_summary


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

    Nothing is kept on the way, so that one that was stopped is done again.
    """
    started = time.perf_counter()
    config = RefitConfig(**changes)
    check_complete(folder)
    sub = saved(folder, "subnetwork", model)
    data = splits_to_learn(splits)
    check_same_data(folder, data, "refit")
    cells = labels(data["train"], progress=progress)
    known = identities(data)
    whole = {"refit": asdict(config), "bottleneck": bottleneck} | origin_of(model, sub, known)
    with Run(folder, whole, job="refit", resume=resume) as run:
        if run.finished is not None:
            return run.finished
        work = Work(**data, cells=cells, known=known, run=run, workers=workers, progress=progress)
        summary = read_summary(folder) | refitting(work, sub, config, bottleneck=bottleneck)
        summary["seconds"] = time.perf_counter() - started
        finish(work, summary)
    return summary
