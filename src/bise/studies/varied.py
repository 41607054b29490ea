"""Jobs and lines of studies that change one setting of an extraction on BiasedMNIST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bise.extraction.config import PRESETS
from bise.jobs.recipes import AUTHORS
from bise.studies.job import Job
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.tables import Line, Published


def varied_jobs(
    scale: Scale, variants: Mapping[str, Mapping[str, Any]], *, rho: float = 0.99, presets: Sequence[str] = PRESETS
) -> list[Job]:
    """An extraction for each variant, {label: changes}, by each preset; `authors` under its own protocol."""
    out = []
    for preset in presets:
        protocol = AUTHORS if preset == AUTHORS else None
        for seed in scale.seeds:
            base = Job(label="", kind="extract", rho=rho, seed=seed, preset=preset, protocol=protocol)
            out += [replace(base, label=f"{label}, {preset}", changes=changes) for label, changes in variants.items()]
    return out


def varied_lines(
    rows: Sequence[Row], variants: Sequence[str], paper: Mapping[str, Mapping[str, Published]]
) -> list[Line]:
    """A line for each variant and preset that there are rows of, the paper's figures under the last, its own."""
    presets = [preset for preset in PRESETS if any(row["label"].endswith(f", {preset}") for row in rows)] or PRESETS
    own = presets[-1]
    return [
        Line(
            title=f"{label}, preset `{preset}`",
            label=f"{label}, {preset}",
            paper=paper.get(label, {}) if preset == own else {},
        )
        for label in variants
        for preset in presets
    ]
