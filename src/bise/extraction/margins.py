"""Margins on conflicting samples and smoothed targets: when they are chosen, how they are judged, and what follows.

The policy, all of it: a model that knows its training set by heart says little on it, so such a model is asked for a
margin and for smoothed targets (`choose`). Should these gain too little on val, the run is repeated without them
(`plainer`), and the better of both is kept (`better`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch

from bise.base.files import finite
from bise.data.core.sampling import Sampler
from bise.engine.inference import infer
from bise.extraction.config import ExtractConfig
from bise.extraction.problem import Problem
from bise.network.subnetwork import Subnetwork

LOOKED_AT, BY_HEART = 1000, 0.95
"""A model that classifies so large a share of so many evenly drawn training samples knows them by heart; …"""
MARGIN, SMOOTHING = 0.4, 0.2
"""… then these are taken: the study `presets` has BiasedMNIST with them, with one of them and with neither. …"""
WORTH = 0.25
"""… Should they take away a smaller share than this of the model's errors on val, the run is repeated without them."""

Run = Callable[[ExtractConfig, int], Subnetwork]
"""(configuration, 1 or 2: which of the two runs) -> what it found."""


def learned_with_margins(run: Run, config: ExtractConfig) -> Subnetwork:
    """What `run` finds, by the policy."""
    found = run(config, 1)
    plain = plainer(config, found.record)
    return found if plain is None else better(found, run(plain, 2), config)


def choose(problem: Problem) -> dict[str, float]:
    """Margin and smoothing, as configured or as they suit a model that knows its training set by heart.

    Where it was looked at, `right` is the share of evenly drawn training samples that it has right, its gates open.
    Smoothed targets reward closing units as such, so groups have to count alike; else only the largest would. Without
    val nobody would see where they do harm, as on a ResNet-18 that has learned all of Corrupted-CIFAR10. Jittered
    samples aren't known by heart.
    """
    c, cells = problem.config, problem.cells
    margin, smoothing = c.margin, c.smoothing
    if (c.sampler == "natural" and c.weights == "none") or problem.validation is None or c.jitter:
        margin, smoothing = margin or 0.0, smoothing or 0.0
    out: dict[str, float] = {}
    if margin is None or smoothing is None:
        generator = torch.Generator().manual_seed(c.seed)
        index = Sampler(len(cells), problem.strata).draw(1, LOOKED_AT, generator)
        logits = infer(problem.sub, problem.inputs, index=index, precision=problem.precision).logits
        out["right"] = right = float((logits.argmax(1).cpu() == cells.y[index]).float().mean())
        margin = margin if margin is not None else MARGIN * (right >= BY_HEART)
        smoothing = smoothing if smoothing is not None else SMOOTHING * (right >= BY_HEART)
    return out | {"margin": margin, "smoothing": smoothing}


def plainer(config: ExtractConfig, record: dict[str, Any]) -> ExtractConfig | None:
    """The configuration to try as well, where the margin or smoothing that was chosen has gained too little."""
    targets, selection = record["targets"], record["selection"]
    margin = targets["margin"] if config.margin is not None else 0.0
    smoothing = targets["smoothing"] if config.smoothing is not None else 0.0
    if (margin, smoothing) == (targets["margin"], targets["smoothing"]) or selection["kind"] != "best":
        return None  # the second: it collapsed before its first validation, and says so
    gained, errors = selection["value"] - selection["model"], 1 - selection["model"]
    return None if gained >= WORTH * errors else replace(config, margin=margin, smoothing=smoothing)


def may_run_again(config: ExtractConfig, targets: dict[str, float]) -> bool:
    """Whether a margin or smoothing was chosen for the run, so that it may be repeated without them."""
    return any(getattr(config, name) is None and targets[name] for name in ("margin", "smoothing"))


def better(found: Subnetwork, again: Subnetwork, config: ExtractConfig) -> Subnetwork:
    """The better on val of a run and one without margin and smoothing; its record tells of the other too.

    `run` of the selection says which of them it is, as in the log the rows of the second do.
    """
    if again.record["selection"]["kind"] != "best":  # it collapsed before its first validation
        return found
    value = {sub: sub.record["selection"]["value"] for sub in (found, again)}
    other, taken = sorted((again, found), key=lambda sub: (not _is_constant(sub), value[sub]))
    record, refused = taken.record, other.record
    record["selection"]["run"] = 1 if taken is found else 2
    tried = {name: refused["targets"][name] for name in ("margin", "smoothing")}
    record["targets"] |= {"right": found.record["targets"]["right"], "other": {**tried, "value": value[other]}}
    record["config"] = finite(asdict(config))
    record["seconds"] += refused["seconds"]
    record["phases"] = {phase: seconds + refused["phases"][phase] for phase, seconds in record["phases"].items()}
    return taken


def gives_one_class(history: list[dict[str, Any]], epoch: int) -> bool:
    """Whether the mask of this epoch gave every sample of val one class; epoch 0, the model itself, is in no row."""
    return any(row["epoch"] == epoch and row.get("val", {}).get("constant", False) for row in history)


def _is_constant(sub: Subnetwork) -> bool:
    return gives_one_class(sub.record["history"], sub.record["selection"]["epoch"])
