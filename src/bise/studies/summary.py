"""One table over the five data sets (Table N.1 of the supplement), from the jobs of the other studies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bise.studies import biased_mnist, celeba, civilcomments, corrupted_cifar10, multi_color_mnist
from bise.studies.job import Job
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import Column, Line, Published, footnote, grid, provenance, table

SETS: dict[str, tuple[str, dict[str, Any]]] = {
    "BiasedMNIST, ρ = 0.99": ("accuracy", {"recipe": "biased-mnist", "rho": 0.99}),
    "Corrupted-CIFAR10, ρ = 0.95": ("accuracy", {"recipe": "corrupted-cifar10", "rho": 0.95}),
    "CelebA": ("unbiased", {"recipe": "celeba"}),
    "Multi-Color MNIST": ("unbiased", {"recipe": "multi-color-mnist", "protocol": "paper"}),
    "CivilComments": ("worst_group", {"recipe": "civilcomments"}),
}
ACCURACY: dict[str, tuple[Published, ...]] = {
    "vanilla": ((88.9, 0.4), (47.18, 0.34), (76.5, 2.1), (58.2, 0.6), (59.6, 2.7)),
    "best": ((96.1, 0.5), (55.38, 1.96), (89.7, 0.8), (60.3, 1.0), (80.4, 0.2)),
    "finetuned": ((98.1, 0.1), (57.22, 1.81), (91.8, 1.3), (70.6, 1.6), (81.0, 0.1)),
}
COMPETITOR = ("98.1 (BCon+BBal)", "51.13 (DFA)", "91.4 (BCon+BBal)", "73.1 (VCBA)", "80.4 (Group DRO)")
SPARSITY: tuple[Published, ...] = ((20.9, 4.4), (82.3, 0.6), (67.6, 0.8), (17.1, 5.3), (26.0, 5.4))
FLOPS: tuple[Published, ...] = ((328.3, 18.2), (22.5, 0.6), (821.5, 33.1), (0.2123, 0.0135))


def _jobs(scale: Scale) -> list[Job]:
    """Those of the main tables, at the ρ that the summary has."""
    wanted = {"biased-mnist": 0.99, "corrupted-cifar10": 0.95}
    jobs = []
    for module in (biased_mnist, corrupted_cifar10, celeba, multi_color_mnist, civilcomments):
        for job in module.STUDY.jobs(scale):
            if job.protocol in (None, "paper") and job.preset == "balanced":
                jobs += [job] if wanted.get(job.recipe) in (None, job.rho) else []
    return jobs


def _show(rows: Sequence[Row]) -> str:
    names = list(SETS)
    lines = [
        Line(title="vanilla", label="vanilla", paper=_named("vanilla")),
        Line(title="BISE", label="extraction, balanced", paper=_named("best")),
        Line(title="BISE + finetuning", label="finetuned, balanced", paper=_named("finetuned")),
        Line(title="dense, finetuned alike", label="control, balanced"),
    ]
    columns = [Column(title=name, metric=metric, where=where) for name, (metric, where) in SETS.items()]
    closed = [
        Column(title=name, metric=_sparsity(where["recipe"]), where=where, factor=1)
        for name, (_, where) in SETS.items()
    ]
    cost = [
        Column(title=name, metric="macs_paper", where=where, factor=1e-6, digits=3)
        for name, (_, where) in SETS.items()
        if where["recipe"] != "civilcomments"
    ]
    best = "extraction, balanced"
    return "\n\n".join(
        [
            "Preset `balanced`; the best mask where there is a validation set, else the last one. Accuracy in % for"
            " BiasedMNIST and Corrupted-CIFAR10, the mean over groups for CelebA and Multi-Color MNIST, the worst group"
            " for CivilComments. Extractions have γ = 1 and E = 50 on Corrupted-CIFAR10, and"
            " E = 50 on Multi-Color MNIST." + provenance(rows),
            table(rows, lines, columns),
            "The best competitor, as the paper cites it:",
            grid(names, [COMPETITOR]),
            "Sparsity in % of parameters, for CivilComments of units:",
            table(rows, [Line(title="BISE", label=best, paper=dict(zip(names, SPARSITY, strict=True)))], closed),
            "MFLOPs:",
            table(rows, [Line(title="BISE", label=best, paper=dict(zip(names, FLOPS, strict=False)))], cost),
            footnote(rows, lines),
        ]
    )


def _named(what: str) -> dict[str, Published]:
    return dict(zip(SETS, ACCURACY[what], strict=True))


def _sparsity(recipe: str) -> str:
    return "sparsity.units" if recipe == "civilcomments" else "sparsity.paper"


STUDY = Study(name="summary", title="Summary", place="Table N.1", jobs=_jobs, show=_show)
