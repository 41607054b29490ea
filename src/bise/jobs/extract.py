"""`bise extract`: the subnetwork of a user's model, audited before and after, in a run folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from bise.base.checking import check_choice
from bise.base.errors import BadInput
from bise.base.names import BIAS_SOURCES
from bise.data.core.contract import Progress, labels
from bise.data.core.identity import hashes, identities, warn_of_same
from bise.engine.checkpoints import EVERY
from bise.engine.checks import check_model
from bise.engine.inputs import Inputs
from bise.extraction.config import PRESETS, ExtractConfig
from bise.jobs.guessing import fresh_of, guessed, note, with_bias
from bise.jobs.pipeline import Work, extraction, finish, refitting_too
from bise.jobs.steps import Splits, evidence, splits_to_learn, warn_of_ignorance
from bise.methods.refit.config import RefitConfig
from bise.methods.refit.refitting import check_refittable
from bise.network.architectures.named import is_named
from bise.network.outputs import device_of
from bise.network.twin import fingerprint
from bise.runs.folder import Run
from bise.runs.schema import read
from bise.runs.trust import remember_own


def extract_job(
    model: nn.Module,
    splits: Splits,
    out: Path,
    *,
    preset: str,
    changes: dict[str, Any],
    bottleneck: str | None,
    sites: Sequence[str] | None,
    source: dict[str, Any],
    refit: bool = False,
    bias_by: str | None = None,
    workers: int | None = None,
    progress: Progress,
    tensorboard: bool = False,
    resume: bool = False,
    every: float = EVERY,
) -> dict[str, Any]:
    """Extract on the train split, select on val, audit on test before and after; returns the summary.

    With `refit`, the run ends with the last layer fitted anew, beside the subnetwork, which stays without it. With
    `bias_by`, bias labels of train are guessed, and kept in the run's folder.
    """
    if preset not in PRESETS:
        raise BadInput(f"--preset {preset!r} is unknown; use {', '.join(PRESETS)}")
    config = getattr(ExtractConfig, preset)(**_as_begun(out, changes))
    check_model(model)
    data = splits_to_learn(splits)
    if bias_by is not None:
        check_choice("--bias-by", bias_by, BIAS_SOURCES)
        data |= {name: with_bias(data[name], name) for name in ("val", "test")}
        how: dict[str, Any] = {"seed": config.seed, "resume": resume, "progress": progress}
        data["train"] = guessed(fresh_of(source, device_of(model)), data["train"], bias_by, out, **how)
    cells = labels(data["train"], progress=progress)
    cells.check_trainable()  # before there is a folder
    known = identities(data)
    fitted = RefitConfig(seed=config.seed) if refit else None
    if refit:
        check_refittable(model, Inputs(data["train"], device_of(model), workers=workers).example(), bottleneck)
    whole = {
        "source": source,
        "preset": preset,
        "extract": asdict(config),
        **({} if fitted is None else {"refit": asdict(fitted)}),
        **({} if bias_by is None else {"bias_by": bias_by}),
        "bottleneck": bottleneck,
        "sites": list(sites) if sites else None,
        "device": str(device_of(model)),
        "sha256": {"weights": fingerprint(model)} | hashes(known),
    }
    with Run(out, whole, job="extract", resume=resume, every=every, tensorboard=tensorboard) as run:
        remember_own(run.folder, source)  # its functions were named by the user, or belong to a run that is trusted
        if run.finished is not None:
            return run.finished
        note(run.folder, data["train"])
        warn_of_same(data, [("train", "test"), ("val", "test")])  # of train and val the extraction says it
        weights = source.get("weights") is not None or is_named(source.get("model"))
        standing = warn_of_ignorance(model, data["train"], cells, sites, bottleneck, workers, weights=weights)
        work = Work(**data, cells=cells, known=known, run=run, workers=workers, progress=progress)
        sub, summary = extraction(work, model, config, sites=sites, bottleneck=bottleneck)
        if fitted is not None:
            summary |= refitting_too(work, model, sub, fitted, bottleneck=bottleneck)
        summary |= {} if standing is None else {"standing_on_train": asdict(standing)}
        finish(work, summary, evidence(run.folder, model, sub, data["val"], data["test"], cells, progress))
    return summary


def _as_begun(folder: Path, changes: dict[str, Any]) -> dict[str, Any]:
    """The changes, and the places of gates of a run that is there: the defaults of earlier versions were others."""
    path = folder / "config.json"
    begun = read(path).get("extract") if path.is_file() else None
    kept = begun.get("gates_at") if isinstance(begun, dict) else None
    return changes if kept is None else {"gates_at": kept, **changes}
