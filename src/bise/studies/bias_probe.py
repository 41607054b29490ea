"""How well a linear classifier reads the colour off the bottleneck, before and after (Table M.1 of the supplement)."""

from __future__ import annotations

from collections.abc import Sequence

from bise.studies.job import Job
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import Column, Line, Published, footnote, table

# Table M.1
PAPER: dict[str, dict[str, Published]] = {
    "vanilla": {"colour read, %": (97.6, 1.0)},
    "BISE": {"colour read, %": (82.1, 7.3)},
}


def _jobs(scale: Scale) -> list[Job]:
    return [
        Job(label=label, kind="probe", rho=0.99, seed=seed, of=of)
        for seed in scale.seeds
        for label, of in (("vanilla", "dense"), ("BISE", "subnetwork"))
    ]


def _show(rows: Sequence[Row]) -> str:
    columns = [Column(title="colour read, %", metric="probe"), Column(title="constant answer, %", metric="chance")]
    lines = [Line(title=label, label=label, paper=figures) for label, figures in PAPER.items()]
    return (
        "BiasedMNIST, ρ = 0.99, preset `balanced`. The probe is trained for 100 epochs on training"
        " digits recoloured with ρ = 0.1, and measured on the test set.\n\n"
        + table(rows, lines, columns)
        + "\n\n"
        + footnote(rows)
    )


STUDY = Study(
    name="bias-probe", title="What the bottleneck tells about the bias", place="Table M.1", jobs=_jobs, show=_show
)
