"""Small tables for notebooks: labels, what an audit found, what a subnetwork keeps, what shrinking did."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bise.base.markup import Html, tag

if TYPE_CHECKING:
    from bise.measure.audits import Audit
    from bise.data.core.cells import Cells
    from bise.network.gates import Subnetwork
    from bise.network.shrinking import ShrinkReport

MOST_ROWS = 12
CELL = "text-align:left;padding:2px 16px 2px 0"
MOST_CELLS = 20
"""Labels of a target or bias up to which the cells are a table of target by bias."""


def audit_html(audit: Audit) -> str:
    """Accuracies with their 95 % intervals, then the worst groups."""
    groups = audit.groups
    rows: list[tuple[Any, ...]] = [
        ("accuracy", *_share(audit.accuracy, groups.interval["accuracy"]), f"{audit.n:,} samples"),
        ("unbiased", *_share(audit.unbiased, groups.interval["unbiased"]), f"mean over {len(audit.by_group)} groups"),
        (
            "worst group",
            *_share(audit.worst_group, groups.interval["worst_group"]),
            f"{groups.worst_group_name}, by itself",
        ),
        ("aligned", *_share(audit.aligned.accuracy, audit.aligned.interval), f"{audit.aligned.n:,} samples"),
        (
            "conflicting",
            *_share(audit.conflicting.accuracy, audit.conflicting.interval),
            f"{audit.conflicting.n:,} samples",
        ),
    ]
    if audit.without_bias:
        rows.append(("no bias label", "", "", f"{audit.without_bias:,} samples, in accuracy alone"))
    worst = sorted(audit.by_group, key=lambda name: audit.by_group[name])[:5]
    below = [
        (name, *_share(audit.by_group[name], groups.interval_by_group[name]), f"{groups.n_by_group[name]:,} samples")
        for name in worst
    ]
    head = ("", "right", "95 % interval", "over")
    return str(tag("div", _table("Audit", head, rows), _table("The worst groups", ("group", *head[1:]), below)))


def subnetwork_html(sub: Subnetwork) -> str:
    """Units kept at each site."""
    kept, total = sub.units
    masks = list(sub.masks.items())
    rows: list[tuple[Any, ...]] = [
        (name, int(mask.sum()), len(mask), f"{100 * float(mask.float().mean()):.0f} %")
        for name, mask in masks[:MOST_ROWS]
    ]
    if len(masks) > MOST_ROWS:
        rows.append((f"… and {len(masks) - MOST_ROWS} more sites", "", "", ""))
    title = f"Subnetwork of {type(sub.network).__name__}: {kept:,} of {total:,} units open"
    return str(tag("div", _table(title, ("site", "open", "units", "share"), rows)))


def cells_html(cells: Cells) -> str:
    """How many samples of each target and bias; of very many cells the largest."""
    rows: list[tuple[Any, ...]]
    title = str(cells)
    if cells.biases == 1 and max(cells.classes, *cells.bias_classes) <= MOST_CELLS:
        head = (f"{cells.columns[0]} \\ {cells.columns[1]}", *(cells.label(1, b) for b in range(cells.bias_classes[0])))
        counts = cells.counts.view(cells.classes, -1).tolist()
        rows = [(cells.label(0, y), *(f"{n:,}" for n in row)) for y, row in enumerate(counts)]
        return str(tag("div", _table(title, head, rows)))
    largest = sorted(cells.names(), key=lambda cell: -int(cells.counts[cell]))
    rows = [(cells.name_of(cell), f"{int(cells.counts[cell]):,}") for cell in largest[:MOST_ROWS]]
    if len(largest) > MOST_ROWS:
        rows.append((f"… and {len(largest) - MOST_ROWS} smaller cells", ""))
    return str(tag("div", _table(title, ("cell", "samples"), rows)))


def shrink_html(report: ShrinkReport) -> str:
    """Sizes, the differences that were seen, and where closed channels had to stay."""
    share = report.parameters_after / max(1, report.parameters_before)
    rows: list[tuple[Any, ...]] = [
        ("parameters before", f"{report.parameters_before:,}"),
        ("parameters after", f"{report.parameters_after:,} ({100 * share:.0f} %)"),
        ("largest difference in float64", f"{max(report.differences.values()):.0e}"),
        ("difference as it is", f"{report.float32:.0e}"),
        *(("size, as in the example only", size) for size in report.held),
        *(("barrier", str(barrier)) for barrier in report.barriers[:MOST_ROWS]),
    ]
    if len(report.barriers) > MOST_ROWS:
        rows.append((f"… and {len(report.barriers) - MOST_ROWS} more barriers", ""))
    return str(tag("div", _table("Closed units removed", ("", ""), rows)))


def _table(caption: str, head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Html:
    return tag(
        "table",
        tag("caption", caption, style="text-align:left;font-weight:bold;white-space:pre"),
        tag("thead", tag("tr", [tag("th", name, scope="col", style=CELL) for name in head])),
        tag(
            "tbody",
            [
                tag(
                    "tr",
                    tag("th", row[0], scope="row", style=CELL),
                    [tag("td", value, style=CELL) for value in row[1:]],
                )
                for row in rows
            ],
        ),
    )


def _share(value: float, interval: tuple[float, float]) -> tuple[str, str]:
    if math.isnan(value):
        return "–", "–"
    return f"{100 * value:.1f} %", f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"
