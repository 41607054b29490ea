"""Accuracy over size: what each budget of a front costs."""

from __future__ import annotations

from typing import Any

from bise.base.markup import Html, tag
from bise.reporting.charts import line_chart
from bise.reporting.facts import Facts
from bise.reporting.parts import figure, legend, section, table
from bise.reporting.words import percent

SHARE_OF = {
    "macs": "multiply-adds (MACs)",
    "parameters": "parameters",
    "latency": "time for a batch",
}
LINES = (
    ("subnetwork", "unbiased", "subnetwork, mean of groups", "after"),
    ("refitted", "unbiased", "refitted, mean of groups", "refit"),
    ("subnetwork", "worst_group", "subnetwork, worst group", "tuned"),
    ("refitted", "worst_group", "refitted, worst group", "dense"),
)
"""(network, figure, what it is called, how it is drawn)."""


def front(facts: Facts) -> Html | None:
    """A line for each network and figure, over the share that the shrunk network takes."""
    found = facts.summary.get("front") or {}
    points = sorted(_points(facts, found), key=lambda point: point[0])
    if len(points) < 2:
        return None
    of = SHARE_OF[found["of"]]
    drawn = [line for line in LINES if any(line[0] in networks for _, _, networks in points)]
    series = {
        title: [(100 * share, networks[name][key]) for share, _, networks in points if name in networks]
        for name, key, title, _ in drawn
    }
    rows = [
        [label, percent(share, 1), *(percent(networks.get(name, {}).get(key), 1) for name, key, *_ in drawn)]
        for share, label, networks in points
    ]
    title = "Accuracy over size"
    chart = line_chart(
        f"{title}; the figures are in the table", series, [cls for *_, cls in drawn], percent=True,
        x_label=f"share of the whole model’s {of}, %",
    )  # fmt: skip
    return section(
        "front",
        "What a smaller network costs",
        tag(
            "p",
            "Each point is an extraction of its own, whose shrunk network had to keep to a budget."
            f"{' The run’s own networks, without a budget, are drawn too.' * any(p[1] == 'none' for p in points)}"
            f" Figures are those of the {'test' if found['split'] == 'test' else 'validation'} data.",
            cls="lead",
        ),
        tag(
            "div",
            figure(
                title,
                chart,
                table(title, ["budget", f"share of the {of}", *(title for _, _, title, _ in drawn)], rows),
                legend=legend([(title, cls) for *_, title, cls in drawn]),
            ),
            cls="columns",
        ),
    )


def _points(facts: Facts, found: dict[str, Any]) -> list[tuple[float, str, dict[str, Any]]]:
    """(share, the budget in words, {network: figures}), those without a budget among them where they are known."""
    points = [
        (float(point["shares"][found["of"]]), percent(point["budget"]), dict(point["networks"]))
        for point in found.get("points") or []
    ]
    if not points or found["split"] != "test":
        return points
    sizes = (facts.shrunk.get(found["of"]) or {}) if found["of"] != "latency" else {}
    free = {name: facts.models[name] for name in ("subnetwork", "refitted") if name in facts.models}
    if sizes and free:
        points.append((sizes["shrunk"] / max(1, sizes["dense"]), "none", free))
    return points
