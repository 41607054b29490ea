"""`bise refit`: the last layer of a run's subnetwork fitted anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bise.cli.guard import JsonOption, TrustOption, guard


def refit(
    run: Annotated[Path, typer.Argument(help="A run folder of bise extract; its model and data are used again.")],
    on: Annotated[
        str, typer.Option(help="The samples that the last layer is fitted on: train, val or both.")
    ] = "train",
    l2: Annotated[
        list[float] | None,
        typer.Option(help="A weight of the L2 term to try; may be repeated. Default 1e-5, 1e-4, … 0.1."),
    ] = None,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation, where val can't choose the L2.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the folds.")] = 0,
    keep_worse: Annotated[
        bool, typer.Option("--keep-worse", help="Take the refit also where the mean over groups on val falls.")
    ] = False,
    bottleneck: Annotated[
        str | None, typer.Option(help="Module to fit anew, where it isn't the one that the bottleneck feeds.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU where there is one.")] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Processes that read ahead; default up to 4 for picture files, else 0."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Do it again where it was stopped; it takes seconds.")
    ] = False,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fit the last linear layer anew on the subnetwork's features, all groups evenly; no other weight changes."""
    with guard(resumable=True):
        from bise.cli.terminal import Bars, show_run
        from bise.jobs.python_sources import device_named
        from bise.jobs.refit import refit_job
        from bise.jobs.sources import source_of, trust_run

        changes: dict[str, Any] = {"on": on, "folds": folds, "seed": seed, "keep_worse": keep_worse}
        changes |= {"l2": tuple(l2)} if l2 else {}
        if trust:
            trust_run(run)
        model, splits = source_of(run)
        with Bars() as bars:
            summary = refit_job(
                model.to(device_named(device)),
                splits,
                run,
                changes=changes,
                bottleneck=bottleneck,
                workers=workers,
                progress=bars,
                resume=resume,
            )
        show_run(summary, "Accuracy on the test split, %", run, as_json)
