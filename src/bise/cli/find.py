"""`bise find`: candidates for a bias that nobody has named."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bise.base.output import tell
from bise.cli.guard import guard
from bise.cli.own import own_data
from bise.cli.shared import (
    DataOption,
    DeviceOption,
    JsonOption,
    ModelOption,
    TrustOption,
    WeightsOption,
    WorkersOption,
    run_or_model,
)


@own_data
def find(
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    own: dict[str, Any],
    run: Annotated[
        Path | None, typer.Argument(help="A run folder whose model and data are used, such as one of bise train.")
    ] = None,
    *,
    model: ModelOption = None,
    data: DataOption = None,
    weights: WeightsOption = None,
    trust: TrustOption = False,
    device: DeviceOption = "auto",
    pseudo: Annotated[
        bool, typer.Option("--pseudo", help="A fresh model of one epoch is a source too; --model makes it.")
    ] = False,
    bottleneck: Annotated[str | None, typer.Option(help="Module whose input is the bottleneck.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws the samples that groups are fitted on.")] = 0,
    workers: WorkersOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Do it again from its start, where it was stopped.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Groups that the model may treat unequally, without bias labels; one goes on by bise extract --bias-from."""
    with guard(resumable=True):
        from bise.base.errors import BadInput
        from bise.base.files import finite
        from bise.base.output import show_json
        from bise.cli.found import show_found
        from bise.cli.terminal import Bars
        from bise.jobs.find import find_job
        from bise.jobs.sources import given

        if "bias_from" in own:
            raise BadInput("--bias-from gives a bias, and bise find looks for one; leave it out")
        run, model = run_or_model(run, model)
        network, splits, source = given(model, weights, data, own, run, device, trust=trust, say=tell)
        with Bars() as bars:
            summary = find_job(
                network,
                splits,
                out,
                source=source,
                pseudo=pseudo,
                bottleneck=bottleneck,
                seed=seed,
                workers=workers,
                progress=bars,
                resume=resume,
            )
        if as_json:
            show_json(finite(summary))
        else:
            show_found(summary, out)
