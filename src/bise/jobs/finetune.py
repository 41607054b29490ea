"""`bise finetune`: a run's subnetwork and the dense control, trained on by the same settings and added to the run."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from bise.data.core.contract import Progress, labels
from bise.data.core.identity import identities
from bise.engine.checkpoints import EVERY
from bise.engine.checks import check_model
from bise.engine.config import TrainConfig
from bise.jobs.pipeline import Work, finetuning, finish, origin_of
from bise.jobs.steps import Splits, check_answers, check_same_data, saved, splits_to_learn
from bise.runs.folder import Run, check_complete, read_summary
from bise.runs.older import check_not_an_older_demo


def finetune_job(
    model: nn.Module,
    splits: Splits,
    folder: Path,
    *,
    changes: dict[str, Any],
    zeta: float | None = None,
    workers: int | None = None,
    progress: Progress,
    tensorboard: bool = False,
    resume: bool = False,
    every: float = EVERY,
) -> dict[str, Any]:
    """Finetune a run's subnetwork and the dense control, audit both, and add them to the run's summary."""
    started = time.perf_counter()
    config = TrainConfig.finetuning(**changes)
    check_complete(folder)
    check_not_an_older_demo(folder)
    check_model(model)
    sub = saved(folder, "subnetwork", model, zeta=zeta)
    data = splits_to_learn(splits)
    check_answers(sub, data["train"], zeta)
    check_same_data(folder, data, "finetuning")
    cells = labels(data["train"], progress=progress)
    known = identities(data)
    whole = {"finetune": asdict(config)} | ({} if zeta is None else {"zeta": zeta}) | origin_of(model, sub, known)
    with Run(folder, whole, job="finetune", resume=resume, every=every, tensorboard=tensorboard) as run:
        if run.finished is not None:
            return run.finished
        earlier = read_summary(folder)
        work = Work(**data, cells=cells, known=known, run=run, workers=workers, progress=progress)
        made = finetuning(work, sub, model, config, zeta=zeta)
        # without what an earlier finetuning has told, such as the sizes of its files
        summary = {name: part for name, part in earlier.items() if name not in ("finetuned", "dense_finetuned")} | made
        said = "the finetuned network was cut at ζ = "  # of an earlier finetuning, which this one replaces
        notes = [note for note in summary.get("notes", []) if not str(note).startswith(said)]
        if zeta is not None:
            notes.append(f"{said}{zeta:g}, so its mask, size and speed are others than the subnetwork's")
        summary["notes"] = notes
        summary["seconds"] = time.perf_counter() - started
        finish(work, summary)
    return summary
