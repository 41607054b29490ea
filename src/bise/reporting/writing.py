"""Where page and card go: beside the run or elsewhere, and never over a file of somebody else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bise.base.errors import BadInput, caution
from bise.base.files import open_to_read, read_bytes, write_bytes
from bise.base.plain import NotPlain, check_plain
from bise.reporting.bench_page import bench_page
from bise.reporting.card import MARK, card
from bise.reporting.document import ENDING
from bise.reporting.facts import read_facts
from bise.reporting.find_page import find_page
from bise.reporting.page import page
from bise.runs.schema import read_bare

START = 10_000
CARD = "README.md"
"""What a hub shows of a model's folder."""


def write_report(folder: str | Path, out: str | Path | None = None) -> Path:
    """Make the page from what the run folder holds, and write it there as report.html, or to `out`."""
    path = Path(folder) / "report.html" if out is None else Path(out)
    check_place(path, chosen=out is not None)
    at = path if out is None else path.resolve()  # a link that was named stays one
    try:
        content = _content(Path(folder)).encode("utf-8", "replace")
    except BadInput:
        raise
    except Exception as error:  # the page takes dozens of values as the jobs write them; a file may hold any others
        what = f"{type(error).__name__}: {error}"
        raise BadInput(f"{folder} holds something else than bise writes ({what}); take back what was edited") from error
    write_bytes(at, content)
    return path


def _content(folder: Path) -> str:
    """The page of a comparison, or of a run of any other kind."""
    check_plain(folder)
    path = folder / "summary.json"
    if path.is_file() and "bench" in (summary := read_bare(path)):
        return bench_page(summary, folder.name)
    if path.is_file() and "find" in summary:
        return find_page(summary, folder.name)
    return page(read_facts(folder))


def write_card(
    folder: str | Path, out: str | Path | None = None, *, of: str | None = None, form: str | None = None
) -> Path:
    """Make a run's model card, and write it there as README.md, or to `out`."""
    path = Path(folder) / CARD if out is None else Path(out)
    if path.is_dir():
        raise BadInput(f"{path} is a folder; name a file to write the card to")
    at = path if out is None else path.resolve()
    if at.exists() and not _is_card(at):
        raise BadInput(f"{path} is no model card of bise and isn't overwritten; name another file, or move it away")
    try:
        content = card(read_facts(Path(folder)), of, form).encode("utf-8", "replace")
    except BadInput:
        raise
    except Exception as error:  # as of the page
        what = f"{type(error).__name__}: {error}"
        raise BadInput(f"{folder} holds something else than bise writes ({what}); take back what was edited") from error
    write_bytes(at, content)
    return path


def _is_card(path: Path) -> bool:
    try:
        return MARK.encode() in read_bytes(path)
    except NotPlain:
        return False


def check_place(path: Path, *, chosen: bool) -> None:
    """Refuse a path at which something else lies than a page of ours, before there is work behind it.

    One that the user has `chosen` may be a link; report.html in a run folder may not.
    """
    if path.is_dir():
        raise BadInput(f"{path} is a folder; name a file to write the report to")
    if path.exists() and not _ours(path.resolve() if chosen else path):
        raise BadInput(f"{path} is no report of bise and isn't overwritten; name another file, or move it away")


def _ours(path: Path) -> bool:
    try:
        with open_to_read(path) as file:
            start = file.read(START)
    except NotPlain:
        return False
    return not start or f"{ENDING}</title>".encode() in start  # in an empty file there is nothing to lose


def add_report(folder: Path, gather: Callable[[], None] | None = None) -> None:
    """What a job does at its end: gather the page's evidence, then write the page.

    The run is complete without it, so whatever goes wrong here is said, and doesn't undo hours of work.
    """
    try:
        if gather is not None:
            gather()
        write_report(folder)
    except Exception as error:
        caution(
            f"the run is complete, but its report could not be written ({type(error).__name__}: {error});"
            f" bise report {folder} tries again",
        )


def add_card(folder: Path, out: Path, *, of: str, form: str) -> None:
    """The card beside a network in a folder, which is whole without it."""
    try:
        write_card(folder, out, of=of, form=form)
    except BadInput as error:
        caution(f"{out.parent} has no model card: {error}")
