"""CelebA: hair colour by gender (the paper's Table 5)."""

from __future__ import annotations

from collections.abc import Sequence

from bise.studies.job import Job
from bise.studies.main_jobs import both, by_side, main_jobs, main_lines
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import Column, Published, footnote, provenance, size_columns, table

# Table 5; S and MFLOPs from the text below it
PAPER: dict[str, dict[str, Published]] = {
    "vanilla": {"unbiased, %": (76.5, 2.1), "S, %": 0.0, "MFLOPs": 1818.6},
    "best": {"unbiased, %": (89.7, 0.8), "S, %": (67.6, 0.8), "MFLOPs": (821.5, 33.1)},
    "last": {"unbiased, %": (90.1, 0.9), "S, %": (67.7, 1.1), "MFLOPs": (821.9, 32.3)},
    "finetuned": {"unbiased, %": (91.8, 1.3)},
}


def _jobs(scale: Scale) -> list[Job]:
    return [job for base in both(Job(label="", kind="vanilla", recipe="celeba")) for job in main_jobs(scale, base)]


def _show(rows: Sequence[Row]) -> str:
    columns = [
        Column(title="unbiased, %", metric="unbiased"),
        Column(title="worst group, %", metric="worst_group"),
        *size_columns(),
    ]
    parts = ["Unbiased is the mean over the four cells." + provenance(rows)]
    for words, chosen, presets in by_side(rows):
        lines = main_lines(PAPER, presets)
        parts += [words, table(chosen, lines, columns), footnote(chosen, lines)]
    return "\n\n".join(parts)


STUDY = Study(name="celeba", title="CelebA", place="Table 5, and the text on it", jobs=_jobs, show=_show)
