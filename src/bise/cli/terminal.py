"""Progress bars and tables in the terminal."""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from bise.base.files import finite
from bise.base.output import one_line, show_json, visible

if TYPE_CHECKING:
    from bise.data.own.check import Check, SplitCheck
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

    def __enter__(self) -> Bars:
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
    for batch, times in latency.items():
        label = f"latency, batch {batch}, {times['device']}"
        table.add_row(label, f"{times['first_ms']:.2f} ms", f"{times['second_ms']:.2f} ms", f"{times['ratio']:.2f}")
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
        figures.add_row(one_line(line.run), line.network, *shares, units)
    if not found.settings:
        return [figures]
    settings = Table("setting", *map(one_line, found.runs), title="What was set otherwise", title_justify="left")
    for name, values in found.settings.items():
        settings.add_row(one_line(name), *map(one_line, values))
    return [figures, settings]


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
    if "shrunk" in summary.get("subnetwork", {}):  # those made from it have the same mask, so the same size
        show_table(out, shrunk_table(summary["subnetwork"]["shrunk"]))
    before, after = summary["weights"]["before"], summary["weights"]["after"]
    out.print(f"the model's weights: {'unchanged' if before == after else 'CHANGED'} (sha256 {after[:12]}…)")
    selection = summary["selection"]
    chosen = f"best mask on val, epoch {selection['epoch']}" if selection["kind"] == "best" else "last mask"
    if selection["kind"] == "best" and selection["epoch"] == 0:
        chosen = "none, the model itself was the best on val"
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


def check_lines(found: Check, width: int = 80) -> list[str]:
    """A check of a data set as lines of at most `width` columns."""
    lines: list[str] = []
    for name, split in found.splits.items():
        lines += [f"{name}: {split.samples:,} samples", *_cell_lines(split, width)]
        facts = [
            f"ρ({bias}) = {rho:.3f}, {conflicting:,} conflicting"
            for bias, rho, conflicting in zip(split.biases, split.rho, split.conflicting, strict=False)
        ]
        if split.imbalance is not None:
            facts.append(f"largest to smallest cell {split.imbalance:,.1f} to 1")
        if split.empty:
            shown = ", ".join("/".join(cell) for cell in split.empty_cells[:4]) + (", …" if split.empty > 4 else "")
            facts.append(f"{split.empty:,} empty cell{'s' * (split.empty > 1)}: {shown}")
        if split.without_bias:
            facts.append(f"{split.without_bias:,} rows without a bias label, which count for the target only")
        facts += [] if split.texts is None else split.texts.lines()
        lines += [line for fact in facts for line in _wrapped(fact, width, "  ")] + [""]
    for file, reason in list(found.unreadable.items())[:20]:
        lines += _wrapped(f"unreadable: {file} ({reason})", width)
    if len(found.unreadable) > 20:
        lines.append(f"… and {len(found.unreadable) - 20} more unreadable files (all of them with --json)")
    if found.opened is not None and not found.unreadable:
        lines.append(f"all {found.opened:,} pictures can be read")
    for warning in found.warnings:
        lines += _wrapped(f"warning: {warning}", width)
    for obstacle in found.obstacles:
        lines += _wrapped(f"obstacle: {obstacle}", width)
    lines.append("extraction can work on it" if found.works else "extraction can't work on it")
    return lines


def _cell_lines(split: SplitCheck, width: int, most: int = 12) -> list[str]:
    """Target × bias with names where that fits, else the cells in a list: the largest and the smallest."""
    named = [one_line(name) for name in (split.target, *split.biases)]
    if len(split.biases) == 1 and split.cells:
        counts = Counter({tuple(map(one_line, names)): count for names, count in split.cells})
        rows, columns = ([*map(one_line, names)] for names in split.names)
        head = f"{named[0]} \\ {named[1]}"
        first = max(len(text) for text in (head, *rows))
        widths = [max(len(c), *(len(f"{counts[(r, c)]:,}") for r in rows)) for c in columns]
        if 2 + first + sum(w + 2 for w in widths) <= width and len(rows) <= 20:
            out = ["  " + head.ljust(first) + "".join(f"  {c:>{w}}" for c, w in zip(columns, widths, strict=True))]
            for r in rows:
                cells = (f"  {counts[(r, c)]:>{w},}" for c, w in zip(columns, widths, strict=True))
                out.append("  " + r.ljust(first) + "".join(cells))
            return out
    filled = sorted(((count, names) for names, count in split.cells if count), key=lambda cell: -cell[0])
    kept = filled if len(filled) <= most else [*filled[: most // 2], None, *filled[-(most // 2) :]]
    lines = []
    for cell in kept:
        if cell is None:
            lines.append(f"  {'…':>9}  {len(filled) - most} more cells")
            continue
        each = (width - 13) // len(named) - 2
        text = ", ".join(
            f"{_abbreviated(column, each // 2 - 3)} = {_abbreviated(one_line(value), each // 2)}"
            for column, value in zip(named, cell[1], strict=True)
        )
        lines.append(f"  {cell[0]:>9,}  {_abbreviated(text, width - 13)}")
    return lines


def _abbreviated(text: str, width: int) -> str:
    """Both ends of a text that is too long: names that differ often do so at the end."""
    half = max(1, (width - 1) // 2)
    return text if len(text) <= width else f"{text[:half]}…{text[-half:]}"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


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
