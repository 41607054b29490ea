"""Scores as a ranking: accuracy and sparsity over the threshold ζ (Figure J.1 of the supplement)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bise.extraction.config import ExtractConfig
from bise.studies.biased_mnist import ACCURACY, SPARSITY
from bise.studies.drawing import grouped, panels, published, write_svg
from bise.studies.job import Job
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import footnote, grid, spread

ZETAS = tuple(step / 20 for step in range(21))
SHOWN = (0.0, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 1.0)


def curve(scale: Scale, label: str, seed: int, gamma: float) -> Job:
    """Points over ζ at ρ = 0.99; the study of Pareto fronts takes the same ones."""
    return Job(label=label, kind="curve", rho=0.99, seed=seed, changes={"gamma": gamma}, points=scale.some(ZETAS))


def _jobs(scale: Scale) -> list[Job]:
    return [curve(scale, "balanced", seed, ExtractConfig().gamma) for seed in scale.seeds]


def _show(rows: Sequence[Row]) -> str:
    lines = []
    for title, name, factor in (("accuracy, %", "accuracy", 100), ("worst group, %", "worst_group", 100)):
        found = grouped((point["at"], factor * point[name]) for row in rows for point in row["points"])
        lines.append([title, str(len(rows)), *(spread(found.get(zeta, [])) for zeta in SHOWN)])
    gone = grouped((point["at"], point["sparsity"]["paper"]) for row in rows for point in row["points"])
    lines.append(["S, %", str(len(rows)), *(spread(gone.get(zeta, [])) for zeta in SHOWN)])
    return (
        "BiasedMNIST, ρ = 0.99, preset `balanced`: units with σ(m) ≥ ζ are kept; 0 is the"
        " vanilla model, 0.5 the mask. The paper shows a figure; stars in ours are what"
        " its text says.\n\n" + grid(["ζ", "n", *(f"{zeta:g}" for zeta in SHOWN)], lines) + "\n\n" + footnote(rows)
    )


def _draw(rows: Sequence[Row], path: Path) -> None:
    """One line a seed; points lie closer together where the scores do."""
    figure, axes = panels(3, width=3.0)
    for row in rows:
        zetas = [point["at"] for point in row["points"]]
        axes[0].plot(zetas, [100 * point["accuracy"] for point in row["points"]])
        axes[1].plot(zetas, [point["sparsity"]["paper"] for point in row["points"]])
        axes[2].hist(row["sigmoid_scores"], bins=40, histtype="step", label=f"seed {row['seed']}")
    published(axes[0], {0.0: ACCURACY["vanilla"][0], 0.5: ACCURACY["best"][0], 1.0: 10.0})
    published(axes[1], {0.0: 0.0, 0.5: SPARSITY["best"][0], 1.0: 100.0})
    names = (("ζ", "accuracy, %"), ("ζ", "sparsity, % of parameters"), ("σ(m)", "units"))
    for axis, (below, beside) in zip(axes, names, strict=True):
        axis.axvline(0.5, color="grey", linewidth=0.8)
        axis.set_xlabel(below)
        axis.set_ylabel(beside)
    axes[0].legend(loc="lower left")
    axes[2].legend()
    write_svg(figure, path)


STUDY = Study(name="ranking", title="Scores as a ranking", place="Figure J.1", jobs=_jobs, show=_show, draw=_draw)
