"""BiasedMNIST at ρ = 0.999, where the vanilla model has learned nothing but colours (Table G.1 of the supplement)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bise.studies.job import Job
from bise.studies.main_jobs import both, by_side, main_jobs, main_lines
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import Column, Line, Published, footnote, size_columns, table

# Supplement, Table "Results on BiasedMNIST for ρ = 0.999"
PAPER: dict[str, dict[str, Published]] = {
    "vanilla": {"accuracy, %": (10.0, 0.1), "S, %": 0.0, "MFLOPs": 415.4},
    "best": {"accuracy, %": (15.7, 1.3), "S, %": (85.6, 4.0), "MFLOPs": (59.8, 16.7)},
    "finetuned": {"accuracy, %": (60.5, 9.4), "S, %": (85.6, 4.0), "MFLOPs": (59.8, 16.7)},
    "last": {"accuracy, %": (14.7, 2.5), "S, %": (78.2, 2.9), "MFLOPs": (90.5, 11.9)},
}


STATISTICS = Line(title="BISE, preset `balanced`, BatchNorm's statistics updated", label="statistics, balanced")


def _jobs(scale: Scale) -> list[Job]:
    job = Job(label=STATISTICS.label, kind="extract", rho=0.999, changes={"bn": "statistics"})
    main = [one for base in both(Job(label="", kind="vanilla", rho=0.999)) for one in main_jobs(scale, base)]
    return main + [replace(job, seed=s) for s in scale.seeds]


def _show(rows: Sequence[Row]) -> str:
    columns = [
        Column(title="accuracy, %", metric="accuracy"),
        Column(title="worst group, %", metric="worst_group"),
        *size_columns(),
    ]
    words = "Extractions by `balanced` have 60 steps an epoch and υ = 10 instead of 20 and 5; both were chosen on val."
    parts = [words]
    for said, chosen, presets in by_side(rows):
        lines = [*main_lines(PAPER, presets), *([STATISTICS] if presets[-1] == "paper" else [])]
        parts += [said, table(chosen, lines, columns), footnote(chosen, lines)]
    return "\n\n".join(parts)


STUDY = Study(
    name="rho-0.999",
    title="BiasedMNIST, ρ = 0.999",
    place="Table G.1",
    jobs=_jobs,
    show=_show,
)
