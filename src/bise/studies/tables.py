"""Rows of results to tables in Markdown: mean ± standard deviation over seeds, the paper's row beside ours."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bise.studies.results import Row

Published = tuple[float, float] | float
"""A mean and its standard deviation as the paper prints them, or a single figure."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """What a column shows of which rows."""

    title: str
    metric: str
    """A path into a row, such as "accuracy" or "sparsity.paper"."""
    where: Mapping[str, Any] = field(default_factory=dict)
    """What rows must have, such as {"rho": 0.99}."""
    factor: float = 100.0
    digits: int = 1
    aside: bool = False
    """Not what the table is about, such as seconds: n doesn't count it, and it needs figures of half of the lines."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a table, and the paper's figures for it by the columns' titles."""

    title: str
    label: str
    part: str = ""
    """"last." for the last mask of an extraction; else the best one's or the network's own."""
    where: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Published] = field(default_factory=dict)


def table(rows: Sequence[Row], lines: Sequence[Line], columns: Sequence[Column]) -> str:
    """Each line twice where the paper has figures for it: ours, then the paper's.

    A column that nobody has figures for is left out, such as seconds of jobs that ran beside each other.
    """
    columns = [column for column in columns if _shown(rows, lines, column)]
    out: list[list[str]] = []
    for line in lines:
        values = [_values(rows, line, column) for column in columns]
        counts = sorted({len(v) for v, column in zip(values, columns, strict=True) if v and not column.aside})
        n = "–" if not counts else str(counts[0]) if len(counts) == 1 else f"{counts[0]} – {counts[-1]}"
        cells = [
            spread([column.factor * v for v in vs], column.digits) for vs, column in zip(values, columns, strict=True)
        ]
        out.append([line.title, n, *cells])
        if line.paper:
            shown = [published(line.paper.get(column.title), column.digits) for column in columns]
            out.append(["*the paper*", "*3*", *(f"*{cell}*" if cell else "" for cell in shown)])
    return grid(["", "n", *(column.title for column in columns)], out)


def _shown(rows: Sequence[Row], lines: Sequence[Line], column: Column) -> bool:
    known = sum(column.title in line.paper or bool(_values(rows, line, column)) for line in lines)
    return known > 0 and (not column.aside or 2 * known >= len(lines))


def value_at(row: Row, path: str) -> float | None:
    """The figure at a path such as "last.sparsity.paper"; None where there is none."""
    value: Any = row
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean ± standard deviation where there are several."""
    if not values:
        return "–"
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def published(value: Published | None, digits: int = 1) -> str:
    """As the paper prints it."""
    if value is None:
        return ""
    return f"{value[0]:.{digits}f} ± {value[1]:.{digits}f}" if isinstance(value, tuple) else f"{value:.{digits}f}"


def footnote(rows: Sequence[Row], lines: Sequence[Line] = ()) -> str:
    """What the rows were measured on, how many extractions ended because a site closed wholly, and which rows share no
    vanilla model with the rest; `lines` are those of the table, where their titles aren't their labels.
    """
    titles = {line.label: line.title for line in reversed(lines)}
    rows = [{**row, "label": titles.get(row["label"], row["label"])} for row in rows]
    devices = sorted({row["device"] for row in rows if "device" in row})
    words = f"Mean ± standard deviation over n seeds. Measured on: {'; '.join(devices)}."
    extractions = [row for row in rows if row.get("kind") == "extract"]
    closed = [row["label"] for row in extractions if "closed wholly" in row.get("stopped", "")]
    if closed:
        counts = ", ".join(f"{closed.count(label)} of “{label}”" for label in sorted(set(closed)))
        words += (
            f" {len(closed)} of {len(extractions)} extractions went back to the epoch before a site closed wholly, and"
            f" ended there ({counts})."
        )
    return words + _in_another_precision(rows) + _others(rows)


def _in_another_precision(rows: Sequence[Row]) -> str:
    """A sentence where rows were measured before their preset was in fp32."""
    labels = [row["label"] for row in rows if row.get("stands_in")]
    if not labels:
        return ""
    counts = ", ".join(f"{labels.count(label)} of “{label}”" for label in sorted(set(labels)))
    return f" Measured in bf16, and standing in until there are rows in fp32: {counts}."


def _others(rows: Sequence[Row]) -> str:
    """A sentence where some rows come from other vanilla models than the rest of the same data and seed."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if "weights" in row:
            data = {name: row.get(name) for name in ("recipe", "protocol", "rho", "seed", "start")}
            groups.setdefault(json.dumps(data), []).append(row)
    odd = []
    for found in groups.values():
        most = statistics.mode(row["weights"] for row in found)
        odd += [row["label"] for row in found if row["weights"] != most]
    if not odd:
        return ""
    counts = ", ".join(f"{odd.count(label)} of “{label}”" for label in sorted(set(odd)))
    return (
        " Weights aren't kept for ever: these rows come from other vanilla models than the rest, of the same recipe and"
        f" seed: {counts}."
    )


def provenance(rows: Sequence[Row]) -> str:
    """A sentence where the weights began elsewhere than the paper's; else nothing."""
    starts = {row.get("start") for row in rows if row.get("recipe") in ("corrupted-cifar10", "celeba")}
    if "scratch" not in starts:
        return ""
    return "\n\nThe ResNet-18 here starts **from scratch**; the paper's starts from ImageNet."


def matching(rows: Sequence[Row], **wanted: Any) -> list[Row]:
    """The rows that have all of `wanted`; ρ of several biases may be a list."""
    return [row for row in rows if all(_plain(row.get(name)) == _plain(v) for name, v in wanted.items())]


def _values(rows: Sequence[Row], line: Line, column: Column) -> list[float]:
    chosen = matching(rows, label=line.label, **{**line.where, **column.where})
    found = (value_at(row, line.part + column.metric) for row in chosen)
    return [value for value in found if value is not None]


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def grid(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table whose cells are texts."""
    return "\n".join([_line(head), _line(["---"] * len(head)), *(_line(line) for line in lines)])


def by_column(
    figures: Mapping[str, Sequence[Published]], values: Sequence[Any], title: str
) -> dict[str, dict[str, Published]]:
    """{what: {column: figure}}, where columns are called by `title` with a value in it."""
    names = [title.format(value) for value in values]
    return {what: dict(zip(names, found, strict=True)) for what, found in figures.items()}


def size_columns(where: Mapping[str, Any] | None = None, tail: str = "") -> list[Column]:
    """Sparsity and MFLOPs as the paper counts them."""
    return [
        Column(title=f"S{tail}, %", metric="sparsity.paper", where=where or {}, factor=1),
        Column(title=f"MFLOPs{tail}", metric="macs_paper", where=where or {}, factor=1e-6),
    ]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
