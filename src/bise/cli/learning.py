"""`bise extract`, `bise finetune` and `bise refit`: what is learned on a model, and on its subnetwork."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bise.base.names import BIAS_SOURCES
from bise.base.options import either
from bise.base.output import tell
from bise.cli.completing import one_of
from bise.cli.guard import guard
from bise.cli.own import own_data
from bise.cli.settings import sets
from bise.cli.several import workplace
from bise.cli.shared import (
    BoardOption,
    DataOption,
    DeviceOption,
    EveryOption,
    ExtractedArgument,
    FromOption,
    JsonOption,
    ModelOption,
    ResumeOption,
    TrustOption,
    WeightsOption,
    WorkersOption,
    ZetaOption,
    one_run,
    run_or_model,
)
from bise.engine.config import TrainConfig
from bise.extraction.config import PRESET_WORDS, PRESETS, ExtractConfig
from bise.methods.refit.config import RefitConfig

BiasByOption = Annotated[
    str | None,
    typer.Option(
        help="Guess the bias labels of train, and use none of its own: by a model of one epoch, epoch, or by the"
        f" method {either(BIAS_SOURCES[1:])}.",
        autocompletion=one_of(BIAS_SOURCES),
    ),
]


def _preset_help() -> str:
    """Every preset with its words, the one that stands alone first."""
    named = [f"{name}, {words}" if words else name for name, words in PRESET_WORDS.items()]
    return f"{'; '.join(named[:-1])}; or {named[-1]}."


@own_data
@sets(ExtractConfig)
def extract(
    out: Annotated[Path, typer.Option(help="Run folder to write.")],
    own: dict[str, Any],
    run: Annotated[
        Path | None, typer.Argument(help="A run folder whose model and data are used, such as one of bise train.")
    ] = None,
    *,
    model: ModelOption = None,
    data: DataOption = None,
    weights: WeightsOption = None,
    from_run: FromOption = None,
    trust: TrustOption = False,
    device: DeviceOption = "auto",
    preset: Annotated[str, typer.Option(help=_preset_help(), autocompletion=one_of(PRESETS))] = PRESETS[0],
    settings: dict[str, Any],
    bottleneck: Annotated[str | None, typer.Option(help="Module whose input is the bottleneck.")] = None,
    sites: Annotated[list[str] | None, typer.Option(help="Pattern of modules to gate; may be repeated.")] = None,
    refit: Annotated[bool, typer.Option("--refit", help="Fit the last layer anew at the end: bise refit.")] = False,
    bias_by: BiasByOption = None,
    workers: WorkersOption = None,
    resume: ResumeOption = False,
    checkpoint_every: EveryOption = 60,
    tensorboard: BoardOption = False,
    as_json: JsonOption = False,
) -> None:
    """Find the subnetwork that doesn't lean on the bias; audits before and after where there is a test split."""
    with guard(resumable=True):
        from bise.cli.terminal import Bars, show_run
        from bise.jobs.extract import extract_job
        from bise.jobs.recipes import preset_changes
        from bise.jobs.sources import given
        from bise.jobs.train import recipe_of, searching

        changes = settings
        run, model = run_or_model(run, model)
        from_run = one_run(run, from_run)
        network, load, source = given(model, weights, data, own, from_run, device, trust=trust, say=tell)
        if (chosen := recipe_of(source)) is not None:
            load, source = searching(chosen, load, source)
            changes = (preset_changes(chosen, preset) if preset in PRESETS else {}) | settings
        place = workplace(out)
        with Bars() as bars:
            summary = extract_job(
                network,
                load,
                place,
                preset=preset,
                changes=changes,
                bottleneck=bottleneck,
                sites=sites or None,
                source=source,
                refit=refit,
                bias_by=bias_by,
                workers=workers,
                progress=bars,
                tensorboard=tensorboard,
                resume=resume,
                every=checkpoint_every,
            )
        show_run(summary, "Accuracy on the test split, %", out, as_json)


@sets(TrainConfig)
def finetune(
    run: ExtractedArgument,
    *,
    preset: Annotated[
        str,
        typer.Option(
            help=f"{PRESETS[0]}; or {either(PRESETS[1:])}: its weights, by the recipe's settings if any.",
            autocompletion=one_of(PRESETS),
        ),
    ] = PRESETS[0],
    settings: dict[str, Any],
    zeta: ZetaOption = None,
    trust: TrustOption = False,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    resume: ResumeOption = False,
    checkpoint_every: EveryOption = 60,
    tensorboard: BoardOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train the weights that remain, mask fixed, and the dense control by the same settings."""
    with guard(resumable=True):
        from bise.cli.terminal import Bars, show_run
        from bise.jobs.finetune import finetune_job
        from bise.jobs.python_sources import device_named
        from bise.jobs.sources import described_by, source_of, trust_run
        from bise.jobs.train import finetune_settings

        if trust:
            trust_run(run)
        changes = finetune_settings(preset, described_by(run)) | settings
        model, splits = source_of(run)
        place = workplace(run)
        with Bars() as bars:
            tuned = model.to(device_named(device))
            summary = finetune_job(
                tuned,
                splits,
                place,
                changes=changes,
                zeta=zeta,
                workers=workers,
                progress=bars,
                tensorboard=tensorboard,
                resume=resume,
                every=checkpoint_every,
            )
        show_run(summary, "Accuracy on the test split, %", run, as_json)


@sets(RefitConfig)
def refit(
    run: ExtractedArgument,
    settings: dict[str, Any],
    bottleneck: Annotated[
        str | None, typer.Option(help="Module to fit anew, where it isn't the one that the bottleneck feeds.")
    ] = None,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Do it again from its start, where it was stopped.")] = False,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fit the last linear layer anew on the subnetwork's features, all groups evenly; no other weight changes."""
    with guard(resumable=True):
        from bise.cli.terminal import Bars, show_run
        from bise.jobs.python_sources import device_named
        from bise.jobs.refit import refit_job
        from bise.jobs.sources import source_of, trust_run

        if trust:
            trust_run(run)
        model, splits = source_of(run)
        place = workplace(run)
        with Bars() as bars:
            summary = refit_job(
                model.to(device_named(device)),
                splits,
                place,
                changes=settings,
                bottleneck=bottleneck,
                workers=workers,
                progress=bars,
                resume=resume,
            )
        show_run(summary, "Accuracy on the test split, %", run, as_json)


def front(
    run: ExtractedArgument,
    of: Annotated[str, typer.Option(help="What budgets are shares of: macs, parameters or latency.")] = "macs",
    budget: Annotated[
        list[float] | None, typer.Option(help="A share of the model; may be repeated. Default 0.5, 0.3, 0.15.")
    ] = None,
    refit: Annotated[bool, typer.Option(help="Fit each network's last layer anew too.")] = True,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    resume: ResumeOption = False,
    checkpoint_every: EveryOption = 60,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Extract again under several budgets for the shrunk network; the report draws accuracy over size."""
    with guard(resumable=True):
        from bise.base.output import show_json
        from bise.cli.terminal import Bars, show_front
        from bise.jobs.front import BUDGETS, front_job
        from bise.jobs.python_sources import device_named
        from bise.jobs.sources import source_of, trust_run

        if trust:
            trust_run(run)
        model, splits = source_of(run)
        with Bars() as bars:
            summary = front_job(
                model.to(device_named(device)),
                splits,
                run,
                of=of,
                budgets=budget or BUDGETS,
                refitted=refit,
                workers=workers,
                progress=bars,
                resume=resume,
                every=checkpoint_every,
            )
        if as_json:
            show_json(summary["front"])
        else:
            show_front(summary, run)
