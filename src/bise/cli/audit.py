"""`bise audit` and `bise report`: look at a model or at a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    GapOption,
    JsonOption,
    JunitOption,
    ModelOption,
    TrustOption,
    UnderOption,
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

if TYPE_CHECKING:
    from bise.measure.found import Audit
    from bise.measure.limits import Verdict


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
    fail_under: UnderOption = None,
    fail_gap: GapOption = None,
    junit: JunitOption = None,
    as_json: JsonOption = False,
) -> None:
    """How biased is it: groups with intervals, information, fairness, calibration, a probe.

    With --fail-under or --fail-gap, exit code 1 where a limit isn't kept.
    """
    with guard():
        from bise.cli.terminal import Bars
        from bise.jobs.audit import audit_job, default_network
        from bise.jobs.limits import check_file, limits_of
        from bise.jobs.sources import given, given_for, trust_run
        from bise.measure.limits import judge

        limits = limits_of(fail_under or (), fail_gap or ())
        check_file(junit, limits)
        run, model = run_or_model(run, model)
        run = one_run(run, older_run)
        _check_split(split, data)
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
        verdicts = judge(found, under=limits[0], gap=limits[1])
        where = (f" at ζ = {zeta:g}" if zeta is not None else "") + (f", on {split or 'test'}" if same or split else "")
        _told(found, verdicts, "" if run is None else f"{run}, {of}{where}:\n", as_json=as_json)
        _end(verdicts, junit, f"bise audit {run or model or from_run}", quiet=as_json)


def _check_split(split: str | None, data: str | None) -> None:
    """A column's name in the place of a split's is refused."""
    from bise.base.errors import BadInput

    if split not in (None, *SPLITS) and data is not None and Path(data).exists():
        raise BadInput(f"--split {split!r} is no split; choose {either(SPLITS)}, and name a column with --split-column")


def _told(found: Audit, verdicts: Sequence[Verdict], title: str, *, as_json: bool) -> None:
    """Print the audit, as JSON with the limits in it."""
    from bise.base.files import finite

    if as_json:
        more = {"limits": [verdict.as_dict() for verdict in verdicts]} if verdicts else {}
        show_json(finite(found.as_dict() | more))
    else:
        show(f"{title}{found}")


def _end(verdicts: Sequence[Verdict], junit: Path | None, name: str, *, quiet: bool) -> None:
    """Say what the limits come to, and end with exit code 1 where one isn't kept; noise alone doesn't fail a build."""
    from bise.base.files import write_bytes
    from bise.engine.processes import rank
    from bise.reporting.junit import junit as as_junit

    first = rank() == 0  # of several processes one writes and speaks
    if junit is not None and first:
        write_bytes(junit, as_junit(verdicts, name))
    for verdict in verdicts if first else ():
        if verdict.outcome != "passes":
            tell(f"bise: {verdict}")
        elif not quiet:
            show(verdict)
    if any(verdict.outcome == "fails" for verdict in verdicts):
        raise typer.Exit(1)


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
