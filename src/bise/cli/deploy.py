"""`bise shrink` and `bise export`: from a run to files to deploy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bise.base.names import NETWORKS, STREAMS
from bise.base.output import show, show_json
from bise.cli.completing import one_of
from bise.cli.guard import guard
from bise.cli.shared import JsonOption, OfOption, TrustOption, ZetaOption

AlignOption = Annotated[
    str,
    typer.Option(
        help="Fill widths up to a multiple with filters of zeros: a number, or auto, which times some and keeps the"
        " fastest on this machine."
    ),
]
StreamsOption = Annotated[
    str | None,
    typer.Option(
        help="Residual streams: narrow, union (no index operations) or auto; default as --align says.",
        autocompletion=one_of(STREAMS),
    ),
]
ModesOption = Annotated[
    str,
    typer.Option(help="Time these as well: CUDA graph, torch.compile, ONNX Runtime; separated by commas."),
]


def shrink(
    run: Annotated[Path, typer.Argument(help="A run folder; its model and data are used again.")],
    out: Annotated[Path | None, typer.Option(help="torch.export file to write, ending in .pt2.")] = None,
    onnx: Annotated[Path | None, typer.Option(help="ONNX file to write, ending in .onnx.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="New folder for from_pretrained or bise.load_pretrained, with a model card.")
    ] = None,
    form: Annotated[
        str, typer.Option(help="Of that folder: transformers, operations, or auto: the first where it can be had.")
    ] = "auto",
    of: OfOption = NETWORKS[0],
    zeta: ZetaOption = None,
    align: AlignOption = "1",
    streams: StreamsOption = None,
    modes: ModesOption = "",
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the closed units physically, verify, measure, and write files to deploy."""
    with guard():
        files: list[tuple[Path | None, tuple[str, ...]]] = [(out, (".pt2",)), (onnx, (".onnx",))]
        _shrink(run, of, zeta, files, trust, as_json, align, streams, modes, folder, form)


def export(
    run: Annotated[Path, typer.Argument(help="A run folder; its model and data are used again.")],
    file: Annotated[Path, typer.Argument(help="File to write, ending in .onnx, or in .pt2 for torch.export.")],
    of: OfOption = NETWORKS[0],
    zeta: ZetaOption = None,
    align: AlignOption = "1",
    streams: StreamsOption = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Shrink, verify, and write one file to deploy."""
    with guard():
        _shrink(run, of, zeta, [(file, (".onnx", ".pt2"))], trust, as_json, align, streams)


def _shrink(
    run: Path,
    of: str,
    zeta: float | None,
    files: list[tuple[Path | None, tuple[str, ...]]],
    trust: bool,
    as_json: bool,
    align: str,
    streams: str | None,
    modes: str = "",
    folder: Path | None = None,
    form: str = "auto",
) -> None:
    """Shrink a run's network, write each file that is named, and show the figures."""
    from bise.base.errors import BadInput
    from bise.base.files import finite
    from bise.base.slower import slower
    from bise.cli.terminal import Bars, console, show_table, shrunk_table
    from bise.jobs.shrink import shrink_job
    from bise.jobs.sources import source_of, trust_run

    for path, endings in files:
        if path is not None and path.suffix not in endings:
            raise BadInput(f"{path} should end in {' or '.join(endings)}")
    if trust:
        trust_run(run)
    model, splits = source_of(run)
    with Bars() as bars:
        named = [path for path, _ in files if path is not None]
        figures = shrink_job(
            model,
            splits,
            run,
            name=of,
            zeta=zeta,
            files=named,
            pretrained=folder,
            form=form,
            progress=bars,
            align=align,
            streams=streams,
            modes=[mode.strip() for mode in modes.split(",") if mode.strip()],
        )
    if as_json:
        show_json(finite(figures))
    else:
        show_table(console(), shrunk_table(figures))
        for line in slower(figures):
            console().print(line, soft_wrap=True)
        if folder is not None:
            made = figures["folder"]
            show(f"{folder}: {made['form']} ({made['why']}), {made['parameters']:,} parameters")
            show(f"read back, its logits differ by {made['difference']:.0e}")
