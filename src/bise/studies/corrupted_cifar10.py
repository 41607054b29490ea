"""Corrupted-CIFAR10: accuracy, sparsity and MACs at four ρ (the paper's Tables 3 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bise.studies.job import Job
from bise.studies.main_jobs import both, by_side, main_jobs, main_lines
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import Column, Published, by_column, footnote, provenance, size_columns, table

RHOS = (0.995, 0.99, 0.98, 0.95)

ACCURACY: dict[str, tuple[Published, ...]] = {
    "vanilla": ((22.03, 0.39), (26.89, 0.25), (33.42, 0.65), (47.18, 0.34)),
    "last": ((21.94, 5.18), (23.14, 11.42), (42.80, 1.61), (55.38, 1.96)),
    "finetuned": ((34.18, 2.14), (42.44, 0.36), (50.53, 1.13), (57.22, 1.81)),
}
SPARSITY: dict[str, tuple[Published, ...]] = {"last": ((77.8, 2.3), (92.2, 1.0), (89.6, 0.6), (82.3, 0.6))}
MFLOPS: dict[str, tuple[Published, ...]] = {
    "vanilla": (37.1, 37.1, 37.1, 37.1),
    "last": ((15.5, 0.9), (15.7, 1.1), (19.2, 0.8), (22.5, 0.6)),
}


def _jobs(scale: Scale) -> list[Job]:
    base = Job(label="", kind="vanilla", recipe="corrupted-cifar10")
    bases = [one for rho in scale.some(RHOS) for one in both(replace(base, rho=rho))]
    jobs = [job for one in bases for job in main_jobs(scale, one)]
    return sorted(jobs, key=lambda job: job.seed)


def _show(rows: Sequence[Row]) -> str:
    accuracy = [Column(title=f"ρ = {rho}", metric="accuracy", where={"rho": rho}, digits=2) for rho in RHOS]
    size = [column for rho in RHOS for column in size_columns({"rho": rho}, f" {rho}")]
    s, m = by_column(SPARSITY, RHOS, "S {}, %"), by_column(MFLOPS, RHOS, "MFLOPs {}")
    sizes = {what: {**s.get(what, {}), **m.get(what, {})} for what in ("vanilla", "last")}
    parts = [
        "Accuracy on the unbiased test set, %; as in the paper there is no validation set, so the last mask is"
        " taken. The extractions by the default have E = 50 and γ = 1, or 10 at ρ = 0.995, which was chosen on pictures"
        " held out from training. The protocol `authors` reads the pictures that its authors share, `paper` makes its"
        " own." + provenance(rows)
    ]
    for words, chosen, presets in by_side(rows):
        parts += [
            words,
            table(chosen, main_lines(by_column(ACCURACY, RHOS, "ρ = {}"), presets, best=False), accuracy),
            "Sparsity S in % of parameters and MFLOPs, both as the paper counts them:",
            table(chosen, main_lines(sizes, presets, best=False), size),
            footnote(chosen, main_lines({}, presets, best=False)),
        ]
    return "\n\n".join(parts)


STUDY = Study(
    name="corrupted-cifar10",
    title="Corrupted-CIFAR10",
    place="Tables 3 and 4",
    jobs=_jobs,
    show=_show,
)
