"""`bise verify`: a table of promises, and whether each holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from bise.cli_guard import JsonOption, guard

SIGNS = {"holds": "✓ holds", "broken": "✗ broken", "unchecked": "○ unchecked"}


def verify(
    run: Annotated[Path, typer.Argument(help="A run folder of bise demo, train, extract, refit or finetune.")],
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="package.module:function that returns the model, where the run's own can't be had; it is imported and"
            " run.",
        ),
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Its weights, .safetensors or a state dict in .pt.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check that a run keeps its promises; exit code 1 where one is broken."""
    with guard():
        from rich.console import Console
        from rich.table import Table

        from bise.errors import BadInput
        from bise.files import SCHEMA
        from bise.sources import data_of, model_of, model_of_run
        from bise.terminal import show_table
        from bise.verification import verify as check

        if weights is not None and model is None:
            raise BadInput("--weights needs the model that they belong to; name it with --model")
        given = None if model is None else model_of(model, weights)  # what was asked for by name has to be there

        def source() -> tuple[Any, Any]:
            return model_of_run(run) if given is None else given, lambda split: data_of(run)(split)

        found = check(run, source)
        if as_json:
            print(json.dumps({"schema": SCHEMA, "run": str(run), **found.as_dict()}, indent=2))
        else:
            table = Table("promise", "", "what was found", title=f"Promises of {run}", title_justify="left")
            for promise in found.promises:
                table.add_row(promise.name, SIGNS[promise.state], promise.detail)
            show_table(Console(markup=False), table)  # what files say is no markup
        if not found.holds:
            raise typer.Exit(1)
