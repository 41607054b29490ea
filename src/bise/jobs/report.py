"""`bise report`: the page again, and what was to be gathered for it where a full disk or the like left that out."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bise.base.errors import BadInput, Unwritable, caution
from bise.base.files import check_writable
from bise.data.core.contract import Progress, labels
from bise.jobs.pipeline import silent
from bise.jobs.sources import described_by, source_of
from bise.jobs.steps import evidence, other_splits, saved, split_of
from bise.reporting.writing import check_place, write_card, write_report
from bise.runs.folder import begun_jobs, sole
from bise.runs.trust import check_shown

EVIDENCE = {"thresholds.json": "slider", "samples.json": "samples"}
"""{file: what the page shows from it}"""


def report(run: str | Path, out: str | Path | None = None, *, progress: Progress | None = None) -> Path:
    """Make a run's page again, as `bise report` does.

    What the page lacks is gathered from the run's model and data, whose functions are called if the run is trusted.

    Args:
        run: A run folder.
        out: The file to write; None is `report.html` in the folder.
        progress: Called with (label, done, total); `bise.Bars()` shows bars.

    Returns:
        Where the page is.

    Raises:
        BadInput: The folder is no run, or can't be read.

    Example:
        >>> bise.report("runs/demo-0", "for-a-colleague.html")  # doctest: +SKIP
    """
    return report_job(Path(run), None if out is None else Path(out), progress=progress or silent)


def report_job(folder: Path, out: Path | None, *, progress: Progress) -> Path:
    """Write the page, with its slider and samples where the run's model and data can be had."""
    _check_there(folder)
    check_writable(folder if out is None else out.parent, "name a file elsewhere with --out")
    check_place(folder / "report.html" if out is None else out, chosen=out is not None)
    lacking = [name for name in EVIDENCE if not (folder / name).exists()]
    if lacking and (folder / "subnetwork").is_dir() and not begun_jobs(folder):
        try:
            _gather(folder, progress)
        except (BadInput, Unwritable) as error:
            what = " and ".join(EVIDENCE[name] for name in lacking)
            caution(
                f"{' and '.join(lacking)} of {folder} can't be made again ({error}), so the page has no {what}",
            )
    with sole(folder) if out is None else nullcontext():
        return write_report(folder, out)


def card_job(folder: Path, out: Path | None) -> Path:
    """Write the model card of the last network that the run made."""
    _check_there(folder)
    check_writable(folder if out is None else out.parent, "name a file elsewhere with --out")
    with sole(folder) if out is None else nullcontext():
        return write_card(folder, out)


def _check_there(folder: Path) -> None:
    if not folder.is_dir():
        raise BadInput(f"{folder} does not exist; name a run folder that bise wrote")


def _gather(folder: Path, progress: Progress) -> None:
    """Measure again what the page shows beyond audits; on the data of then, or not at all."""
    check_shown(folder, described_by(folder))
    model, splits = source_of(folder)
    data: dict[str, Any] = {name: split_of(splits, name) for name in ("train", "val", "test")}
    if others := other_splits(folder, data):
        raise BadInput(f"{' and '.join(others)} changed since the run was made; bring the data back")
    sub = saved(folder, "subnetwork", model)
    gather = evidence(folder, model, sub, data["val"], data["test"], labels(data["train"]), progress)
    if gather is not None:
        with sole(folder):
            gather()
