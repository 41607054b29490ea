"""Beyond the paper: unbiased and worst-group accuracy against MACs, over the threshold ζ and the weight γ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from bise.studies.drawing import panels, write_svg
from bise.studies.job import Job
from bise.studies.ranking import curve
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import footnote, grid, matching, spread

GAMMAS = (0.0, 0.3, 1.0, 5.0)
METRICS = {"unbiased": "unbiased, %", "worst_group": "worst group, %"}
SHARES = (1.0, 0.8, 0.6, 0.4)
"""Of the dense network's MACs."""


def _label(gamma: float) -> str:
    return f"γ = {gamma:g}"


def _jobs(scale: Scale) -> list[Job]:
    return [curve(scale, _label(gamma), seed, gamma) for seed in scale.seeds for gamma in GAMMAS]


def _show(rows: Sequence[Row]) -> str:
    lines = []
    for gamma in GAMMAS:
        chosen = matching(rows, label=_label(gamma))
        for metric, title in METRICS.items():
            cells = []
            for share in SHARES:
                found = [best for row in chosen if (best := _within(row, metric, share)) is not None]
                cells.append(spread([100 * value for value in found]))
            lines.append([f"{_label(gamma)}, {title}", str(len(chosen)), *cells])
    head = ["within MACs of", "n", *(f"{100 * share:.0f} %" for share in SHARES)]
    return (
        "BiasedMNIST, ρ = 0.99, preset `balanced`; one front a seed and γ, over ζ: the highest point within so"
        " many MACs; dots are the masks themselves, ζ = 0.5. The table has it at shares of the dense network's MACs."
        " Points are taken on the test set, so the highest ones flatter; they show what the scores hold, not what one"
        " would have chosen.\n\n" + grid(head, lines) + "\n\n" + footnote(rows)
    )


def _within(row: Row, metric: str, share: float) -> float | None:
    """The highest value of a curve's points that take at most a share of the dense network's MACs."""
    dense = max(point["macs"] for point in row["points"])
    return max((point[metric] for point in row["points"] if point["macs"] <= share * dense), default=None)


def _draw(rows: Sequence[Row], path: Path) -> None:
    """The best within so many MACs, one front a seed and γ; dots are the masks themselves, ζ = 0.5."""
    figure, axes = panels(len(METRICS))
    for axis, (metric, title) in zip(axes, METRICS.items(), strict=True):
        for number, gamma in enumerate(GAMMAS):
            for count, row in enumerate(matching(rows, label=_label(gamma))):
                points = sorted(row["points"], key=lambda point: point["macs"])
                macs = [1e-6 * point["macs"] for point in points]
                front = accumulate((100 * point[metric] for point in points), max)
                name = None if count else _label(gamma)
                axis.step(macs, list(front), where="post", color=f"C{number}", linewidth=1, label=name)
                at = [point for point in points if point["at"] == 0.5]
                axis.plot([1e-6 * p["macs"] for p in at], [100 * p[metric] for p in at], "o", color=f"C{number}")
        axis.set_xlabel("million MACs a sample")
        axis.set_ylabel(title)
    axes[0].legend()
    write_svg(figure, path)


STUDY = Study(
    name="pareto", title="Accuracy against MACs", place="beyond the paper", jobs=_jobs, show=_show, draw=_draw
)
