"""`bise shrink` and `bise export`: a run's network without its closed units, measured, and in files to deploy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from bise.base.errors import BadInput, caution
from bise.base.files import check_writable, writable, write_json
from bise.base.names import NETWORKS
from bise.data.core.contract import Progress
from bise.engine.inputs import Inputs
from bise.jobs.deployment import EXAMPLE, deploy
from bise.jobs.pretrained import FORMS, check_new, save_pretrained
from bise.jobs.runtime import RUNTIME
from bise.jobs.steps import Splits, check_answers, saved, split_of, train_of
from bise.measure.standing import IGNORANT, told
from bise.network.outputs import device_of
from bise.network.shrinking.choosing import candidates
from bise.network.timing import MODES
from bise.reporting.writing import CARD, add_card, add_report
from bise.runs.folder import begun_jobs, check_complete, read_summary, sole


def shrink_job(
    model: nn.Module,
    splits: Splits,
    folder: Path,
    *,
    name: str,
    zeta: float | None = None,
    files: Sequence[Path],
    pretrained: Path | None = None,
    form: str = FORMS[0],
    progress: Progress,
    align: str = "1",
    streams: str | None = None,
    modes: Sequence[str] = (),
) -> dict[str, Any]:
    """Shrink a run's subnetwork, or what was made from it, write `files`, and add the figures to the run's summary.

    The dense control has no gates: nothing is removed from it, and it can be deployed all the same. `pretrained` is a
    new folder for `from_pretrained` or `bise.load_pretrained`, with a model card. What is shrunk at another ζ than the
    run's is noted apart from what the run's own masks leave. From a run that can't be written, as in an archive, the
    files are written all the same.
    """
    if name not in NETWORKS:
        raise BadInput(f"--of {name!r} is unknown; use {', '.join(NETWORKS)}")
    widths = {"align": int(align) if align.isdigit() else align, "streams": streams}
    candidates(**widths)
    if unknown := sorted(set(modes) - {*MODES, RUNTIME}):
        raise BadInput(f"--modes {unknown[0]!r} is unknown; choose from {', '.join((*MODES, RUNTIME))}")
    check_complete(folder)
    if pretrained is not None:
        check_new(pretrained)
    for path in files:
        check_writable(path.parent, "name a file elsewhere")
    if not files and pretrained is None:
        check_writable(folder, "name a file elsewhere with --out or --onnx, or work on a copy of the run")
    job = {"refitted": "refit", "finetuned": "finetune", "dense_finetuned": "finetune"}.get(name)
    if job in begun_jobs(folder):
        raise BadInput(f"{folder} isn't {name} to the end; run {job} again with --resume first")
    sub = saved(folder, name, model, zeta=zeta)
    data = split_of(splits, "test")
    data = train_of(splits) if data is None else data
    check_answers(sub, data, zeta)
    _warn_of_ignorance(folder, name, zeta)
    noted = writable(folder)
    with sole(folder) if noted else nullcontext():
        figures = deploy(sub, data, files, progress, widths, modes)
        if pretrained is not None:
            example, chosen = Inputs(data, device_of(model)).example(EXAMPLE), figures.get("widths") or {}
            made = save_pretrained(sub, pretrained, example, form=form, **chosen)
            figures["folder"] = asdict(made) | {"path": str(pretrained.resolve())}
        if noted:
            _note(folder, name, zeta, figures)
    if pretrained is not None and zeta is None:  # at another threshold the run's figures aren't its own
        add_card(folder, pretrained / CARD, of=name, form=made.form)
    if not noted:
        written = [*files, *([] if pretrained is None else [pretrained])]
        caution(
            f"{folder} can't be written, so its summary and its page don't tell of {', '.join(map(str, written))}; keep"
            " these figures beside the files",
        )
    return figures


def _note(folder: Path, name: str, zeta: float | None, figures: dict[str, Any]) -> None:
    """Add the figures to the run's summary, and write its page anew."""
    summary = read_summary(folder)
    part = summary.setdefault(name, {})
    if zeta is None:
        part["shrunk"] = figures
    else:
        part.setdefault("shrunk_at", {})[str(zeta)] = figures
    write_json(folder / "summary.json", summary)
    add_report(folder)


def _warn_of_ignorance(folder: Path, name: str, zeta: float | None) -> None:
    """Say so where the run's own audit found that this network knows nothing: a file of it says nothing of that."""
    found = (read_summary(folder).get(name) or {}).get("standing") or {}
    if zeta is None and found.get("state") in IGNORANT:
        caution(f"{told(f'{name} of {folder}', found)}; it is nothing to deploy", stacklevel=3)
