"""Small SVG figures by matplotlib, the same bytes for the same rows."""

from __future__ import annotations

import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bise.base.errors import BadInput
from bise.base.files import write_bytes
from bise.studies.tables import Published


def panels(count: int, width: float = 3.4, height: float = 2.7) -> tuple[Any, list[Any]]:
    """(figure, its axes side by side)."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise BadInput("matplotlib is not installed; install the extra: pip install 'bise[studies]'") from error
    matplotlib.use("Agg")
    matplotlib.rcParams.update(
        {"svg.hashsalt": "bise", "svg.fonttype": "none", "font.size": 8, "axes.grid": True, "grid.alpha": 0.3}
    )
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, count, figsize=(width * count, height), layout="constrained", squeeze=False)
    return figure, list(axes[0])


def write_svg(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    write_bytes(path, file.getvalue())


def band(axis: Any, groups: Mapping[float, Sequence[float]], label: str, **style: Any) -> None:
    """Means over n seeds, with one standard deviation shaded."""
    x = sorted(groups)
    mean = [statistics.mean(groups[at]) for at in x]
    spread = [statistics.stdev(groups[at]) if len(groups[at]) > 1 else 0.0 for at in x]
    counts = sorted({len(groups[at]) for at in x})
    n = str(counts[0]) if len(counts) == 1 else f"{counts[0]} – {counts[-1]}"
    (line,) = axis.plot(x, mean, marker="o", markersize=3, label=f"{label}, n = {n}", **style)
    low, high = ([m + sign * s for m, s in zip(mean, spread, strict=True)] for sign in (-1, 1))
    axis.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)


def published(axis: Any, points: Mapping[float, Published]) -> None:
    """What the paper's text says, with one standard deviation where it has one."""
    pairs = [figure if isinstance(figure, tuple) else (figure, 0.0) for figure in points.values()]
    mean, spread = zip(*pairs, strict=True)
    axis.errorbar(
        list(points), mean, yerr=spread, fmt="k*", markersize=6, capsize=2, zorder=3, label="the paper, n = 3"
    )


def grouped(pairs: Iterable[tuple[float, float | None]]) -> dict[float, list[float]]:
    """{x: every y that was found there}."""
    out: dict[float, list[float]] = {}
    for x, y in pairs:
        if y is not None:
            out.setdefault(x, []).append(y)
    return out
