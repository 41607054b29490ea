"""The figures of the page: how right it is, group by group, and what was removed; left out where there are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bise.base.markup import Html, foreign, join, tag
from bise.base.slower import EAGER, slower, times_of
from bise.reporting.charts import histogram, interval_chart, short, site_bars
from bise.reporting.colours import STEPS
from bise.reporting.facts import Facts
from bise.reporting.leaning import evenly, of_kind, within
from bise.reporting.matrix import behind, layout, matrix
from bise.reporting.outcome import is_ignorant
from bise.reporting.parts import figure, section, table
from bise.reporting.words import cell_of, group_text, percent

CLASSES = {
    "vanilla": "before",
    "subnetwork": "after",
    "refitted": "refit",
    "finetuned": "tuned",
    "dense_finetuned": "dense",
}
MOST_SITES = 60


def accuracy(facts: Facts) -> Html | None:
    """Every figure with its interval, as a chart and as a table."""
    models = facts.models
    if not models:
        return None
    bands, rows = _measured(facts)
    worst = "; ".join(f"{facts.called(n)}: {group_text(facts, str(m['worst_group_name']))}" for n, m in models.items())
    chart = interval_chart("Accuracy of each network with its 95 % interval; the figures are in the table", bands)
    refit = (
        " The refitted network is the subnetwork with its last layer fitted anew, all groups counting evenly."
        if "refitted" in models
        else ""
    )
    dense = (
        " The dense control is the whole model, finetuned by the same settings: what finetuning does without a mask."
        if "dense_finetuned" in models
        else ""
    )
    return section(
        "accuracy",
        "How often it is right",
        tag(
            "p",
            "Lines are 95 % intervals: where two of them are apart, chance is an unlikely reason."
            f" {_kinds(facts)}{refit}{dense}",
            cls="lead",
        ),
        tag(
            "div",
            tag("figure", tag("figcaption", "Share of right answers"), chart, cls="card"),
            tag(
                "div",
                table("Share of right answers, with 95 % intervals", ["", *(facts.called(n) for n in models)], rows),
                tag(
                    "p",
                    "Worst groups: ",
                    foreign(worst),
                    ". Their intervals are those of these groups by themselves; the"
                    " lowest of many figures is too low by chance.",
                    cls="note",
                ),
                cls="card",
            ),
            cls="columns" if len(models) < 5 else "stack apart",  # a table of five networks needs the whole width
        ),
    )


def _kinds(facts: Facts) -> str:
    """What the figures of aligned and conflicting samples are means of: the same as at the top."""
    found = [within(facts, audit) for audit in facts.models.values()]
    if found and found[0] is not None and all(found):
        return f"Aligned and conflicting are means, {evenly(facts, found[0])}, as at the top."
    return "Aligned and conflicting are over all such samples."


def _measured(facts: Facts) -> tuple[dict[str, list[tuple[str, str, float, float, float]]], list[list[Any]]]:
    """Each figure of each network: as intervals to be drawn, and as rows of a table."""
    measures: dict[str, Callable[[Any], Any]] = {
        f"{facts.misleads} (conflicting)": lambda m: of_kind(facts, m, "conflicting"),
        "worst group": lambda m: (m["worst_group"], m["interval"]["worst_group"]),
        "mean of all groups (unbiased)": lambda m: (m["unbiased"], m["interval"]["unbiased"]),
        f"{facts.helps} (aligned)": lambda m: of_kind(facts, m, "aligned"),
        "all samples (accuracy)": lambda m: (m["accuracy"], m["interval"]["accuracy"]),
    }
    bands: dict[str, list[tuple[str, str, float, float, float]]] = {}
    rows: list[list[Any]] = []
    for title, read in measures.items():
        row: list[Any] = [title]
        for name, audit in facts.models.items():
            value, interval = read(audit)
            row.append(_with_interval(value, interval))
            if value is not None and interval and interval[0] is not None:
                bands.setdefault(title, []).append((facts.called(name), CLASSES[name], value, interval[0], interval[1]))
        rows.append(row)
    return bands, rows


def groups(facts: Facts) -> Html | None:
    """Heat maps of every group, for the model and for the subnetwork, and behind them the others."""
    models = facts.models
    if not models:
        return None

    def card(name: str) -> Html:
        titles = {
            "vanilla": "Before: the model as it was" if len(models) > 1 else "The model",
            "subnetwork": "After: the subnetwork inside it",
            "refitted": "The refitted network",
            "finetuned": "The finetuned network",
            "dense_finetuned": "The dense control",
        }
        return tag(
            "div",
            matrix(facts, f"{titles[name]}, % right", models[name]["by_group"], models[name], f"heat-{name}"),
            behind(facts, titles[name], models[name]),
            cls="card",
        )

    first = [card(name) for name in ("vanilla", "subnetwork") if name in models]
    others = [card(name) for name in ("refitted", "finetuned", "dense_finetuned") if name in models]
    by_cell = any(cell_of(facts, name) is not None for audit in models.values() for name in audit["by_group"])
    wide = any(len(layout(facts, list(audit["by_group"])).columns) > 14 for audit in models.values())
    ramp = [tag("i", cls=f"h{step}") for step in range(STEPS + 1)]
    ring = [tag("i", cls="ring"), f"where {facts.helps}"] if facts.data.get("aligned") and by_cell else None
    return section(
        "groups",
        "Group by group",
        tag(
            "p",
            f"Rows are the true {facts.target}, columns the {facts.bias}: a cell says how many in a hundred of its"
            f" samples are answered rightly. A model that doesn’t lean has rows of one colour{_alike(facts)}."
            if by_cell
            else "A group is a combination of biases that help (aligned) or mislead (conflicting); a cell says how many"
            " in a hundred are answered rightly, as the mean over its targets and biases.",
            cls="lead",
        ),
        tag("div", first, cls="columns one" if wide else "columns"),
        tag("div", "0 %", tag("span", ramp, cls="ramp"), "100 % right", ring, cls="scale"),
        tag("details", tag("summary", _others(models)), tag("div", others, cls="columns")) if others else None,
    )


def _alike(facts: Facts) -> str:
    """That rows of one colour are no good sign everywhere, where a network knows nothing."""
    if not any(is_ignorant(audit) for audit in facts.models.values()):
        return ""
    return f"; so has one that knows nothing of {facts.target}"


def _others(models: dict[str, Any]) -> str:
    if "refitted" not in models:
        return "The finetuned networks"
    return "The refitted and the finetuned networks" if "finetuned" in models else "The refitted network"


def removed(facts: Facts) -> Html | None:
    """Kept units by site, scores, and what that saves."""
    if not facts.masks:
        return None
    sites = [(name, sum(mask), len(mask)) for name, mask in facts.masks.items()]
    kept = [s for name, scores in facts.scores.items() for s, on in zip(scores, facts.masks[name], strict=True) if on]
    closed = [
        s for name, scores in facts.scores.items() for s, on in zip(scores, facts.masks[name], strict=True) if not on
    ]
    total = sum(n for _, _, n in sites)
    rows = [[name, on, n - on, percent(on / n)] for name, on, n in sites]
    cut = f" The first {MOST_SITES} of {len(sites)} are drawn, all are in the table." if len(sites) > MOST_SITES else ""
    return section(
        "removed",
        "What was removed",
        tag(
            "p",
            f"{len(closed):,} of {total:,} units are closed at {len(sites)} site{'s' * (len(sites) > 1)}. A unit is a"
            " neuron or a filter; a site is a layer where each unit got a gate.",
            cls="lead",
        ),
        tag(
            "div",
            tag(
                "div",
                figure(
                    "Units kept at each site",
                    site_bars("Units kept at each site; the figures are in the table", sites[:MOST_SITES]),
                    table("Units by site", ["site", "kept", "closed", "share kept"], rows),
                    about=f"In the order of the network, first to last.{cut}",
                ),
                tag("div", _sizes(facts), cls="card"),
                cls="stack",
            ),
            figure(
                "The scores that decided it",
                histogram("How many units have which score: closed below 0, kept from 0 on", kept, closed),
                table(
                    "Scores", ["", "units", "lowest", "highest"],
                    [[w, len(v), short(min(v)), short(max(v))] for w, v in (("kept", kept), ("closed", closed)) if v],
                ),
                about="Far from 0: a clear case. Near 0: a close call.",
            ),
            cls="columns",
        ),
    )  # fmt: skip


def _sizes(facts: Facts) -> Html:
    figures = facts.shrunk
    if not figures:
        return join(
            tag("h3", "Size and speed"),
            tag(
                "p", "Not measured. ", tag("code", f"bise shrink {facts.place}"),
                " removes the closed units physically, checks that nothing else changes, and measures parameters,"
                " arithmetic and time; this page then shows them.",
            ),
        )  # fmt: skip
    rows: list[list[Any]] = []
    for label, key in (("parameters", "parameters"), ("multiply-adds a sample (MACs)", "macs")):
        dense, small = figures[key]["dense"], figures[key]["shrunk"]
        rows.append([label, short(dense), short(small), percent(small / max(1, dense))])
    latency = times_of(figures)
    for one in latency:
        mode = "" if one["mode"] == EAGER else f"{one['mode']}, "
        label = f"time for a batch of {one['batch']}, {mode}{one['device']}"
        rows.append([label, f"{one['dense_ms']:.2f} ms", f"{one['shrunk_ms']:.2f} ms", percent(one["ratio"])])
    slow = max((one["ratio"] for one in latency), default=0) > 0.95
    note = " Small networks gain less time than arithmetic: there is little to save." if slow else ""
    about: Any = (
        "Times are medians of alternating runs on the machine of the run. Their share is the median over neighbours,"
        f" so that whatever else the machine did hits both.{note}"
    )
    if not latency:
        about = ["Time isn’t measured yet: ", tag("code", f"bise shrink {facts.place}"), " does."]
    return join(
        table("Size and speed, closed units removed", ["", "whole model", "shrunk", "of it"], rows),
        tag("p", about, cls="note"),
        [tag("p", sentence, cls="note") for sentence in slower(figures)],
    )


def _with_interval(value: float | None, interval: Any) -> Html:
    if value is None:
        return Html("–")
    if not interval or interval[0] is None:
        return join(percent(value, 1))
    return join(percent(value, 1), tag("small", f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"))
