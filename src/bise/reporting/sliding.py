"""The slider over ζ: points that were measured beforehand, moved through by hand or by keyboard."""

from __future__ import annotations

from typing import Any

from bise.base.markup import Html, embedded, tag
from bise.reporting.charts import Frame, axes, segment, svg, text
from bise.reporting.colours import STEPS
from bise.reporting.facts import Facts
from bise.reporting.matrix import matrix
from bise.reporting.parts import figure, legend, section, table
from bise.reporting.words import group_text, percent

LINES = (
    ("aligned", "dense"),
    ("unbiased", "after"),
    ("conflicting", "before"),
    ("worst_group", "tuned"),
)


def sliding(facts: Facts) -> Html | None:
    """The section, where the run has a curve."""
    points = [point | (point.get("within") or {}) for point in facts.thresholds.get("points") or []]
    if len(points) < 2:
        return None
    frame = Frame(x=(0, 1), y=(0, 1), bottom=210)
    chosen = next((i for i, p in enumerate(points) if p["zeta"] == facts.thresholds.get("chosen", 0.5)), 0)
    names = list(points[chosen].get("groups") or {})
    shown = facts.thresholds
    part = (
        f"{shown['samples']:,} of its {shown['of']:,} samples, drawn evenly over the groups"
        if (shown["samples"] < shown["of"])
        else f"all its {shown['of']:,} samples"
    )
    live = {
        "chosen": chosen,
        "steps": STEPS,
        "groups": [{"words": group_text(facts, name)} for name in names],
        "points": [_live(point, names, frame) for point in points],
    }
    values = points[chosen].get("groups") or {}
    return section(
        "threshold",
        "Move the threshold",
        tag(
            "p",
            "Every unit has a score; the subnetwork keeps those with σ(score) ≥ ζ. Moving ζ keeps more of the model or"
            f" less of it. Each point was measured on the {shown['split']} split, {part}. What was chosen is ζ = 0.5;"
            " choosing another one by these figures would be choosing by the test data.",
            cls="lead",
        ) if shown["split"] == "test" else tag(
            "p",
            "Every unit has a score; the subnetwork keeps those with σ(score) ≥ ζ. Moving ζ keeps more of the model or"
            f" less of it. There is no test split, so each point was measured on the {shown['split']} split, {part}.",
            cls="lead",
        ),
        _control(points, chosen),
        tag(
            "div",
            _curve(facts, points, chosen, frame),
            tag("div", matrix(facts, "Groups at this threshold, % right", values, {}, "heat-live"), cls="card")
            if values
            else None,
            cls="columns",
        ),
        tag("script", embedded(live), type="application/json", id="points"),
    )  # fmt: skip


def _control(points: list[dict[str, Any]], chosen: int) -> Html:
    """The slider, which needs the script, and the figures at its place."""
    moved = tag(  # the script shows it
        "div",
        tag("label", "Threshold ζ", for_="zeta"),
        tag("p", "From all units kept, on the left, to few, on the right. Arrow keys move it too.", cls="note"),
        tag(
            "div",
            tag("input", type="range", id="zeta", min=0, max=len(points) - 1, step=1, value=chosen),
            # a range's thumb is about 16 pixels wide, and its middle stops half of that from either end
            tag(
                "span",
                "chosen",
                cls="chosen",
                style=f"left:calc(8px + (100% - 16px) * {chosen / (len(points) - 1):.4f})",
            ),
            cls="track",
        ),
        id="moved",
        hidden=True,
    )
    return tag(
        "div",
        moved,
        _readout(points[chosen]),
        tag("p", "", id="r-note", cls="note", aria_live="polite"),
        tag("button", "Back to the chosen one", id="back", type="button", hidden=True),
        cls="control card",
    )


def _live(point: dict[str, Any], names: list[str], frame: Frame) -> dict[str, Any]:
    keys = ("zeta", "open", "all", "closed_sites", "unbiased", "worst_group", "aligned", "conflicting")
    groups = point.get("groups") or {}
    return {key: point.get(key) for key in keys} | {
        "x": frame.at_x(1 - point["open"] / max(1, point["all"])),
        "groups": [groups.get(name) for name in names],
    }


def _readout(point: dict[str, Any]) -> Html:
    entries = (
        ("ζ", "zeta", point["zeta"]),
        ("units kept", "units", percent(point["open"] / max(1, point["all"]), 1)),
        ("mean of groups", "unbiased", percent(point["unbiased"], 1)),
        ("worst group", "worst_group", percent(point["worst_group"], 1)),
        ("aligned", "aligned", percent(point["aligned"], 1)),
        ("conflicting", "conflicting", percent(point["conflicting"], 1)),
    )
    count = tag("small", " ", tag("span", f"{point['open']} of {point['all']}", id="r-count"))
    return tag(
        "dl",
        [
            tag(
                "div", tag("dt", label), tag("dd", tag("span", value, id=f"r-{key}"), count if key == "units" else None)
            )
            for label, key, value in entries
        ],
        cls="readout",
    )


def _curve(facts: Facts, points: list[dict[str, Any]], chosen: int, frame: Frame) -> Html:
    def place(point: dict[str, Any]) -> float:
        return 1 - point["open"] / max(1, point["all"])

    body: list[Any] = [axes(frame, percent=True, x_label="units removed", x_percent=True)]
    at = frame.at_x(place(points[chosen]))
    body.append(segment(at, frame.top, at, frame.bottom, "mark"))
    body.append(text(at + 4, frame.bottom - 5, "chosen", "small"))
    for key, cls in LINES:
        line = [(place(p), p[key]) for p in points if p.get(key) is not None]
        placed = " ".join(f"{frame.at_x(x):.1f},{frame.at_y(y):.1f}" for x, y in line)
        body.append(tag("polyline", points=placed, cls=f"series {cls}"))
    body.append(segment(at, frame.top, at, frame.bottom, "now", id="now"))
    heads = ["ζ", "units kept", "mean of groups", "worst group", "aligned", "conflicting"]
    rows = [
        [f"{p['zeta']:g}" + (" (chosen)" if i == chosen else ""), f"{p['open']} / {p['all']}"]
        + [percent(p[key], 1) for key in ("unbiased", "worst_group", "aligned", "conflicting")]
        for i, p in enumerate(points)
    ]
    names = {
        "aligned": "aligned",
        "unbiased": "mean of groups",
        "conflicting": "conflicting",
        "worst_group": "worst group",
    }
    return figure(
        "Accuracy as units are removed",
        svg(
            frame.bottom + 34,
            "Accuracy by group figures against the share of units removed; figures in the table",
            *body,
        ),
        table("Every measured threshold", heads, rows),
        legend=legend([(names[key], cls) for key, cls in LINES]),
    )
