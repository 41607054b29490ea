"""A comparison's table as text: the columns of a line, and the rule behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEAD = (
    "method",
    "unbiased",
    "worst",
    "± (sd)",
    "from {against}",
    "seconds",
    "samples",
    "memory",
    "MACs",
    "changed",
    "needs",
)
NARROW = (0, 1, 2, 4, 5, 6, 8)
"""The columns for a terminal; the page and the JSON have all."""


def cells_of(line: Mapping[str, Any]) -> list[str]:
    """The columns of a line behind the method's name."""
    if not line["n"]:
        return []
    unbiased, worst = line["unbiased"], line["worst_group"]
    return [
        percent(unbiased["mean"]),
        percent(worst["mean"]),
        percent(unbiased["sd"]),
        difference(line),
        "–" if line["seconds"] is None else f"{line['seconds']:.1f}",
        short(line["samples"]),
        "–" if line["peak_bytes"] is None else f"{short(line['peak_bytes'])}B",
        short(line["macs"]),
        short(line["weights_changed"]),
        ", ".join(line["labels"]),
    ]


def difference(line: Mapping[str, Any]) -> str:
    """In points of the mean over groups, with its interval where there is one."""
    found = (line.get("difference") or {}).get("unbiased")
    if found is None:
        return "–"
    value = f"{100 * found['mean']:+.1f}"
    return value if found["low"] is None else f"{value} [{100 * found['low']:+.1f}, {100 * found['high']:+.1f}]"


def percent(value: float | None) -> str:
    return "–" if value is None or value != value else f"{100 * value:.1f}"


def short(value: float | None) -> str:
    """A count in few characters."""
    if value is None:
        return "–"
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.0f}"


def caption(about: Mapping[str, Any]) -> str:
    """The rule behind a table."""
    rules = {
        "unbiased-val": "epochs by the mean over groups on val",
        "biased-val": "epochs by the accuracy on the part of val that is drawn like train",
        "last": "the last epoch",
    }
    tried = about["settings"]
    searched = f"; the best on val of up to {tried} settings of each method" if tried > 1 else ""
    seeds = about["seeds"]
    return f"select: {about['select']}, {rules[about['select']]}{searched}; {len(seeds)} seed{'s' * (len(seeds) != 1)}"


def text_of(summary: Mapping[str, Any]) -> str:
    """The tables as plain text."""
    about, out = summary["bench"], []
    for dataset in dict.fromkeys(line["dataset"] for line in summary["table"]):
        lines = [line for line in summary["table"] if line["dataset"] == dataset]
        shown = [[head.format(against=about["against"]) for head in HEAD]]
        shown += [[line["method"], *cells_of(line)] for line in lines if line["n"]]
        widths = [max(len(one[k]) for one in shown) for k in range(len(HEAD))]
        out.append(f"{dataset} ({caption(about)})")
        out += ["  ".join(text.ljust(w) for text, w in zip(one, widths, strict=True)).rstrip() for one in shown]
        out += [f"{line['method']}: {reason}" for line in lines for reason in line["reasons"]]
    return "\n".join(out)
