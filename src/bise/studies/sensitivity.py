"""Sensitivity to E, κ, υ and τ_min (Tables H.1 to H.4 of the supplement)."""

from __future__ import annotations

from collections.abc import Sequence

from bise.studies.job import Job
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import Column, Published, footnote, size_columns, table
from bise.studies.varied import varied_jobs, varied_lines

SYMBOLS = {"head_epochs": "E", "kappa": "κ", "upsilon": "υ", "tau_min": "τ_min"}
# Tables H.1 to H.4: accuracy, sparsity, MFLOPs
PAPER: dict[str, dict[float, tuple[Published, Published, Published]]] = {
    "head_epochs": {
        1: ((95.9, 0.4), (18.9, 7.3), (336.7, 30.4)),
        5: ((96.0, 0.5), (17.6, 7.1), (342.1, 29.5)),
        10: ((96.0, 0.4), (20.0, 6.1), (331.9, 25.2)),
        20: ((95.7, 0.5), (17.2, 7.6), (343.7, 31.6)),
        50: ((96.1, 0.5), (20.9, 4.4), (328.3, 18.2)),
    },
    "kappa": {
        0.1: ((96.0, 0.4), (20.6, 3.9), (329.3, 16.3)),
        0.5: ((96.1, 0.5), (20.9, 4.4), (328.3, 18.2)),
        0.8: ((96.2, 0.6), (18.9, 7.6), (336.5, 31.4)),
    },
    "upsilon": {
        1: ((95.9, 0.5), (22.4, 6.3), (322.2, 26.2)),
        5: ((95.8, 0.5), (18.3, 6.2), (338.9, 25.7)),
        10: ((96.1, 0.5), (20.9, 4.4), (328.3, 18.2)),
        20: ((96.0, 0.5), (19.2, 6.3), (335.2, 26.2)),
        50: ((96.5, 0.3), (19.8, 8.0), (333.0, 33.3)),
    },
    "tau_min": {
        1e-1: ((95.9, 0.6), (20.4, 5.0), (330.3, 20.7)),
        1e-2: ((96.1, 0.5), (20.9, 4.4), (328.3, 18.2)),
        1e-3: ((96.1, 0.5), (20.9, 4.4), (328.3, 18.2)),
        1e-4: ((96.1, 0.5), (20.9, 4.4), (328.3, 18.2)),
    },
}


def _label(name: str, value: float) -> str:
    return f"{SYMBOLS[name]} = {value:g}"


def _jobs(scale: Scale) -> list[Job]:
    variants = {
        _label(name, value): {name: value} for name, values in PAPER.items() for value in scale.some(tuple(values))
    }
    return varied_jobs(scale, variants)


def _show(rows: Sequence[Row]) -> str:
    columns = [Column(title="accuracy, %", metric="accuracy"), *size_columns()]
    names = [column.title for column in columns]
    columns.append(Column(title="seconds", metric="seconds", factor=1, aside=True))
    out = ["BiasedMNIST, ρ = 0.99, best masks."]
    for name, values in PAPER.items():
        paper = {_label(name, value): dict(zip(names, figures, strict=True)) for value, figures in values.items()}
        out.append(table(rows, varied_lines(rows, list(paper), paper), columns))
    return "\n\n".join([*out, footnote(rows)])


STUDY = Study(
    name="sensitivity", title="Sensitivity to E, κ, υ and τ_min", place="Tables H.1 to H.4", jobs=_jobs, show=_show
)
