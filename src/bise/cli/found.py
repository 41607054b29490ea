"""The table of what bise find found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from bise.base.output import one_line
from bise.cli.terminal import console, show_place, show_table
from bise.reporting.find_words import CANT_KNOW, beside, headline


def show_found(summary: Mapping[str, Any], folder: Path) -> None:
    """A row for each candidate, what it can't say, and how one goes on."""
    out, found = console(), summary["find"]
    if not found["candidates"]:
        out.print(headline(found), soft_wrap=True)
    else:
        show_table(out, found_table(found))
    for line in found["left_out"]:
        out.print(f"left out: {one_line(line)}", soft_wrap=True)
    for line in CANT_KNOW:
        out.print(f"mind: {line}", soft_wrap=True)
    if found["candidates"]:
        out.print(f"go on with one, by its number: bise extract … --bias-from {folder}:1", soft_wrap=True)
    show_place(out, folder, summary["seconds"])


def found_table(found: Mapping[str, Any]) -> Table:
    """Differences within a class, in points, on samples that no groups were fitted on."""
    table = Table(title=headline(found), title_justify="left")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("candidate", overflow="fold")
    for name in ("groups", "difference", "95 %"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("goes with", overflow="fold")
    for number, one in enumerate(found["candidates"], 1):
        low, high = one["interval"]
        table.add_row(
            str(number),
            one_line(one["name"]),
            str(len(one["groups"])),
            f"{100 * one['difference']:.0f}",
            f"{100 * low:.0f} to {100 * high:.0f}",
            one_line(beside(one)),
        )
    return table
