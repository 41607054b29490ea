"""The page of a comparison: for each data set two pictures and the table, and what was skipped and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bise.base.markup import Html, foreign, tag
from bise.reporting.bench_words import HEAD, caption, cells_of
from bise.reporting.charts import Frame, segment, short, svg, text
from bise.reporting.document import document
from bise.reporting.parts import figure, section, table

OURS = "bise"
"""How the names of our methods begin; their points have our colour."""


def bench_page(summary: Mapping[str, Any], folder: str) -> str:
    """The whole page, without a script."""
    about, lines = summary["bench"], summary["table"]
    datasets = list(dict.fromkeys(line["dataset"] for line in lines))
    methods = len({line["method"] for line in lines})
    header = tag(
        "header",
        tag("div", tag("b", "BISE"), tag("span", "comparison ", foreign(folder)), cls="bar"),
        tag("h1", foreign(f"{methods} methods side by side on {' and '.join(datasets)}")),
        tag("p", f"{caption(about)}. Every figure is measured on test, which selects nothing.", cls="lead"),
    )
    main = tag("main", [_dataset(number, name, lines, about) for number, name in enumerate(datasets)])
    return document(folder, header, main)


def _dataset(number: int, name: str, lines: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> Html:
    mine = [line for line in lines if line["dataset"] == name]
    ran = [line for line in mine if line["n"]]
    head = [column.format(against=about["against"]) for column in HEAD]
    rows = [(line["method"], *cells_of(line)) for line in ran]
    missing = [(line["method"], reason) for line in mine for reason in line["reasons"]]
    skipped = [tag("li", foreign(f"{method}: {reason}")) for method, reason in missing]
    return section(
        f"dataset-{number}",
        name,
        _picture("Mean over groups against the size of the result", ran, "macs", "unbiased", "MACs a sample"),
        _picture("Worst group against the time of training", ran, "seconds", "worst_group", "seconds"),
        table("Accuracies in %, means over seeds, and costs", head, rows),
        tag(
            "p",
            f"“from {about['against']}” is the difference of the mean over groups in points, seed by seed, with its"
            " 95 % bootstrap interval over seeds where there are two or more. With few seeds it is too short."
            " Methods that start from the vanilla model need its training too, whose cost is in the line vanilla.",
        ),
        [tag("h3", "Not run"), tag("ul", skipped)] if skipped else None,
    )


def _picture(title: str, lines: Sequence[Mapping[str, Any]], x: str, y: str, x_label: str) -> Html | None:
    """A point for each method, its name beside it; costs on a scale of powers."""
    points = [(line["method"], line[x], line[y]["mean"]) for line in lines if line[x] and line[y]["mean"] is not None]
    if not points:
        return None
    logs = [math.log10(value) for _, value, _ in points]
    spread = max(0.1, 0.15 * (max(logs) - min(logs)))
    heights = [value for *_, value in points]
    low, high = max(0.0, min(heights) - 0.03), min(1.0, max(heights) + 0.03)
    frame = Frame(x=(min(logs) - spread, max(logs) + spread), y=(low, high), left=44, right=560, bottom=300)
    body: list[Any] = [_grid(frame, x_label)]
    taken: list[tuple[float, float]] = []
    for (name, value, height), cls in zip(points, _classes(points), strict=True):
        at_x, at_y = frame.at_x(math.log10(value)), frame.at_y(height)
        body.append(tag("circle", cx=round(at_x, 1), cy=round(at_y, 1), r=4, cls=f"dot {cls}"))
        place = _free(at_x, at_y, taken)
        taken.append(place)
        left = at_x > 0.8 * frame.right
        body.append(text(at_x + (-7 if left else 7), place[1] + 3.5, name, "tick", "end" if left else "start"))
    behind = table(title, ("method", x_label, "accuracy, %"), [(n, short(v), f"{100 * h:.1f}") for n, v, h in points])
    return figure(title, svg(frame.bottom + 34, title, *body, width=600), behind)


def _classes(points: Sequence[tuple[str, float, float]]) -> list[str]:
    return ["after" if name.startswith(OURS) else "before" if name == "vanilla" else "dense" for name, *_ in points]


def _free(x: float, y: float, taken: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """A place for a name near (x, y) that no other name has."""
    for shift in (0, 11, -11, 22, -22, 33, -33, 44, -44):
        if all(abs(y + shift - other) >= 10 or abs(x - near) > 110 for near, other in taken):
            return x, y + shift
    return x, y


def _grid(frame: Frame, x_label: str) -> Html:
    out: list[Any] = []
    low, high = frame.y
    step = next(size for size in (0.01, 0.02, 0.05, 0.1, 0.2) if (high - low) / size <= 6)
    for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
        y = frame.at_y(number * step)
        out.append(segment(frame.left, y, frame.right, y, "grid"))
        out.append(text(frame.left - 6, y + 3.5, f"{100 * number * step:g} %", "tick", "end"))
    for value in _powers(*frame.x):
        out.append(text(frame.at_x(math.log10(value)), frame.bottom + 14, short(value), "tick", "middle"))
    out.append(segment(frame.left, frame.bottom, frame.right, frame.bottom, "axis"))
    out.append(text((frame.left + frame.right) / 2, frame.bottom + 29, x_label, "tick", "middle"))
    return tag("g", *out)


def _powers(low: float, high: float) -> list[float]:
    """Round numbers between 10^low and 10^high: powers, and where these are few, 2 and 5 times them."""
    found = [m * 10.0**p for p in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
    inside = [value for value in found if low <= math.log10(value) <= high]
    whole = [value for value in inside if math.log10(value) % 1 < 1e-9]
    return whole if len(whole) >= 3 else inside or [10**low]
