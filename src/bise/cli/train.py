"""`bise demo` and `bise train`: where a model comes from that isn't the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bise.base.options import either
from bise.base.output import show_json
from bise.cli.completing import one_of
from bise.cli.guard import guard
from bise.cli.several import workplace
from bise.cli.shared import (
    BoardOption,
    DataRootOption,
    DeviceOption,
    EveryOption,
    JsonOption,
    ResumeOption,
    WorkersOption,
)

RECIPES = (
    "biased-mnist",
    "multi-color-mnist",
    "corrupted-cifar10",
    "celeba",
    "civilcomments",
    "biased-madlibs",
    "biased-madlibs-small",
)
"""Their names; what they are is known to a room that imports torch."""


def demo(
    seed: Annotated[int, typer.Option(help="Seed of data, training and extraction.")] = 0,
    rho: Annotated[float, typer.Option(help="Share of training digits on their class's own colour.")] = 0.985,
    out: Annotated[Path | None, typer.Option(help="Run folder; default runs/demo-SEED.")] = None,
    resume: ResumeOption = False,
    checkpoint_every: EveryOption = 60,
    tensorboard: BoardOption = False,
    as_json: JsonOption = False,
) -> None:
    """The whole path on coloured digits: train, audit, extract, refit, finetune, audit, in a few minutes."""
    with guard(resumable=True):
        from bise.cli.terminal import Bars, show_run
        from bise.jobs.demo import demo as run_demo

        folder = out or Path(f"runs/demo-{seed}")
        place = workplace(folder)
        with Bars() as bars:
            summary = run_demo(
                place,
                seed=seed,
                rho=rho,
                progress=bars,
                tensorboard=tensorboard,
                resume=resume,
                every=checkpoint_every,
            )
        show_run(summary, f"Coloured digits, ρ = {rho:g}: accuracy on the unbiased test set, %", folder, as_json)


def train(
    name: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help=f"{either(RECIPES)}.",
            autocompletion=one_of(RECIPES),
        ),
    ],
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    rho: Annotated[str | None, typer.Option(help="Share of aligned samples; two with a comma, for two biases.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of data, weights and batches.")] = 0,
    protocol: Annotated[
        str | None,
        typer.Option(help="The data set's protocol, such as paper, the default, or authors, as in their code."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs; default the recipe's.")] = None,
    device: DeviceOption = "auto",
    weights: Annotated[
        str | None, typer.Option(help="Weights to start from: imagenet, scratch, or a file; default the recipe's.")
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(help="For the steps after: best on val, or last.", autocompletion=one_of(("best", "last"))),
    ] = None,
    data_root: DataRootOption = None,
    limit: Annotated[int | None, typer.Option(help="Draw only so many samples of each split, for a trial.")] = None,
    workers: WorkersOption = None,
    resume: ResumeOption = False,
    checkpoint_every: EveryOption = 60,
    tensorboard: BoardOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train a vanilla model by a recipe, and audit it; go on with bise extract --from."""
    with guard(resumable=True):
        from bise.cli.terminal import Bars
        from bise.jobs.data_sources import rho_of
        from bise.jobs.recipes import recipe
        from bise.jobs.train import train_job

        chosen = recipe(name, rho=rho_of(rho), protocol=protocol, seed=seed)
        place = workplace(out)
        with Bars() as bars:
            summary = train_job(
                chosen,
                place,
                seed=seed,
                epochs=epochs,
                device=device,
                weights=weights,
                root=data_root,
                select=select,
                limit=limit,
                workers=workers,
                progress=bars,
                tensorboard=tensorboard,
                resume=resume,
                every=checkpoint_every,
            )
        _show_trained(summary, out, as_json)


def _show_trained(summary: dict[str, Any], out: Path, as_json: bool) -> None:
    """The vanilla model's audit, where it started from, and its fingerprint."""
    from bise.base.files import finite
    from bise.cli.terminal import audit_table, console, show_place, show_table

    if as_json:
        show_json(finite(summary))
        return
    out_console = console()
    show_table(out_console, audit_table("Accuracy on the test split, %", {"vanilla": summary["vanilla"]}))
    out_console.print(f"started from: {summary['start']}; weights: sha256 {summary['weights']['sha256'][:12]}…")
    show_place(out_console, out, summary["seconds"])
