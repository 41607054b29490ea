"""Wrong bias labels (Figure L.1 of the supplement)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bise.studies.biased_mnist import ACCURACY
from bise.studies.drawing import band, grouped, panels, published, write_svg
from bise.studies.job import Job
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import Column, Line, footnote, matching, size_columns, table, value_at

LEVELS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
VARIANTS: dict[str, dict[str, Any]] = {
    "": {},
    ", no margin, no smoothing": {"margin": 0.0, "smoothing": 0.0},
}


def _label(p: float, variant: str) -> str:
    return f"p = {100 * p:g} %{variant}"


def _jobs(scale: Scale) -> list[Job]:
    out = []
    for seed in scale.seeds:
        out.append(Job(label="vanilla", kind="vanilla", rho=0.99, seed=seed))
        for p in scale.some(LEVELS):
            bias = "noise" if p else "labels"
            for title, changes in VARIANTS.items():
                label = _label(p, title)
                out.append(Job(label=label, kind="extract", rho=0.99, seed=seed, bias=bias, noise=p, changes=changes))
    return out


def _show(rows: Sequence[Row]) -> str:
    columns = [
        Column(title="accuracy, %", metric="accuracy"),
        Column(title="last, %", metric="last.accuracy"),
        Column(title="worst group, %", metric="worst_group"),
        *size_columns(),
    ]
    labels = ["vanilla", *(_label(p, variant) for variant in VARIANTS for p in LEVELS)]
    lines = [Line(title=label, label=label) for label in labels]
    return (
        "BiasedMNIST, ρ = 0.99, preset `balanced`: a share p of the training samples has a"
        " wrong b. The paper shows a figure; the star in ours is its p = 0 %.\n\n"
        + table(rows, lines, columns)
        + "\n\n"
        + footnote(rows)
    )


def _draw(rows: Sequence[Row], path: Path) -> None:
    figure, (axis,) = panels(1, width=4.2)
    for variant in VARIANTS:
        noisy = [row for row in rows if row["label"] in [_label(p, variant) for p in LEVELS]]
        found = grouped((100 * (value_at(row, "config.bias.p") or 0.0), value_at(row, "accuracy")) for row in noisy)
        band(axis, {p: [100 * value for value in values] for p, values in found.items()}, f"BISE{variant}")
    vanilla = [100 * row["accuracy"] for row in matching(rows, label="vanilla")]
    if vanilla:
        mean = sum(vanilla) / len(vanilla)
        axis.axhline(mean, color="grey", linestyle="--", label=f"vanilla, n = {len(vanilla)}")
    published(axis, {0.0: ACCURACY["best"][0]})
    axis.set_xlabel("wrong bias labels, %")
    axis.set_ylabel("accuracy, %")
    axis.legend()
    write_svg(figure, path)


STUDY = Study(name="label-noise", title="Wrong bias labels", place="Figure L.1", jobs=_jobs, show=_show, draw=_draw)
