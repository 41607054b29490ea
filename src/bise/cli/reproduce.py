"""`bise reproduce`: the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bise.base.options import either
from bise.base.output import show, show_json
from bise.cli.completing import one_of
from bise.cli.guard import guard
from bise.cli.shared import (
    AddressOption,
    CpusOption,
    DataRootOption,
    DeviceOption,
    EngineOption,
    GpusOption,
    JsonOption,
)
from bise.extraction.config import PRESETS


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="STUDY…", help="Names of studies, or all; --list names them."),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="paper: its settings, on a GPU; smoke: a trial in seconds.", autocompletion=one_of(("paper", "smoke"))
        ),
    ] = "paper",
    seeds: Annotated[str | None, typer.Option(help="Only these seeds, with commas; default 0,1,2.")] = None,
    rho: Annotated[str | None, typer.Option(help="Only these ρ, with commas.")] = None,
    only: Annotated[
        str | None, typer.Option(help="Only jobs of these kinds, with commas: vanilla, extract, finetune …")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help=f"Only this preset: {either(PRESETS)}.", autocompletion=one_of(PRESETS)),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="authors, as in their code, where a study has it; paper, by the text; or all.")
    ] = "authors",
    line: Annotated[str | None, typer.Option(help="Only lines of tables whose label contains this text.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Begin no job after so many minutes.")] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder of results; default results, or runs/smoke for a trial.")
    ] = None,
    cache: Annotated[
        Path, typer.Option(help="Folder where vanilla models and extractions are kept for other studies.")
    ] = Path("runs/cache"),
    processes: Annotated[
        int, typer.Option(help="Jobs at a time, each in a process of its own; rows then have no seconds.")
    ] = 1,
    engine: EngineOption = "local",
    address: AddressOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    device: DeviceOption = "auto",
    weights: Annotated[
        str | None, typer.Option(help="Where ResNet-18 or BERT starts: imagenet, scratch, or a file.")
    ] = None,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile", help="On a GPU, let torch.compile fuse what it can while vanilla models are trained."
        ),
    ] = False,
    data_root: DataRootOption = None,
    page: Annotated[bool, typer.Option("--page", help="Write docs/results.md and its figures from results.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Name the studies, and what is missing of each.")] = False,
    as_json: JsonOption = False,
) -> None:
    """The paper's tables and figures: runs what is missing, row by row, and goes on where it was stopped."""
    with guard(how="the same command goes on behind the last row that was written"):
        from bise.base.errors import BadInput
        from bise.cli.terminal import Bars
        from bise.jobs.engines import engine_named
        from bise.studies.catalogue import studies_named
        from bise.studies.page import write_page
        from bise.studies.reproduction import Limits
        from bise.studies.reproduction import reproduce as carry_out
        from bise.studies.scale import scale_named

        cluster = engine_named(engine, address, cpus, gpus)
        chosen = scale_named(scale)
        if compiled:
            chosen = chosen.compiled()
        folder = results or Path("runs/smoke" if chosen.short else "results")
        if not (names or page or listed):
            raise BadInput("no study is named; give some, or all, or --list, or --page")
        if listed:
            _show_studies(folder, chosen)
            return
        done = {}
        if names:
            limits = Limits(
                seeds=None if seeds is None else tuple(_numbers(seeds, "--seeds", int)),
                rho=None if rho is None else tuple(_numbers(rho, "--rho", float)),
                only=None if only is None else tuple(only.split(",")),
                presets=None if preset is None else (preset,),
                protocol=protocol,
                line=line,
                minutes=minutes,
            )
            with Bars() as bars:
                done = carry_out(
                    studies_named(names),
                    chosen,
                    results=folder,
                    cache_folder=cache,
                    limits=limits,
                    device=device,
                    weights=weights,
                    root=data_root,
                    processes=processes,
                    cluster=cluster,
                    progress=bars,
                    tell=(lambda line: None) if as_json else show,
                )
            if as_json:
                show_json(done, indent=None)
            else:
                show(", ".join(f"{count} {word}" for word, count in done.items()))
        if page:
            show(write_page(folder, chosen, folder if chosen.short else Path("docs")))  # a trial's are no results


def _show_studies(folder: Path, scale: Any) -> None:
    """Each study, and how many of its jobs have a row."""
    from bise.studies.catalogue import STUDIES
    from bise.studies.page import lines_of, read

    for study in STUDIES.values():
        there, wanted = len(read(folder, study.name, scale)), len(lines_of(study, scale, ""))
        show(f"{study.name:<20} {there:>3} of {wanted:>3} jobs  {study.title} ({study.place})")


def _numbers(text: str, option: str, kind: Any) -> list[Any]:
    from bise.base.errors import BadInput

    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"{option} {text!r} holds something that is no number; write them with commas") from None
