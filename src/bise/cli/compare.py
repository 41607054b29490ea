"""`bise compare`: runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bise.base.output import show_json
from bise.cli.guard import guard
from bise.cli.shared import JsonOption


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, two or more.")],
    out: Annotated[Path | None, typer.Option(help="Write a page too, to this file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Runs side by side, from what they keep: every network's figures, and what was set otherwise."""
    with guard():
        from bise.base.files import SCHEMA, check_writable, finite
        from bise.cli.terminal import comparison_tables, console, show_table
        from bise.reporting.comparing import compared, write_comparison
        from bise.reporting.writing import check_place

        if out is not None:
            check_writable(out.parent, "name a file elsewhere with --out")
            check_place(out, chosen=True)
        found = compared(runs)
        if out is not None:
            write_comparison(found, out)
        if as_json:
            show_json({"schema": SCHEMA, **finite(found.as_dict())} | ({} if out is None else {"page": str(out)}))
            return
        terminal = console()
        for table in comparison_tables(found):
            show_table(terminal, table)
        for note in found.notes:
            terminal.print(f"mind: {note}", soft_wrap=True)
        if out is not None:
            terminal.print(f"page: {out}", soft_wrap=True)
