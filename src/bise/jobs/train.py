"""`bise train`: a vanilla model by its recipe, in a run folder from which the other commands go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from bise.base.errors import BadInput
from bise.data.core.contract import Progress, labels
from bise.data.core.identity import hashes, identities, known_by
from bise.data.core.tokens import sentences_of
from bise.data.facts import facts_of
from bise.engine.checkpoints import EVERY
from bise.engine.config import TrainConfig
from bise.extraction.config import PRESETS
from bise.jobs.pipeline import Work, audited, finish, train_vanilla
from bise.jobs.python_sources import device_named
from bise.jobs.recipes import Recipe, preset_finetuning, recipe, splits, start
from bise.network.twin import check_finite_weights, fingerprint
from bise.runs.folder import Run
from bise.runs.trust import is_key


def train_job(
    chosen: Recipe,
    out: Path,
    *,
    seed: int = 0,
    epochs: int | None = None,
    device: str = "auto",
    weights: str | None = None,
    root: Path | None = None,
    select: str | None = None,
    limit: int | None = None,
    workers: int | None = None,
    progress: Progress,
    tensorboard: bool = False,
    resume: bool = False,
    every: float = EVERY,
) -> dict[str, Any]:
    """Train the recipe's vanilla model, audit it on test, write the run folder; returns the summary."""
    started = time.perf_counter()
    own = chosen.train if epochs is None else replace(chosen.train, epochs=epochs)
    chosen = replace(chosen, train=own, select=select or chosen.select)
    where = device_named(device)
    arguments: dict[str, Any] = {
        "rho": chosen.rho,
        "protocol": chosen.protocol,
        "seed": seed,
        "root": str(root.resolve()) if root is not None else None,
        "select": chosen.select,
        "limit": limit,
    }
    train, test = (splits(name, recipe=chosen.name, **arguments) for name in ("train", "test"))
    assert train is not None
    assert test is not None
    cells = labels(train, progress=progress)
    cells.check_covers(labels(test, progress=progress), "test")  # now, and not after hours of training
    model, provenance, shape = start(chosen, weights, seed=seed)
    known = identities({"train": train, "test": test})
    check_finite_weights(model)
    whole = {
        "job": "train",
        "source": _source(chosen, shape, arguments),
        "recipe": asdict(chosen),
        "seed": seed,
        "start": provenance,
        "weights": weights,
        "device": str(where),
        "limit": limit,
        "sha256": {"start": fingerprint(model)} | hashes(known),
    }
    with Run(out, whole, job="train", resume=resume, every=every, tensorboard=tensorboard) as run:
        if run.finished is not None:
            return run.finished
        work = Work(train=train, test=test, cells=cells, known=known, run=run, workers=workers, progress=progress)
        trained = train_vanilla(work, model, chosen.train, where)
        summary = audited(work, "vanilla", trained)
        summary |= {"metric": chosen.metric, "weights": {"sha256": fingerprint(trained)}, "start": provenance}
        summary |= _about_data(work, summary["vanilla"]["n"]) | {"seconds": time.perf_counter() - started}
        finish(work, summary)
    return summary


def _source(chosen: Recipe, shape: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """What the commands that follow find model and data by."""
    return {
        "model": f"recipe:{chosen.name}",
        "model_arguments": shape,
        "weights": "model.safetensors",
        "data": f"recipe:{chosen.name}",
        "data_arguments": arguments,
    }


def _about_data(work: Work, tested: int) -> dict[str, Any]:
    """Facts about the data; where both splits hold texts, with how many there are and how many are cut off."""
    out = {
        "rho": list(work.cells.rho),
        "data": facts_of(work.cells, work.train) | known_by(work.known),
        "samples": {"train": len(work.cells), "test": tested},
    }
    texts = {name: sentences_of(data) for name, data in (("train", work.train), ("test", work.test))}
    if all(texts.values()):
        out["texts"] = {name: asdict(data.counts) for name, data in texts.items() if data is not None}
    return out


def recipe_of(source: dict[str, Any]) -> Recipe | None:
    """The recipe behind a run's source, or None where model and data are the user's own."""
    kind, _, name = str(source.get("data")).partition(":")
    if kind != "recipe" or not is_key(source, "data"):
        return None
    arguments = source["data_arguments"]
    rho = arguments.get("rho")
    return recipe(
        name,
        rho=tuple(rho) if isinstance(rho, list) else rho,
        protocol=arguments.get("protocol"),
        seed=arguments.get("seed", 0),
    )


def searching(chosen: Recipe, splits: Callable[..., Any], source: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """(data, source) of what follows a vanilla model: with the recipe's own data for masks in the place of train."""
    if chosen.search == "train":
        return splits, source
    arguments = source["data_arguments"] | {"train": chosen.search}
    return partial(splits, train=chosen.search), source | {"data_arguments": arguments}


def finetune_settings(preset: str, source: dict[str, Any]) -> dict[str, Any]:
    """The fields of a finetuning: our default, or the paper's, as the source's recipe changes it where there is one."""
    if preset not in PRESETS:
        raise BadInput(f"--preset {preset!r} is unknown; use {', '.join(PRESETS)}")
    chosen = recipe_of(source)
    if preset == "balanced":
        return {} if chosen is None else dict(chosen.finetune_balanced)
    return asdict(TrainConfig.paper() if chosen is None else preset_finetuning(chosen, preset))
