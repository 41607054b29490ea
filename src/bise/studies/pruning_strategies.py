"""Filters removed at random, by magnitude and by BISE's scores, without finetuning (the paper's Figure 3b)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bise.studies.biased_mnist import ACCURACY, SPARSITY
from bise.studies.drawing import band, grouped, panels, published, write_svg
from bise.studies.job import Job
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import footnote, grid, matching, spread

STRATEGIES = {"random": "random", "magnitude": "L2 norm of the filter", "scores": "BISE's scores"}
LEVELS = tuple(round(0.05 * step, 2) for step in range(20))
SHOWN = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)


def _jobs(scale: Scale) -> list[Job]:
    base = Job(label="", kind="prune", rho=0.99, points=scale.some(LEVELS))
    return [
        replace(base, label=strategy, strategy=strategy, seed=seed) for seed in scale.seeds for strategy in STRATEGIES
    ]


def _show(rows: Sequence[Row]) -> str:
    lines = []
    for strategy, title in STRATEGIES.items():
        chosen = matching(rows, label=strategy)
        found = grouped((point["at"], point["accuracy"]) for row in chosen for point in row["points"])
        cells = [spread([100 * value for value in found.get(level, [])]) for level in SHOWN]
        lines.append([title, str(len(chosen)), *cells])
    return (
        "BiasedMNIST, ρ = 0.99, scores by the preset `balanced`. Accuracy in % where so many of the"
        " 240 filters are removed, the lowest first over all layers; the paper shows a figure over"
        " parameters, as ours does: stars are its vanilla model and its mask.\n\n"
        + grid(["removed", "n", *(f"{100 * level:.0f} %" for level in SHOWN)], lines)
        + "\n\n"
        + footnote(rows)
    )


def _draw(rows: Sequence[Row], path: Path) -> None:
    """Accuracy over the share of parameters that is gone; the mean over seeds at each share of filters."""
    figure, (axis,) = panels(1, width=5.6)
    for strategy, title in STRATEGIES.items():
        points = [point for row in matching(rows, label=strategy) for point in row["points"]]
        gone = grouped((point["at"], point["sparsity"]["paper"]) for point in points)
        hits = grouped((point["at"], 100 * point["accuracy"]) for point in points)
        if hits:
            band(axis, {sum(gone[at]) / len(gone[at]): hits[at] for at in hits}, title)
    mask = SPARSITY["best"][0]
    published(axis, {0.0: ACCURACY["vanilla"][0], mask[0] if isinstance(mask, tuple) else mask: ACCURACY["best"][0]})
    axis.set_xlabel("sparsity, % of parameters")
    axis.set_ylabel("accuracy, %")
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    write_svg(figure, path)


STUDY = Study(
    name="pruning-strategies", title="Other ways to prune", place="Figure 3b", jobs=_jobs, show=_show, draw=_draw
)
