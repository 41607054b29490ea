"""The groups as a table: target down, bias across, a colour and a number in each cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bise.base.markup import Html, foreign, join, said, tag
from bise.reporting.colours import step_of
from bise.reporting.facts import Facts
from bise.reporting.parts import table
from bise.reporting.words import FEW, cell_of, group_text, percent

MOST_COLUMNS = 60
MOST_GROUPS = 2500
"""Beyond this only the worst are shown, in a list."""
WORST = 60


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which group stands where."""

    rows: list[str]
    columns: list[str]
    row_title: str
    column_title: str
    places: dict[tuple[int, int], str]


def layout(facts: Facts, names: list[str]) -> Layout:
    """Target × bias for cells, bias × bias for alignment groups, one column where neither fits."""
    cells = [cell_of(facts, name) for name in names]
    if names and all(cell is not None for cell in cells):
        known = [cell for cell in cells if cell is not None]
        ys = sorted({y for y, _ in known})
        bs = sorted({b for _, b in known})
        if len(bs) <= MOST_COLUMNS:
            return Layout(
                rows=[facts.class_name(y) for y in ys],
                columns=[" · ".join(facts.bias_name(k, v) for k, v in enumerate(b)) for b in bs],
                row_title=facts.target,
                column_title=" · ".join(facts.biases),
                places={(ys.index(y), bs.index(b)): name for name, (y, b) in zip(names, known, strict=True)},
            )
    elif names and all(name.count(", ") == 1 for name in names):
        rows = sorted({name.split(", ")[0] for name in names})
        columns = sorted({name.split(", ")[1] for name in names})
        first, second = (*facts.biases, "second bias")[:2]
        return Layout(
            rows=rows,
            columns=columns,
            row_title=first,
            column_title=second,
            places={(rows.index(n.split(", ")[0]), columns.index(n.split(", ")[1])): n for n in names},
        )
    return listed(facts, names)


def listed(facts: Facts, names: list[str]) -> Layout:
    """One row a group."""
    return Layout(
        rows=[group_text(facts, name) for name in names],
        columns=["right"],
        row_title="group",
        column_title="share",
        places={(i, 0): name for i, name in enumerate(names)},
    )


def matrix(facts: Facts, caption: str, values: Mapping[str, float | None], audit: Mapping[str, Any], key: str) -> Html:
    """A heat map of {group: accuracy}; each cell tells its group, interval and number of samples to who asks."""
    names = _shown(values)
    if len(values) > MOST_GROUPS:
        caption += f", the {WORST} worst of {len(values):,} groups"
    where = listed(facts, names) if len(values) > MOST_GROUPS else layout(facts, names)
    numbers = {name: i for i, name in enumerate(names)}
    helps = helping(facts)
    head = tag(
        "thead",
        tag(
            "tr",
            tag("td", cls="corner"),
            tag("th", foreign(where.column_title), colspan=len(where.columns), scope="colgroup", cls="axis-title"),
        ),
        tag(
            "tr",
            tag("th", foreign(where.row_title), scope="col", cls="axis-title"),
            [tag("th", foreign(name), scope="col", title=name) for name in where.columns],
        ),
    )
    body = []
    for i, row in enumerate(where.rows):
        line: list[Any] = [tag("th", foreign(row), scope="row", title=row)]
        for j in range(len(where.columns)):
            group = where.places.get((i, j))
            line.append(
                tag("td", said("no sample"), cls="none", title="no sample")
                if group is None
                else _cell(facts, group, values[group], audit, numbers[group], cell_of(facts, group) in helps)
            )
        body.append(tag("tr", line))
    dense = " many" if len(where.columns) > 12 else ""
    long = " tilted" if len(where.columns) > 4 and max(map(len, where.columns), default=0) > 3 else ""
    few = " few" if len(where.columns) <= 4 else ""
    grid = tag("table", tag("caption", caption), head, tag("tbody", body), cls=f"heat{dense}{long}{few}", id=key)
    return tag("div", grid, cls="scroll", tabindex=0, role="region", aria_label=caption)


def _shown(values: Mapping[str, float | None]) -> list[str]:
    """All groups, or the worst where there are too many."""
    if len(values) <= MOST_GROUPS:
        return list(values)
    return sorted(values, key=lambda name: 2 if values[name] is None else values[name] or 0.0)[:WORST]


def behind(facts: Facts, title: str, audit: Mapping[str, Any]) -> Html:
    """The figures of a heat map as a table, with what its cells tell only to who points at them."""
    rows: list[list[Any]] = []
    for group in _shown(audit["by_group"]):
        value = audit["by_group"][group]
        interval = (audit.get("interval_by_group") or {}).get(group)
        n = (audit.get("n_by_group") or {}).get(group)
        rows.append(
            [
                group_text(facts, group),
                "–" if n is None else join(f"{n:,}", tag("small", f"fewer than {FEW}") if n < FEW else None),
                percent(value, 1),
                f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}" if interval and interval[0] is not None else "–",
            ]
        )
    shown = table(None, ["group", "samples", "right", "95 % interval"], rows)
    return tag("details", tag("summary", f"“{title}” as a table"), shown)


def _cell(facts: Facts, group: str, value: float | None, audit: Mapping[str, Any], number: int, helps: bool) -> Html:
    interval = (audit.get("interval_by_group") or {}).get(group)
    n = (audit.get("n_by_group") or {}).get(group)
    words = group_text(facts, group)
    if value is None:
        return tag("td", "–", said(" no sample"), cls="none", title=words, data_group=number)
    words += f": {100 * value:.1f} %"
    if interval and interval[0] is not None:
        words += f", 95 % interval {100 * interval[0]:.0f} to {100 * interval[1]:.0f}"
    words += f", {n:,} sample{'s' * (n != 1)}" if n is not None else ""
    cls = f"h{step_of(value)}" + (" helps" if helps else "")
    more = said(f", {facts.helps}") if helps else None
    return tag("td", f"{100 * value:.0f}", more, cls=cls, title=words, data_group=number)


def helping(facts: Facts) -> set[tuple[int, tuple[int, ...]] | None]:
    """The cells in which every bias is the aligned one."""
    aligned = facts.data.get("aligned") or []
    return {(y, b) for y, b in enumerate(zip(*aligned, strict=True))} if aligned else set()
