"""`bise front`: a run's extraction again under several budgets, so that its page shows what each of them costs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from bise.base.checking import check_choice
from bise.base.errors import BadInput, named
from bise.base.plain import make_folder
from bise.data.core.contract import Progress, labels
from bise.data.core.identity import identities
from bise.engine.checkpoints import EVERY
from bise.engine.inputs import Inputs
from bise.extraction.algorithm import extract
from bise.extraction.budget import NAMES, with_budget
from bise.extraction.config import ExtractConfig
from bise.jobs.pipeline import Work, finish, origin_of
from bise.jobs.steps import Splits, check_same_data, saved, splits_to_learn
from bise.measure.audits import audit
from bise.methods.refit.refitting import check_refittable, refit
from bise.network.outputs import device_of
from bise.runs.folder import Run, check_complete, read_summary
from bise.runs.schema import read

BUDGETS = (0.5, 0.3, 0.15)
"""Shares of the whole model that are tried unless others are given."""
FIGURES = ("accuracy", "unbiased", "worst_group", "interval")
"""What a point of the front takes of an audit."""


def front_job(
    model: nn.Module,
    splits: Splits,
    folder: Path,
    *,
    of: str = "macs",
    budgets: Sequence[float] = BUDGETS,
    refitted: bool = True,
    workers: int | None = None,
    progress: Progress,
    resume: bool = False,
    every: float = EVERY,
) -> dict[str, Any]:
    """Extract under each budget by the run's settings, refit and audit each, and add them to the run's summary.

    From the smallest on, so that one that can't be reached is refused before there is work.
    """
    started = time.perf_counter()
    check_choice("of", of, tuple(NAMES))
    check_complete(folder)
    sub, made = saved(folder, "subnetwork", model), read(folder / "config.json")
    configs = {share: _limited(made["extract"], of, share) for share in sorted(set(budgets))}
    data = splits_to_learn(splits)
    check_same_data(folder, data, "front")
    split = "test" if data["test"] is not None else "val"
    if data[split] is None:
        raise BadInput("a front compares networks on test or on val, and --data has neither; mark rows as one of them")
    if refitted:
        example = Inputs(data["train"], device_of(model), workers=workers).example()
        check_refittable(sub, example, made.get("bottleneck"))
    known = identities(data)
    whole = {"front": {"of": of, "budgets": list(configs), "refit": refitted}} | origin_of(model, sub, known)
    with Run(folder, whole, job="front", resume=resume, every=every) as run:
        if run.finished is not None:
            return run.finished
        cells = labels(data["train"], progress=progress)
        work = Work(**data, cells=cells, known=known, run=run, workers=workers, progress=progress)
        places: dict[str, Any] = {"sites": made.get("sites"), "bottleneck": made.get("bottleneck")}
        points = [_point(work, model, of, share, config, split, refitted, places) for share, config in configs.items()]
        summary = read_summary(folder) | {"front": {"of": of, "split": split, "points": points}}
        summary["seconds"] = time.perf_counter() - started
        finish(work, summary)
    return summary


def _limited(content: Mapping[str, Any], of: str, share: float) -> ExtractConfig:
    """A run's settings under another budget."""
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
    }
    return with_budget(ExtractConfig(**given | {f"max_{kind}": None for kind in NAMES}), {of: share})


def _point(
    work: Work,
    model: nn.Module,
    of: str,
    share: float,
    config: ExtractConfig,
    split: str,
    refitted: bool,
    places: dict[str, Any],
) -> dict[str, Any]:
    """One budget: its networks, saved in the run's folder `front` and audited on a split."""
    name = f"{of}-{share:g}"
    how: dict[str, Any] = {"workers": work.workers, "progress": work.progress}
    kept = work.kept(f"front-{name}")
    found = extract(model, work.train, val=work.val, config=config, **places, **kept, **how)
    networks = {"subnetwork": found}
    if refitted:
        networks["refitted"] = refit(found, work.train, val=work.val, seed=config.seed, **how)
    make_folder(work.folder / "front")
    figures = {}
    for which, network in networks.items():
        part = name if which == "subnetwork" else f"{name}-{which}"
        network.save(work.folder / "front" / part)
        with named(split):
            whole = audit(network, getattr(work, split), aligned=work.cells, probe=False, **how).as_dict()
        figures[which] = {key: whole[key] for key in FIGURES}
    opened, units = found.units
    return {"budget": share, **found.record["budget"], "units": {"open": opened, "all": units}, "networks": figures}
