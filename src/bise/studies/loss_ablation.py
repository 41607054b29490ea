"""Which part of the objective does what: reweighting and mutual information, on and off (the paper's Table 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bise.studies.job import Job
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import Column, Published, footnote, size_columns, table
from bise.studies.varied import varied_jobs, varied_lines

# Table 8: accuracy, sparsity, MFLOPs
PAPER: dict[str, tuple[Published, Published, Published]] = {
    "neither": ((91.9, 0.7), (5.8, 2.6), (390.9, 10.6)),
    "reweighting alone": ((96.0, 0.4), (18.5, 6.5), (338.2, 27.1)),
    "information alone": ((91.1, 0.5), (18.7, 0.5), (337.3, 2.0)),
    "both": ((96.1, 0.5), (20.9, 4.4), (328.3, 18.2)),
}
WITHOUT_INFORMATION = {"mi": "none"}
# the default preset reweights by drawing cells evenly, so natural draws are what it does without
WITHOUT_REWEIGHTING = {"balanced": {"sampler": "natural"}, "paper": {"weights": "none"}, "authors": {"weights": "none"}}


def _jobs(scale: Scale) -> list[Job]:
    out = []
    for job in varied_jobs(scale, {label: {} for label in PAPER}):
        label = job.label.partition(",")[0]
        changes = dict(job.changes)
        if label in ("neither", "information alone"):
            changes |= WITHOUT_REWEIGHTING[job.preset]
        if label in ("neither", "reweighting alone"):
            changes |= WITHOUT_INFORMATION
        out.append(replace(job, changes=changes))
    return out


def _show(rows: Sequence[Row]) -> str:
    columns = [Column(title="accuracy, %", metric="accuracy"), *size_columns()]
    names = [column.title for column in columns]
    paper = {label: dict(zip(names, values, strict=True)) for label, values in PAPER.items()}
    columns.append(Column(title="worst group, %", metric="worst_group"))
    return (
        "BiasedMNIST, ρ = 0.99, best masks. In the preset `balanced` even draws stand in for"
        " the weights; what comes with them goes with them: margins and smoothed targets, and a mutual information over"
        " the whole batch instead of the conflicting samples.\n\n"
        + table(rows, varied_lines(rows, list(PAPER), paper), columns)
        + "\n\n"
        + footnote(rows)
    )


STUDY = Study(name="loss-ablation", title="The objective's parts", place="Table 8", jobs=_jobs, show=_show)
