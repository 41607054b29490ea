"""BatchNorm's statistics and parameters, updated while masks are learned or after (Tables I.1 and I.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bise.studies.biased_mnist import ACCURACY as MAIN_ACCURACY
from bise.studies.biased_mnist import MFLOPS as MAIN_MFLOPS
from bise.studies.biased_mnist import RHOS
from bise.studies.biased_mnist import SPARSITY as MAIN_SPARSITY
from bise.studies.job import Job
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import Column, Line, Published, by_column, footnote, size_columns, table

KINDS: dict[str, dict[str, Any]] = {
    "frozen": {},
    "statistics": {"changes": {"bn": "statistics"}},
    "all": {"changes": {"bn": "all"}},
    "reestimated": {"reestimate": True},
}
TITLES = {
    "frozen": "frozen",
    "statistics": "statistics updated while masks are learned",
    "all": "statistics, β and γ updated",
    "reestimated": "statistics estimated anew afterwards (`bise.reestimate`)",
}
ACCURACY: dict[str, tuple[Published, ...]] = {
    "frozen": MAIN_ACCURACY["best"],
    "statistics": ((97.3, 0.1), (94.9, 1.1), (94.0, 1.2)),
    "all": ((96.9, 0.4), (92.2, 1.9), (90.1, 3.7)),
}
SPARSITY: dict[str, tuple[Published, ...]] = {
    "frozen": MAIN_SPARSITY["best"],
    "statistics": ((18.3, 6.8), (26.5, 4.0), (33.3, 7.9)),
    "all": ((32.7, 7.7), (45.7, 3.9), (48.2, 12.0)),
}
MFLOPS: dict[str, tuple[Published, ...]] = {
    "frozen": MAIN_MFLOPS["best"],
    "statistics": ((339.2, 28.1), (305.0, 16.7), (276.9, 32.9)),
    "all": ((279.5, 32.0), (225.6, 16.2), (214.9, 49.8)),
}


def _jobs(scale: Scale) -> list[Job]:
    return [
        Job(label=label, kind="extract", rho=rho, seed=seed, **settings)
        for seed in scale.seeds
        for rho in scale.some(RHOS)
        for label, settings in KINDS.items()
    ]


def _show(rows: Sequence[Row]) -> str:
    accuracy, s, m = (
        by_column(figures, RHOS, title)
        for figures, title in ((ACCURACY, "ρ = {}"), (SPARSITY, "S {}, %"), (MFLOPS, "MFLOPs {}"))
    )
    columns = [Column(title=f"ρ = {rho}", metric="accuracy", where={"rho": rho}) for rho in RHOS]
    sizes = [column for rho in RHOS for column in size_columns({"rho": rho}, f" {rho}")]
    first = [Line(title=TITLES[kind], label=kind, paper=accuracy.get(kind, {})) for kind in KINDS]
    second = [Line(title=TITLES[kind], label=kind, paper={**s.get(kind, {}), **m.get(kind, {})}) for kind in KINDS]
    return "\n\n".join(
        [
            "BiasedMNIST, preset `balanced`, best masks. Accuracy on the unbiased test set, %:",
            table(rows, first, columns),
            "Sparsity and MFLOPs, as the paper counts them:",
            table(rows, second, sizes),
            footnote(rows),
        ]
    )


STUDY = Study(name="batch-norm", title="BatchNorm", place="Tables I.1 and I.2", jobs=_jobs, show=_show)
