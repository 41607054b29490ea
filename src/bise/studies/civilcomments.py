"""CivilComments: toxic comments by whether an identity is mentioned (the paper's Table 6)."""

from __future__ import annotations

from collections.abc import Sequence

from bise.jobs.recipes import AUTHORS
from bise.studies.job import Job
from bise.studies.main_jobs import both, by_side, main_jobs, main_lines
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import Column, Line, Published, footnote, table

# Table 6; the share of closed units from the text below it
PAPER: dict[str, dict[str, Published]] = {
    "vanilla": {"worst group, %": (59.6, 2.7), "units closed, %": 0.0},
    "best": {"worst group, %": (80.4, 0.2), "units closed, %": (26.0, 5.4)},
    "last": {"worst group, %": (67.9, 1.8), "units closed, %": (45.7, 0.5)},
    "finetuned": {"worst group, %": (81.0, 0.1)},
}


def _jobs(scale: Scale) -> list[Job]:
    base = Job(label="", kind="vanilla", recipe="civilcomments")
    return [job for one in both(base) for job in main_jobs(scale, one)]


def _show(rows: Sequence[Row]) -> str:
    columns = [
        Column(title="worst group, %", metric="worst_group"),
        Column(title="unbiased, %", metric="unbiased"),
        Column(title="units closed, %", metric="sparsity.units", factor=1),
    ]
    parts = []
    for words, chosen, presets in by_side(rows):
        lines = main_lines(PAPER, presets)
        if presets[-1] == AUTHORS:
            lines[2:2] = [
                Line(title=f"BISE, preset `authors`, best by {by}", label="extraction, authors", part=f"by.{name}.")
                for name, by in (("accuracy", "accuracy"), ("unbiased", "the mean over cells"))
            ]
        parts += [words, table(chosen, lines, columns), footnote(chosen, main_lines(PAPER, presets))]
    return "\n\n".join(["Best masks are those by the worst cell of val.", *parts])


STUDY = Study(name="civilcomments", title="CivilComments", place="Table 6, and the text on it", jobs=_jobs, show=_show)
