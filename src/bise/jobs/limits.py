"""The limits of `bise audit`, as they are written on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bise.base.errors import BadInput
from bise.base.files import check_writable
from bise.measure.limits import GAPS, UNDER, check_limits

Limits = tuple[dict[str, float], dict[str, float]]
"""({figure: least}, {gap: most})"""


def limits_of(under: Sequence[str], gap: Sequence[str]) -> Limits:
    """Limits from words such as worst_group=0.8 and 0.1; a gap without a name is that of the groups."""
    found = _read(under, "--fail-under", f"write {UNDER[2]}=0.8"), _read(gap, "--fail-gap", "write 0.1", GAPS[0])
    check_limits(*found)
    return found


def check_file(path: Path | None, limits: Limits) -> None:
    """Refuse a JUnit file that has nothing to say or can't be written, before there is work behind it."""
    if path is None:
        return
    if not any(limits):
        raise BadInput(f"--junit {path} is about limits, and there are none; give --fail-under or --fail-gap")
    if path.is_dir():
        raise BadInput(f"--junit {path} is a folder; name a file in it")
    if path.is_symlink() or (path.exists() and not path.is_file()):  # it would be replaced, /dev/stdout too
        raise BadInput(f"--junit {path} is a link, a pipe or a device; name a plain file")
    check_writable(path.parent, "choose another file with --junit")


def _read(words: Sequence[str], option: str, remedy: str, unnamed: str | None = None) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in words:
        figure, equals, number = word.rpartition("=")
        figure = figure.strip() if equals else unnamed or ""
        try:
            limit = float(number)
        except ValueError:
            limit = None
        if limit is None or not figure:
            raise BadInput(f"{option} {word!r} is no limit; {remedy}")
        if figure in found:
            raise BadInput(f"{option} names {figure} twice; give one limit for it")
        found[figure] = limit
    return found
