"""BiasedMNIST: accuracy, sparsity and MACs at three ρ, by both protocols and their presets (Tables 1 and 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bise.studies.job import Job
from bise.studies.main_jobs import both, by_side, main_jobs, main_lines
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import Column, Published, by_column, footnote, matching, size_columns, table

RHOS = (0.99, 0.995, 0.997)

# Table 1, and Table 2 (sparsity in percent, MFLOPs)
ACCURACY: dict[str, tuple[Published, ...]] = {
    "vanilla": ((88.9, 0.4), (75.1, 4.2), (66.1, 1.7)),
    "best": ((96.1, 0.5), (92.2, 1.9), (90.8, 0.6)),
    "finetuned": ((98.1, 0.1), (96.3, 0.7), (95.9, 0.4)),
    "last": ((95.7, 0.6), (91.2, 1.9), (88.3, 3.2)),
}
SPARSITY: dict[str, tuple[Published, ...]] = {
    "best": ((20.9, 4.4), (29.9, 7.5), (35.0, 1.5)),
    "last": ((18.9, 4.3), (30.0, 6.8), (33.8, 4.0)),
}
MFLOPS: dict[str, tuple[Published, ...]] = {
    "vanilla": (415.4, 415.4, 415.4),
    "best": ((328.3, 18.2), (290.8, 31.0), (269.6, 6.2)),
    "last": ((336.4, 17.7), (290.7, 28.3), (274.6, 16.7)),
}


def _jobs(scale: Scale) -> list[Job]:
    bases = [base for rho in scale.some(RHOS) for base in both(Job(label="", kind="vanilla", rho=rho))]
    jobs = [job for base in bases for job in main_jobs(scale, base)]
    return sorted(jobs, key=lambda job: job.seed)  # a seed of everything before the next one


def headline(rows: Sequence[Row]) -> str:
    """The default in one table: accuracy and sparsity at each ρ, under the protocol `paper`."""
    rows = matching(rows, protocol="paper")
    accuracy = [Column(title=f"ρ = {rho}", metric="accuracy", where={"rho": rho}) for rho in RHOS]
    closed = [Column(title=f"closed, ρ = {rho}", metric="sparsity.paper", where={"rho": rho}, factor=1) for rho in RHOS]
    of, size = by_column(ACCURACY, RHOS, "ρ = {}"), by_column(SPARSITY, RHOS, "closed, ρ = {}")
    figures = {what: {**of[what], **size.get(what, {})} for what in of}
    lines = [line for line in main_lines(figures, ["balanced"]) if not line.part]
    titles = ("vanilla", "BISE", "BISE + finetuning", "dense, finetuned alike")
    named = [replace(line, title=title) for line, title in zip(lines, titles, strict=True)]
    return table(rows, named, [*accuracy, *closed])


def _show(rows: Sequence[Row]) -> str:
    return "\n\n".join(f"{words}\n\n{_tables(chosen, presets)}" for words, chosen, presets in by_side(rows))


def _tables(rows: Sequence[Row], presets: Sequence[str]) -> str:
    accuracy = [Column(title=f"ρ = {rho}", metric="accuracy", where={"rho": rho}) for rho in RHOS]
    worst = [Column(title=f"ρ = {rho}", metric="worst_group", where={"rho": rho}) for rho in RHOS]
    size = [column for rho in RHOS for column in size_columns({"rho": rho}, f" {rho}")]
    sizes = {
        what: {
            **by_column(SPARSITY, RHOS, "S {}, %").get(what, {}),
            **by_column(MFLOPS, RHOS, "MFLOPs {}").get(what, {}),
        }
        for what in ("vanilla", "best", "last")
    }
    return "\n\n".join(
        [
            "Accuracy on the unbiased test set, %:",
            table(rows, main_lines(by_column(ACCURACY, RHOS, "ρ = {}"), presets), accuracy),
            "Worst of the 100 cells, %:",
            table(rows, main_lines({}, presets), worst),
            "Sparsity S in % of parameters and MFLOPs, both as the paper counts them:",
            table(rows, main_lines(sizes, presets), size),
            footnote(rows, main_lines({}, presets)),
        ]
    )


STUDY = Study(
    name="biased-mnist",
    title="BiasedMNIST",
    place="Tables 1 and 2",
    jobs=_jobs,
    show=_show,
)
