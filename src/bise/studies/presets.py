"""Beyond the paper: both presets and variants of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bise.extraction.config import GAMMA_AND_E
from bise.studies.biased_mnist import RHOS
from bise.studies.job import Job
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import Column, Line, footnote, table

ANEW = "`paper`, colours drawn anew"
OVER_BATCH = "`paper`, MI over the batch"
EXPLAINING = ("`paper`", ANEW, OVER_BATCH)
"""The preset, and what tells it from the paper's figures: at every ρ and seed."""
HELD_OUT: dict[str, Any] = {"baseline": False}
"""The vanilla model knows held-out training samples by heart, so that masks would hardly be as good on them."""
VARIANTS: dict[str, dict[str, Any]] = {
    "`paper`": {"preset": "paper"},
    "`paper`, weights by group": {"preset": "paper", "changes": {"weights": "groups"}},
    OVER_BATCH: {"preset": "paper", "changes": {"mi": "batch"}},
    "`paper`, statistics updated": {"preset": "paper", "changes": {"bn": "statistics"}},
    "`paper`, annealed by progress": {"preset": "paper", "changes": {"patience": 2}},
    ANEW: {"preset": "paper", "redrawn": True},
    "`balanced`": {},
    "`balanced`, γ = 1, E = 50": {"changes": GAMMA_AND_E},
    "`balanced`, 40 steps": {"changes": {"steps": 40}},
    "`balanced`, 60 steps": {"changes": {"steps": 60}},
    "`balanced`, 60 steps, υ = 10": {"changes": {"steps": 60, "upsilon": 10}},
    "`balanced`, 60 steps, γ = 0.1": {"changes": {"steps": 60, "gamma": 0.1}},
    "`balanced`, 60 steps, statistics updated": {"changes": {"steps": 60, "bn": "statistics"}},
    "`balanced`, MI over conflicting samples": {"changes": {"mi": "conflicting"}},
    "`balanced`, in fp32": {"changes": {"precision": "fp32"}},
    "`balanced`, no margin, no smoothing": {"changes": {"margin": 0.0, "smoothing": 0.0}},
    "`balanced`, no margin": {"changes": {"margin": 0.0}},
    "`balanced`, no smoothing": {"changes": {"smoothing": 0.0}},
    "`balanced`, annealed by progress": {"changes": {"patience": 2}},
    "`balanced`, pictures jittered": {"changes": {"jitter": 1.0}},
    "`balanced`, selected on held-out training samples": {"held_out": 0.1, "changes": HELD_OUT},
    "`balanced`, selected on their worst cell": {"held_out": 0.1, "changes": {**HELD_OUT, "selection": "worst_group"}},
    "`balanced`, statistics updated": {"changes": {"bn": "statistics"}},
    "`balanced`, statistics estimated anew": {"reestimate": True},
    "`balanced`, colours drawn anew": {"redrawn": True},
    "`balanced`, on unbiased data": {"unbiased": True},
    "`balanced`, on unbiased data, statistics updated": {"unbiased": True, "changes": {"bn": "statistics"}},
}


TRIED_ONCE = [label for label, some in VARIANTS.items() if "preset" in some and label not in EXPLAINING]
"""Variants of the preset `paper`: where it is furthest from the paper's figures, one seed."""


def _jobs(scale: Scale) -> list[Job]:
    return [
        Job(label=label, kind="extract", rho=rho, seed=seed, **settings)
        for seed in scale.seeds
        for rho in scale.some(RHOS)
        for label, settings in VARIANTS.items()
        if label not in TRIED_ONCE or (seed, rho) == (scale.seeds[0], RHOS[-1])
    ]


def _show(rows: Sequence[Row]) -> str:
    out = [
        "BiasedMNIST; best masks, then the last one's accuracy. Where the note below says that lines come from other"
        " vanilla models, they can't be compared closely. The lines “on unbiased data” are no method: they extract on"
        " 60,000 digits in evenly drawn colours, which nobody has who has a biased training set. They show how much"
        " this search can find in the vanilla weights. “Colours drawn anew” are as biased as the training set's, but"
        " other digits conflict, which the vanilla model can't know by heart. Seconds are of one run, of seed 0, that"
        " had the machine to itself."
    ]
    for rho in RHOS:
        at = {"rho": rho}
        columns = [
            Column(title="accuracy, %", metric="accuracy", where=at),
            Column(title="last, %", metric="last.accuracy", where=at),
            Column(title="worst group, %", metric="worst_group", where=at),
            Column(title="S, %", metric="sparsity.paper", where=at, factor=1),
            Column(title="MFLOPs", metric="macs_paper", where=at, factor=1e-6),
            Column(title="seconds", metric="seconds", where=at, factor=1, aside=True),
        ]
        labels = [label for label in VARIANTS if label not in TRIED_ONCE or rho == RHOS[-1]]
        out += [f"ρ = {rho}:", table(rows, [Line(title=label, label=label) for label in labels], columns)]
    return "\n\n".join([*out, footnote(rows)])


STUDY = Study(name="presets", title="Presets", place="beyond the paper", jobs=_jobs, show=_show)
