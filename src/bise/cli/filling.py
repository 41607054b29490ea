"""A comparison's table that fills while one watches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.progress import Progress
from rich.table import Table

from bise.base.output import one_line
from bise.cli.terminal import Bars

if TYPE_CHECKING:
    from bise.jobs.bench_plan import Plan

WAITING = "·"
NONE = "–"
"""For a row without figures: the table at the end has the reason."""
AROUND = 8
"""Lines for the table's title and head, and for the bars."""


class Filling(Bars):
    """Bars below a table with a line for each method and a column for each seed; in a pipe, a line for each row.

    Where the terminal is too small for the table, there are the bars alone.
    """

    def __init__(self, plan: Plan, console: Console | None = None) -> None:
        super().__init__(console)
        self.seeds, self.of = plan.seeds, plan.rows
        names = ("vanilla", *(method.name for method in plan.methods))
        self.cells = {(problem.name, name): dict.fromkeys(plan.seeds, WAITING) for problem in plan.problems
                      for name in names}  # fmt: skip
        self.there = 0
        self.progress = _Below(
            self.above, *self.progress.columns, console=self.console, transient=True, disable=not self.live
        )

    def arrived(self, row: Mapping[str, Any]) -> None:
        """A row is there."""
        self.there += 1
        value = f"{100 * row['figures']['unbiased']:.1f}" if "figures" in row else NONE
        self.cells[row["dataset"], row["method"]][row["seed"]] = value
        if not self.live:
            why = row.get("skipped") or row.get("failed")
            said = f"skipped, {why}" if "skipped" in row else f"failed, {why}" if why else f"unbiased {value}"
            line = f"{self.there}/{self.of} {row['dataset']}, seed {row['seed']}, {row['method']}: {said}"
            self.console.print(one_line(line), soft_wrap=True)

    def table(self) -> Table:
        """The table as far as it is filled."""
        table = Table("data set", "method", title="unbiased accuracy on test, %", title_justify="left")
        for seed in self.seeds:
            table.add_column(f"seed {seed}", justify="right", no_wrap=True)
        for (dataset, method), values in self.cells.items():
            table.add_row(one_line(dataset), one_line(method), *values.values())
        return table

    def above(self) -> Iterator[Table]:
        """The table, where the terminal has room for it."""
        table, console = self.table(), self.console
        narrow = Measurement.get(console, console.options, table).minimum <= console.width
        if narrow and table.row_count + AROUND <= console.height:
            yield table


class _Below(Progress):
    """Bars below something else."""

    def __init__(self, above: Callable[[], Iterator[Table]], *columns: Any, **how: Any) -> None:
        self.above = above
        super().__init__(*columns, **how)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from self.above()
        yield from super().get_renderables()
