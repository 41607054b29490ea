"""`bise audit` and `bise report`: look at a model or at a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bise.base.names import NETWORKS, VANILLA
from bise.base.options import either
from bise.base.output import show, show_json, tell
from bise.cli.completing import SPLITS, one_of
from bise.cli.guard import guard
from bise.cli.own import own_data
from bise.cli.shared import (
    DataOption,
    DeviceOption,
    FromOption,
    JsonOption,
    ModelOption,
    TrustOption,
    WeightsOption,
    WorkersOption,
    ZetaOption,
    one_run,
    run_or_model,
)

AuditedOption = Annotated[
    str | None,
    typer.Option(
        help=f"Which network of the run: {either((VANILLA, *NETWORKS))}; default subnetwork, or vanilla of a run of"
        " bise train.",
        autocompletion=one_of((VANILLA, *NETWORKS)),
    ),
]


@own_data
def audit(
    own: dict[str, Any],
    run: Annotated[
        Path | None,
        typer.Argument(help="A run folder: its network --of, by its model and data unless others are given."),
    ] = None,
    *,
    model: ModelOption = None,
    data: DataOption = None,
    weights: WeightsOption = None,
    from_run: FromOption = None,
    device: DeviceOption = "auto",
    split: Annotated[
        str | None,
        typer.Option(
            help="Which split to audit; default test, or, of a run on another file without splits, all of it.",
            autocompletion=one_of(SPLITS),
        ),
    ] = None,
    of: AuditedOption = None,
    zeta: ZetaOption = None,
    older_run: Annotated[Path | None, typer.Option("--run", hidden=True)] = None,
    trust: TrustOption = False,
    workers: WorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """How biased is it: groups with intervals, information, fairness, calibration, a probe."""
    with guard():
        from bise.base.errors import BadInput
        from bise.base.files import finite
        from bise.cli.terminal import Bars
        from bise.jobs.audit import audit_job, default_network
        from bise.jobs.sources import given, given_for, trust_run

        run, model = run_or_model(run, model)
        run = one_run(run, older_run)
        if split not in (None, *SPLITS) and data is not None and Path(data).exists():
            raise BadInput(
                f"--split {split!r} is no split; choose {either(SPLITS)}, and name a column with --split-column"
            )
        of = of or default_network(run if from_run in (None, run) else None)
        if trust and run is not None and from_run is None:
            trust_run(run)
        if run is None or from_run is not None:
            network, load, _ = given(model, weights, data, own, from_run, device, trust=trust, say=tell)
        else:
            network, load = given_for(run, model, weights, data, own, device, say=tell)
        same = run is not None and data is None and from_run in (None, run)
        with Bars() as bars:
            found = audit_job(
                network, load, run, of=of, zeta=zeta, split=split, same=same, workers=workers, progress=bars
            )
        if as_json:
            show_json(finite(found.as_dict()))
        else:
            where = f", on {split or 'test'}" if same or split else ""
            at = "" if zeta is None else f" at ζ = {zeta:g}"
            show(found if run is None else f"{run}, {of}{at}{where}:\n{found}")


def report(
    run: Annotated[Path, typer.Argument(help="A run folder of bise demo, train, extract, refit or finetune.")],
    out: Annotated[
        Path | None, typer.Option(help="File to write; default report.html, or README.md, in the run folder.")
    ] = None,
    card: Annotated[
        bool, typer.Option("--card", help="A model card for a hub instead: README.md, of the last network made.")
    ] = False,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Make the run's page again: one file, no network, for a reader who knows no code."""
    with guard():
        from bise.cli.terminal import Bars
        from bise.jobs.report import card_job, report_job
        from bise.jobs.sources import trust_run

        if trust:
            trust_run(run)
        if card:
            path = card_job(run, out)
        else:
            with Bars() as bars:
                path = report_job(run, out, progress=bars)
        size = path.stat().st_size
        if as_json:
            show_json({"card" if card else "report": str(path), "bytes": size}, indent=None)
        else:
            show(f"{path}  ({size / 1000:.0f} kB)")
