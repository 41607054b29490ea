"""`bise bench`: methods side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bise.base.output import one_line, show_json
from bise.cli.guard import guard
from bise.cli.own import own_data
from bise.cli.several import workplace
from bise.cli.shared import (
    AddressOption,
    CpusOption,
    DataOption,
    DataRootOption,
    DeviceOption,
    EngineOption,
    EveryOption,
    GpusOption,
    JsonOption,
    ModelOption,
    ResumeOption,
    WeightsOption,
)

NO_BREAK = "\u00a0"
"""A space at which no table is cut; printed as a plain one."""


@own_data
def bench(
    own: dict[str, Any],
    methods: Annotated[str, typer.Option(help="Names with commas, or all; --list names them.")] = "all",
    datasets: Annotated[
        str | None,
        typer.Option(help="demo, or recipes, with commas; name:ρ for another ρ. Or give --model and --data."),
    ] = None,
    model: ModelOption = None,
    data: DataOption = None,
    weights: WeightsOption = None,
    seeds: Annotated[str, typer.Option(help="How many, or which with commas: 3, or 0,4.")] = "2",
    select: Annotated[
        str, typer.Option(help="unbiased-val, biased-val or last: how epochs are selected, for all methods alike.")
    ] = "unbiased-val",
    settings: Annotated[int, typer.Option(help="Settings of each method to try on val.")] = 1,
    against: Annotated[str, typer.Option(help="Method that others are paired with; default the first one.")] = "",
    epochs: Annotated[int | None, typer.Option(help="Epochs of training anew; default the recipe's, or 20.")] = None,
    limit: Annotated[int | None, typer.Option(help="Draw only so many samples of each split, for a trial.")] = None,
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/bench"),
    device: DeviceOption = "auto",
    engine: EngineOption = "local",
    address: AddressOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    data_root: DataRootOption = None,
    listed: Annotated[bool, typer.Option("--list", help="Name the methods, and what each needs.")] = False,
    resume: ResumeOption = False,
    checkpoint_every: EveryOption = 60,
    as_json: JsonOption = False,
) -> None:
    """Which method suits the problem: all of them on the same data, budget, selection and seeds."""
    with guard(resumable=True):
        from bise.methods.rivals.listed import METHODS

        if listed:
            _show_list(METHODS)
            return
        from bise.jobs.bench_sources import Asked
        from bise.jobs.engines import engine_named
        from bise.jobs.python_sources import device_named

        cluster = engine_named(engine, address, cpus, gpus)
        asked = Asked(
            methods=methods, datasets=datasets, model=model, data=data, weights=weights, own=own, root=data_root,
            limit=limit, epochs=epochs, seeds=seeds, select=select, settings=settings, against=against,
            device=str(device_named(device)) if cluster is None else cluster.device(device), every=checkpoint_every,
        )  # fmt: skip
        _compare(asked, cluster, out, resume, as_json)


def _compare(asked: Any, cluster: Any, out: Path, resume: bool, as_json: bool) -> None:
    """Do what is asked, here or on a cluster, and show what came of it."""
    from bise.base.files import finite
    from bise.cli.filling import Filling
    from bise.jobs.bench import compare
    from bise.jobs.bench_work import Elsewhere

    plan = asked.plan()
    elsewhere = None if cluster is None else Elsewhere(cluster=cluster, plan=asked.plan)
    how = {"resume": resume, "about": asked.about(), "elsewhere": elsewhere}
    with Filling(plan) as bars:
        summary = compare(plan, workplace(out), progress=bars, arrived=bars.arrived, **how)
    if as_json:
        show_json(finite(summary))
    else:
        _show(summary, out)


def _show_list(methods: Mapping[str, Any]) -> None:
    from rich.table import Table

    from bise.cli.terminal import console, show_table

    table = Table(title="Methods", title_justify="left")
    for name in ("name", "starts from", "needs beside y", "changes"):
        table.add_column(name, no_wrap=True)
    for method in methods.values():
        table.add_row(method.name, method.starts, ", ".join(method.needs) or "–", method.changes)
    show_table(console(), table)


def _show(summary: Mapping[str, Any], folder: Path) -> None:
    """A table for each data set, what was skipped and why, and where the page is."""
    from rich.table import Table

    from bise.cli.terminal import console, show_table
    from bise.reporting.bench_words import HEAD, NARROW, caption, cells_of

    out, about = console(), summary["bench"]
    for dataset in dict.fromkeys(line["dataset"] for line in summary["table"]):
        lines = [line for line in summary["table"] if line["dataset"] == dataset]
        title = f"{dataset}: accuracy on test, %"
        table = Table(title=title, title_justify="left", caption=caption(about), caption_justify="left")
        for number in NARROW:
            head = _unbroken(HEAD[number].format(against=about["against"]))
            table.add_column(head, justify="right" if number else "left", no_wrap=True)
        for line in lines:
            if line["n"]:
                cells = [line["method"], *cells_of(line)]
                table.add_row(*(_unbroken(cells[number]) for number in NARROW))
        with out.capture() as shown:
            show_table(out, table)
        out.file.write(shown.get().replace(NO_BREAK, " "))
        for line in lines:
            for reason in line["reasons"]:
                out.print(f"{one_line(line['method'])}: {one_line(reason)}", soft_wrap=True, markup=False)
    out.print(f"run folder: {folder}", soft_wrap=True, markup=False)
    if (folder / "report.html").is_file():
        out.print(f"report: {folder / 'report.html'}", soft_wrap=True, markup=False)


def _unbroken(text: str) -> str:
    """Text that a table may not cut between its words."""
    return one_line(text).replace(" ", NO_BREAK)
