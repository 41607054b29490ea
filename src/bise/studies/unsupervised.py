"""No bias labels: b guessed by a second model of one epoch (Table 9; Tables K.1 and K.2 of the supplement)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bise.jobs.recipes import AUTHORS
from bise.studies.biased_mnist import ACCURACY as MAIN_ACCURACY
from bise.studies.biased_mnist import RHOS
from bise.studies.job import Job
from bise.studies.main_jobs import by_side
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import (
    Column,
    Line,
    Published,
    by_column,
    footnote,
    matching,
    provenance,
    size_columns,
    table,
)

# Tables K.1 and K.2
ACCURACY: dict[str, tuple[Published, ...]] = {
    "vanilla": MAIN_ACCURACY["vanilla"],
    "best": ((95.8, 0.5), (92.0, 2.0), (90.4, 0.6)),
    "last": ((95.4, 0.7), (90.6, 1.9), (90.0, 0.2)),
}
SPARSITY: dict[str, tuple[Published, ...]] = {
    "best": ((19.9, 4.4), (26.2, 4.7), (30.9, 2.3)),
    "last": ((19.7, 3.6), (28.8, 4.9), (28.8, 4.5)),
}
MFLOPS: dict[str, tuple[Published, ...]] = {
    "best": ((332.4, 18.2), (306.3, 19.5), (286.6, 9.7)),
    "last": ((333.4, 14.9), (295.6, 20.3), (295.5, 18.7)),
}
# Table 9
CELEBA: dict[str, dict[str, Published]] = {
    "vanilla": {"unbiased, %": (76.5, 2.1), "S, %": 0.0, "MFLOPs": 1818.6},
    "best": {"unbiased, %": (87.5, 2.5), "S, %": (67.3, 4.8), "MFLOPs": (953.1, 218.4)},
    "last": {"unbiased, %": (85.1, 1.8), "S, %": (67.7, 4.6), "MFLOPs": (936.5, 190.1)},
}


def _jobs(scale: Scale) -> list[Job]:
    out = []
    # who has no labels for train has none for val, so accuracy over samples selects
    digits: dict[str, Any] = {"changes": {"selection": "accuracy"}}
    faces: dict[str, Any] = {"recipe": "celeba"}
    by_authors: dict[str, Any] = {"protocol": AUTHORS, "preset": AUTHORS, "changes": {"weights": "cells"}}
    for seed in scale.seeds:
        for rho in scale.some(RHOS):
            out += _pair(rho=rho, seed=seed, **digits) + _pair(rho=rho, seed=seed, **by_authors)
    for seed in scale.seeds:
        out += _pair(seed=seed, **faces) + _pair(seed=seed, **{**faces, **by_authors})
    return out


def _pair(**settings: Any) -> list[Job]:
    vanilla = {name: value for name, value in settings.items() if name not in ("preset", "changes")}
    return [
        Job(label="vanilla", kind="vanilla", **vanilla),
        Job(label="guessed", kind="extract", bias="pseudo", **settings),
    ]


def _lines(paper: dict[str, dict[str, Published]]) -> list[Line]:
    return [
        Line(title="vanilla", label="vanilla", paper=paper.get("vanilla", {})),
        Line(title="BISE, b guessed", label="guessed", paper=paper.get("best", {})),
        Line(title="BISE (last), b guessed", label="guessed", part="last.", paper=paper.get("last", {})),
    ]


def _show(rows: Sequence[Row]) -> str:
    return "\n\n".join(f"{words}\n\n{_tables(chosen, presets[-1])}" for words, chosen, presets in by_side(rows))


def _tables(rows: Sequence[Row], side: str) -> str:
    preset = AUTHORS if side == AUTHORS else "balanced"
    digits, faces = matching(rows, recipe="biased-mnist"), matching(rows, recipe="celeba")
    accuracy = [Column(title=f"ρ = {rho}", metric="accuracy", where={"rho": rho}) for rho in RHOS]
    sizes = [column for rho in RHOS for column in size_columns({"rho": rho}, f" {rho}")]
    s, m = by_column(SPARSITY, RHOS, "S {}, %"), by_column(MFLOPS, RHOS, "MFLOPs {}")
    both = {what: {**s[what], **m[what]} for what in s}
    quality = [
        Column(title=f"{name} {rho}", metric=f"quality.{name}", where={"rho": rho})
        for rho in RHOS
        for name in ("recall", "precision")
    ]
    out = [
        f"BiasedMNIST, preset `{preset}`; masks are selected by accuracy over samples, which needs no b. Accuracy, %:",
        table(digits, _lines(by_column(ACCURACY, RHOS, "ρ = {}")), accuracy),
        "Sparsity and MFLOPs, as the paper counts them:",
        table(digits, _lines(both)[1:], sizes),
        "How many of the truly conflicting samples the guessed b marks (recall), out of all that it marks, %:",
        table(digits, [Line(title="guessed b", label="guessed")], quality),
    ]
    if faces:
        columns = [Column(title="unbiased, %", metric="unbiased"), *size_columns()]
        words = f"CelebA, preset `{preset}`; val's own labels select, by the mean over cells." + provenance(faces)
        out += [words, table(faces, _lines(CELEBA), columns)]
    else:
        out.append("CelebA: not yet run.")
    return "\n\n".join([*out, footnote(rows)])


STUDY = Study(
    name="unsupervised", title="Without bias labels", place="Table 9, Tables K.1 and K.2", jobs=_jobs, show=_show
)
