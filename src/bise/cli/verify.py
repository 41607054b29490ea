"""`bise verify`: a table of promises, and whether each holds."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Annotated

import typer

from bise.base.output import show_json
from bise.cli.guard import guard
from bise.cli.shared import JsonOption, TrustOption

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
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check that a run keeps its promises; exit code 1 where one is broken."""
    with guard():
        from rich.table import Table

        from bise.base.errors import BadInput
        from bise.base.files import SCHEMA
        from bise.cli.terminal import console, show_table
        from bise.jobs.sources import data_of, model_given, model_of_run, trust_run
        from bise.jobs.verification import verify as check

        if weights is not None and model is None:
            raise BadInput("--weights needs the model that they belong to; name it with --model")
        if trust:
            trust_run(run)
        given = None if model is None else model_given(model, weights)  # what was asked for by name has to be there

        remedy = "--trust, or name the model by --model"
        splits = cache(partial(data_of, run))  # asked for only where a check needs them
        found = check(
            run,
            lambda: model_of_run(run, remedy=remedy) if given is None else given,
            lambda split: splits()(split),
        )
        if as_json:
            show_json({"schema": SCHEMA, "run": str(run), **found.as_dict()})
        else:
            table = Table("promise", "", "what was found", title=f"Promises of {run}", title_justify="left")
            for promise in found.promises:
                table.add_row(promise.name, SIGNS[promise.state], promise.detail)
            show_table(console(), table)
        if not found.holds:
            raise typer.Exit(1)
