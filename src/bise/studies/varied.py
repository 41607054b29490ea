"""Jobs and lines of studies that change one setting of an extraction on BiasedMNIST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bise.studies.job import PRESETS, Job
from bise.studies.scale import Scale
from bise.studies.tables import Line, Published


def varied_jobs(
    scale: Scale, variants: Mapping[str, Mapping[str, Any]], *, rho: float = 0.99, presets: Sequence[str] = PRESETS
) -> list[Job]:
    """An extraction for each variant, {label: changes}: all seeds by the default preset, one by the paper's."""
    out = []
    for preset in presets:
        for seed in scale.seeds if preset == "balanced" else scale.seeds[:1]:
            base = Job(label="", kind="extract", rho=rho, seed=seed, preset=preset)
            out += [replace(base, label=f"{label}, {preset}", changes=changes) for label, changes in variants.items()]
    return out


def varied_lines(
    variants: Sequence[str], paper: Mapping[str, Mapping[str, Published]], presets: Sequence[str] = PRESETS
) -> list[Line]:
    """A line for each variant and preset, the paper's figures under its own."""
    last = presets[-1]
    return [
        Line(
            title=f"{label}, preset `{preset}`",
            label=f"{label}, {preset}",
            paper=paper.get(label, {}) if preset == last else {},
        )
        for label in variants
        for preset in presets
    ]
