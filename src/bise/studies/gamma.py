"""The weight of the mutual information against accuracy and sparsity (the paper's Figure 3a)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bise.extraction.config import PRESETS
from bise.studies.drawing import band, grouped, panels, published, write_svg
from bise.studies.job import Job
from bise.studies.loss_ablation import PAPER
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import Column, footnote, size_columns, table, value_at
from bise.studies.varied import varied_jobs, varied_lines

VALUES = (0.0, 0.1, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
SAID = {0.0: PAPER["reweighting alone"], 1.0: PAPER["both"]}
"""What the paper has in a table: accuracy, sparsity, MFLOPs."""


def _label(value: float) -> str:
    return f"γ = {value:g}"


def _jobs(scale: Scale) -> list[Job]:
    return varied_jobs(scale, {_label(value): {"gamma": value} for value in scale.some(VALUES)})


def _show(rows: Sequence[Row]) -> str:
    columns = [
        Column(title="accuracy, %", metric="accuracy"),
        Column(title="worst group, %", metric="worst_group"),
        *size_columns(),
    ]
    return (
        "BiasedMNIST, ρ = 0.99, best masks. The paper shows a figure; γ = 0 and 1 are in its Table 8.\n\n"
        + table(rows, varied_lines(rows, [_label(value) for value in VALUES], {}), columns)
        + "\n\n"
        + footnote(rows)
    )


def _draw(rows: Sequence[Row], path: Path) -> None:
    figure, axes = panels(2)
    for number, (metric, factor, title) in enumerate(
        (("accuracy", 100, "accuracy, %"), ("sparsity.paper", 1, "sparsity, % of parameters"))
    ):
        axis = axes[number]
        for preset in PRESETS:
            chosen = [row for row in rows if row["label"].endswith(preset)]
            found = grouped((value_at(row, "config.extract.gamma") or 0.0, value_at(row, metric)) for row in chosen)
            if found:
                band(axis, {x: [factor * y for y in ys] for x, ys in found.items()}, f"preset {preset}")
        published(axis, {gamma: figures[number] for gamma, figures in SAID.items()})
        axis.set_xscale("symlog", linthresh=0.1)
        axis.set_xlabel("γ")
        axis.set_ylabel(title)
    axes[0].legend()
    write_svg(figure, path)


STUDY = Study(name="gamma", title="The weight γ", place="Figure 3a", jobs=_jobs, show=_show, draw=_draw)
