"""What sections are built of: tables, figures with a table behind them, legends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bise.base.markup import Html, foreign, tag


def section(key: str, title: str, *children: Any) -> Html:
    return tag("section", tag("h2", title, id=key), *children, aria_labelledby=key)


def table(caption: str | None, head: Sequence[Any], rows: Sequence[Sequence[Any]], *, label: str | None = None) -> Html:
    """A plain table: the first column names the rows, the others are figures; a `label` is told to who can't see it."""
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption) if caption else None,
            tag(
                "thead", tag("tr", [tag("th", h, scope="col", cls="number" if i else None) for i, h in enumerate(head)])
            ),
            tag(
                "tbody",
                [
                    tag(
                        "tr",
                        tag("th", row[0] if isinstance(row[0], Html) else foreign(str(row[0])), scope="row"),
                        [tag("td", value, cls="number") for value in row[1:]],
                    )
                    for row in rows
                ],
            ),
            cls="plain",
        ),
        cls="scroll",
        tabindex=0,
        role="region",
        aria_label=caption or label or "table",
    )


def figure(
    title: str, chart: Html, behind: Html | None, *, about: str = "", legend: Html | None = None, card: bool = True
) -> Html:
    """A chart with its title, and the same figures as a table for those who want or need them."""
    return tag(
        "figure",
        tag("figcaption", title, tag("span", about) if about else None),
        legend,
        chart,
        tag("details", tag("summary", f"“{title}” as a table"), behind) if behind is not None else None,
        cls="card" if card else None,
    )


def legend(entries: Sequence[tuple[str, str]]) -> Html:
    """(name, class) of each line, as it is drawn."""
    return tag(
        "ul",
        [
            tag(
                "li",
                tag(
                    "svg",
                    tag("line", x1=1, y1=5, x2=25, y2=5, cls=f"series {cls}"),
                    viewBox="0 0 26 10",
                    aria_hidden="true",
                ),
                name,
            )
            for name, cls in entries
        ],
        cls="legend",
    )
