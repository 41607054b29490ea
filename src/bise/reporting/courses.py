"""The course of a run, from metrics.jsonl: a small chart for each figure."""

from __future__ import annotations

from typing import Any

from bise.base.markup import Html, tag
from bise.reporting.charts import line_chart
from bise.reporting.facts import Facts
from bise.reporting.parts import figure, legend, section, table

JOBS = {
    "train": "training the model",
    "finetuned": "finetuning the subnetwork",
    "dense_finetuned": "finetuning the dense control",
}
VALIDATION = {"unbiased": ("mean of groups", "after"), "worst_group": ("worst group", "tuned"),
              "accuracy": ("all samples", "dense")}  # fmt: skip


def course(facts: Facts) -> Html | None:
    """Extraction chart by chart, then the trainings."""
    by_job: dict[str, list[dict[str, Any]]] = {}
    for row in facts.metrics:
        if "epoch" in row:
            by_job.setdefault(str(row.get("job")), []).append(row)
    charts = _extraction(facts, by_job.pop("extract", []))
    for job, rows in by_job.items():
        if job in JOBS:
            charts += _training(JOBS[job], rows)
    if not charts:
        return None
    return section(
        "course",
        "The course of the run",
        tag("p", "How it got there, epoch by epoch.", cls="lead"),
        tag("div", charts, cls="small-columns"),
    )


def _extraction(facts: Facts, rows: list[dict[str, Any]]) -> list[Html]:
    if not rows:
        return []
    selection = facts.summary.get("selection") or {}
    rows = [row for row in rows if row.get("run", 1) == selection.get("run", 1)]
    mark = selection.get("epoch") if selection.get("kind") == "best" else None
    out = [
        _chart("Loss", rows, {"loss": ("loss", "after"), "cross_entropy": ("cross-entropy", "tuned")}, mark=mark,
               about="What extraction makes small: errors, plus γ times the information on the bias."),
        _chart("Information about the bias", rows, {"mutual_information": ("mutual information", "after")}, mark=mark,
               about="What the bias head reads of it in training: 0 is nothing, 1 everything. It is one of two things"
               " that are weighed, so it may rise as well."),
        _chart("Units open", rows, {"open": ("units open", "after")}, mark=mark, about="At each epoch’s end."),
        _chart("Mask flips", rows, {"flips": ("gates that changed", "before")}, mark=mark,
               about="How many gates opened or closed in each epoch."),
        _chart("Temperature τ", rows, {"tau": ("τ", "ink")}, log=True, mark=mark,
               about="Falls in steps: the gates get harder to turn. Logarithmic."),
        _chart("Accuracy on validation data", rows, VALIDATION, percent=True, under="val", mark=mark,
               about="By this the mask was selected."),
    ]  # fmt: skip
    return [chart for chart in out if chart is not None]


def _training(name: str, rows: list[dict[str, Any]]) -> list[Html]:
    title = name[:1].upper() + name[1:]
    out = [
        _chart(f"{title}: loss", rows, {"loss": ("loss", "after")}),
        _chart(f"{title}: validation", rows, VALIDATION, percent=True, under="val"),
    ]
    return [chart for chart in out if chart is not None]


def _chart(
    title: str,
    rows: list[dict[str, Any]],
    wanted: dict[str, tuple[str, str]],
    *,
    about: str = "",
    under: str | None = None,
    percent: bool = False,
    log: bool = False,
    mark: float | None = None,
) -> Html | None:
    series: dict[str, list[tuple[float, float]]] = {}
    for key, (name, _) in wanted.items():
        points = []
        for row in rows:
            part = (row.get(under) or {}) if under else row
            if isinstance(part.get(key), (int, float)):
                points.append((float(row["epoch"]), float(part[key])))
        if points:
            series[name] = points
    if not series:
        return None
    classes = [cls for name, cls in wanted.values() if name in series]
    epochs = sorted({x for line in series.values() for x, _ in line})
    by_epoch = {name: dict(line) for name, line in series.items()}
    cells = [[f"{e:g}", *(_shown(by_epoch[n].get(e), percent) for n in series)] for e in epochs]
    chart = line_chart(
        f"{title} over the epochs; the figures are in the table", series, classes, percent=percent, log=log,
        mark=mark, mark_label="selected" if mark is not None else "",
    )  # fmt: skip
    entries = legend([(name, cls) for name, cls in wanted.values() if name in series]) if len(series) > 1 else None
    return figure(title, chart, table(title, ["epoch", *series], cells), about=about, legend=entries)


def _shown(value: float | None, percent: bool) -> str:
    return "" if value is None else f"{100 * value:.1f} %" if percent else f"{value:.4g}"
