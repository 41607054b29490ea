"""The commands `bise data …`: look at data before work is put into it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bise.base.output import show, show_json
from bise.cli.completing import SPLITS, one_of
from bise.cli.flags import flagged
from bise.cli.guard import guard
from bise.cli.own import own_data
from bise.cli.shared import DataRootOption, JsonOption

data_app = typer.Typer(help="Look at data before work is put into it.", no_args_is_help=True)


@data_app.command("check", epilog="Example: bise data check labels.csv --target smiling --bias sex --split-column fold")
@own_data
def data_check(
    source: Annotated[str, typer.Argument(help="A csv or parquet file, a folder, a data set by name, or a function.")],
    own: dict[str, Any],
    files: Annotated[bool, typer.Option("--files", help="Open every picture too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """The groups, how uneven they are, and whether extraction can work on them; exit code 1 where it can't."""
    with guard():
        from bise.base.files import SCHEMA, finite
        from bise.cli.checked import check_lines
        from bise.cli.terminal import Bars
        from bise.jobs.check import check_job

        with Bars() as bars:
            found = check_job(source, own, files=files, progress=bars)
        found = replace(found, warnings=tuple(map(flagged, found.warnings)))
        if as_json:
            show_json({"schema": SCHEMA, **finite(found.as_dict())})
        else:
            for line in check_lines(found):
                show(line)
        if not found.works:
            raise typer.Exit(1)


@data_app.command("sheet", epilog="Example: bise data sheet biased-mnist --rho 0.9 --out sheet.png")
@own_data
def data_sheet(
    source: Annotated[str, typer.Argument(help="A csv or parquet file, a folder, a data set by name, or a function.")],
    out: Annotated[Path, typer.Option(help="PNG file to write.")],
    own: dict[str, Any],
    split: Annotated[str, typer.Option(help="Which split to show.", autocompletion=one_of(SPLITS))] = "train",
    per_group: Annotated[int, typer.Option(min=1, help="Pictures of each target and bias.")] = 2,
    scale: Annotated[int | None, typer.Option(min=1, help="Times that each is enlarged; default by its size.")] = None,
    as_json: JsonOption = False,
) -> None:
    """A picture to look at: a few samples of every target (row) and bias (column)."""
    with guard():
        from bise.base.errors import BadInput
        from bise.jobs.sheet import sheet_job

        if out.suffix.lower() != ".png":
            raise BadInput(f"--out {out} should end in .png")
        sheet_job(source, own, out, split=split, per_group=per_group, scale=scale)
        if as_json:
            show_json({"sheet": str(out)}, indent=None)
        else:
            show(out)


@data_app.command("download", epilog="Example: bise data download mnist --data-root data")
def data_download(
    name: Annotated[str, typer.Argument(help="Which files: mnist.")],
    data_root: DataRootOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch a data set's original files and check them; what is there already is left alone."""
    with guard():
        from bise.cli.terminal import Bars
        from bise.data import download

        with Bars() as bars:
            folder = download(name, data_root, progress=bars)
        found = {"folder": str(folder), "checked": "md5"}
        if as_json:
            show_json(found, indent=None)
        else:
            show(f"{folder}: all files are there, md5 checked")
