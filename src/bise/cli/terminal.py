"""Progress bars and tables in the terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from bise.base.files import finite
from bise.base.output import one_line, show_json, visible
from bise.base.slower import EAGER, times_of
from bise.measure.standing import IGNORANT, REASON, likely, told

if TYPE_CHECKING:
    from bise.reporting.comparing import Comparison

WIDE = 10_000
"""Columns that no table needs."""


class _Console(Console):
    """Takes what it prints for text: neither its control characters nor its brackets are commands."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False)

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(visible(text), **how)


def console() -> Console:
    """Standard output, for tables."""
    return _Console()


class Bars:
    """Shows progress(label, done, total) as bars with the time left; in a pipe, as a line every ten seconds.

    with bise.Bars() as bars:
        sub = bise.extract(model, train, progress=bars)
    """

    EVERY = 10.0

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or _Console(stderr=True)
        self.live = self.console.is_terminal
        self.progress = Progress(
            TextColumn("{task.description:<24}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.live,
        )
        self.tasks: dict[str, TaskID] = {}
        self.running: dict[str, tuple[float, int, int, int]] = {}  # since when, from where, done, total
        self.told = time.monotonic()

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def __call__(self, label: str, done: int, total: int) -> None:
        label = one_line(label)
        if self.live:
            self._bar(label, done, total)
        else:
            self._line(label, done, total)

    def _bar(self, label: str, done: int, total: int) -> None:
        if label not in self.tasks:
            self.tasks[label] = self.progress.add_task(label, total=total)
        self.progress.update(self.tasks[label], completed=done, total=total)
        if done >= total:  # a finished bar makes room; the next round of the same work gets a new one
            self.progress.remove_task(self.tasks.pop(label))

    def _line(self, label: str, done: int, total: int) -> None:
        """Tell of the work that began first, since what runs inside it says nothing about the time left."""
        now = time.monotonic()
        since, first, *_ = self.running.get(label, (now, done))
        self.running[label] = since, first, done, total
        outer, (since, first, at, of) = next(iter(self.running.items()))
        if done >= total:
            del self.running[label]
        if now - self.told < self.EVERY:
            return
        self.told = now
        left = f", about {_duration((now - since) / (at - first) * (of - at))} left" if first < at < of else ""
        self.console.print(f"{outer}: {at}/{of}{left}")


def audit_table(title: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    """One row a model, from its part of a summary: what an audit found, in percent, and how much of it is kept."""
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column("model", no_wrap=True)
    for name in ("unbiased", "worst", "aligned", "conflict.", "units"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, part in rows.items():
        kept = part.get("units")
        table.add_row(
            name.replace("_", " "),
            *(_percent(part.get(key)) for key in ("unbiased", "worst_group")),
            *(_percent((part.get(key) or {}).get("accuracy")) for key in ("aligned", "conflicting")),
            f"{kept['open']} / {kept['all']}" if kept else "–",
        )
    return table


def shrunk_table(figures: Mapping[str, Any]) -> Table:
    """Dense and shrunk side by side, from `deploy`'s figures."""
    latency = figures.get("latency_by_batch", {})
    caption = f"shrunk equals masked: relative difference {figures['difference_float64']:.0e} in float64"
    if latency:
        caption += "\ntimes are medians of alternating runs, their ratio is the median over neighbours"
    table = Table(title="Closed units removed", title_justify="left", caption=caption, caption_justify="left")
    table.add_column("")
    for name in ("dense", "shrunk", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for label, key in (("parameters", "parameters"), ("MACs a sample", "macs")):
        dense, shrunk = figures[key]["dense"], figures[key]["shrunk"]
        table.add_row(label, _short(dense), _short(shrunk), f"{shrunk / max(1, dense):.2f}")
    for one in times_of(figures):
        mode = "" if one["mode"] == EAGER else f", {one['mode']}"
        label = f"latency{mode}, batch {one['batch']}, {one['device']}"
        table.add_row(label, f"{one['dense_ms']:.2f} ms", f"{one['shrunk_ms']:.2f} ms", f"{one['ratio']:.2f}")
    return table


def comparison_tables(found: Comparison) -> list[Table]:
    """One row a network of a run, and one a setting that differs."""
    figures = Table(title="Accuracy on the test split, %", title_justify="left")
    for name in ("run", "network"):
        figures.add_column(name, overflow="fold")
    names = {"unbiased": "unbiased", "worst_group": "worst", "aligned": "aligned", "conflicting": "conflict."}
    for name in (*names.values(), "units"):
        figures.add_column(name, justify="right", no_wrap=True)
    for line in found.lines:
        units = "–" if line.units is None else f"{line.units[0]} / {line.units[1]}"
        shares = (_percent(line.figures[key]) for key in names)
        figures.add_row(one_line(line.run), line.name.replace("_", " "), *shares, units)
    if not found.settings:
        return [figures]
    settings = Table("setting", *map(one_line, found.runs), title="What was set otherwise", title_justify="left")
    for name, values in found.settings.items():
        settings.add_row(one_line(name), *map(one_line, values))
    return [figures, settings]


def show_front(summary: Mapping[str, Any], folder: Path) -> None:
    """A row for each budget of a front."""
    out, found = console(), summary["front"]
    title = f"Budgets of {found['of']}: accuracy on {found['split']}, %"
    table = Table(title=title, title_justify="left")
    table.add_column("budget", no_wrap=True)
    names = list(found["points"][0]["networks"])
    heads = [head for name in names for head in (name.replace("subnetwork", "mask"), "worst")]
    for head in ("kept", "units", *heads):
        table.add_column(head, justify="right", no_wrap=True)
    for point in found["points"]:
        figures = [_percent(point["networks"][name][key]) for name in names for key in ("unbiased", "worst_group")]
        kept, units = _percent(point["shares"][found["of"]]), point["units"]
        table.add_row(f"{point['budget']:g}", kept, f"{units['open']} / {units['all']}", *figures)
    show_table(out, table)
    show_place(out, folder, summary["seconds"])


def show_table(console: Console, table: Table) -> None:
    """Print a table; where it is too wide for the terminal, as lines, since rich would cut its figures."""
    if Measurement.get(console, console.options.update_width(WIDE), table).minimum <= console.width:
        console.print(table)
        return
    lines = [str(table.title)]
    for first, *others in zip(*(column.cells for column in table.columns), strict=True):
        heads = (f"{column.header}: " if column.header else "" for column in table.columns[1:])
        lines += [str(first), *(f"  {head}{cell}" for head, cell in zip(heads, others, strict=True))]
    lines += [str(table.caption)] if table.caption else []
    console.print("\n".join(lines), soft_wrap=True, markup=False)


def show_run(summary: dict[str, Any], title: str, folder: Path, as_json: bool) -> None:
    """What came out of a run: tables, the promise, the selection, and where it all is; or the summary as JSON."""
    if as_json:
        show_json(finite(summary))
        return
    out = console()
    models = ("vanilla", "subnetwork", "refitted", "finetuned", "dense_finetuned")
    rows = {name: summary[name] for name in models if name in summary}
    if any("unbiased" in row for row in rows.values()):
        show_table(out, audit_table(title, rows))
    else:
        out.print("there is no test split, so nothing was audited: bise audit RUN --data FILE does it on other data")
    for line in ignorance(rows):
        out.print(line, soft_wrap=True)
    if "shrunk" in summary.get("subnetwork", {}):  # those made from it have the same mask, so the same size
        show_table(out, shrunk_table(summary["subnetwork"]["shrunk"]))
    before, after = summary["weights"]["before"], summary["weights"]["after"]
    out.print(f"the model's weights: {'unchanged' if before == after else 'CHANGED'} (sha256 {after[:12]}…)")
    selection = summary["selection"]
    chosen = f"best mask on val, epoch {selection['epoch']}" if selection["kind"] == "best" else "last mask"
    if selection["kind"] == "best" and selection["epoch"] == 0:
        chosen = "none, the model itself was the best on val"
        if refused := selection.get("constant"):
            chosen += f" ({refused} masks gave every sample one class, and were refused as constant)"
    if selection.get("val"):
        chosen = "last mask, none was judged on val before the run ended"
    out.print(f"selection: {chosen}; stopped at {summary['stopped']}", soft_wrap=True)
    targets = summary.get("targets") or {}
    if "right" in targets and (targets["margin"] or targets["smoothing"]):
        out.print(
            f"the model has {targets['right']:.1%} of evenly drawn training samples right, so they had to be classified"
            f" with a margin ({targets['margin']:g}) and smoothed targets ({targets['smoothing']:g})",
            soft_wrap=True,
        )
    elif "other" in targets:
        other = targets["other"]
        out.print(
            f"margin ({other['margin']:g}) and smoothed targets ({other['smoothing']:g}) were tried first, and were no"
            f" better on val: {other['value']:.1%} against {selection['value']:.1%} without",
            soft_wrap=True,
        )
    if fit := summary.get("refitted", {}).get("fit"):
        out.print(_refit_line(fit), soft_wrap=True)
    show_place(out, folder, summary["seconds"])


def ignorance(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each network that knows little or nothing, and what to look at."""
    found = {name: part["standing"] for name, part in rows.items() if (part.get("standing") or {}).get("says")}
    lines = [f"MIND: {told(name.replace('_', ' '), standing)}" for name, standing in found.items()]
    if any(standing["state"] in IGNORANT for standing in found.values()):
        lines.append(f"MIND: {REASON}")
    if "vanilla" in found:
        lines.append(likely(found["vanilla"]["state"]))
    return lines


def _refit_line(fit: Mapping[str, Any]) -> str:
    """What the refit did, and what that meant on val."""
    on = " and ".join(f"{count:,} samples of {name}" for name, count in fit["samples"].items())
    said = f"refit: {fit['layer']} fitted anew on {on}, L2 {fit['l2']['chosen']:g} by {fit['l2']['by']}"
    if fit["val"] is None:
        return f"{said}; there is no val to judge it by"
    before, after = (_percent(fit["val"][key]["unbiased"]) for key in ("before", "after"))
    said = f"{said}; mean of groups on val {before} % before, {after} % after"
    return f"{said}: refused, {fit['layer']} is as it was" if fit["refused"] else said


def show_place(console: Console, folder: Path, seconds: float) -> None:
    """Where everything is, and the page to open."""
    console.print(f"run folder: {folder}  ({seconds:.0f} s)", soft_wrap=True, markup=False)
    if (folder / "report.html").is_file():
        console.print(f"report: {folder / 'report.html'}", soft_wrap=True, markup=False)


def _short(count: int) -> str:
    rounded = float(f"{count:.3g}")  # first: 999,999 is 1 M, and no 1000 k
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rounded >= factor:
            return f"{rounded / factor:.3g} {unit}"
    return str(count)


def _duration(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _percent(value: float | None) -> str:
    return "–" if value is None or value != value else f"{100 * value:.1f}"
