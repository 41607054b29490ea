"""Small tables for notebooks, which classes show as their `_repr_html_`."""

from __future__ import annotations

import math
from typing import Any

from bise.base.markup import Html, tag

MOST_ROWS = 12
CELL = "text-align:left;padding:2px 16px 2px 0"


def table(caption: str, head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Html:
    """A table with a caption and a head; the first value of a row names it."""
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


def share(value: float, interval: tuple[float, float]) -> tuple[str, str]:
    """A share and its interval in %, or dashes where there is none."""
    if math.isnan(value):
        return "–", "–"
    return f"{100 * value:.1f} %", f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"
