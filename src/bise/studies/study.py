"""A study: its jobs, how rows become tables and figures, and where the paper has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bise.studies.job import Job
from bise.studies.results import Row
from bise.studies.scale import Scale


@dataclass(frozen=True, kw_only=True)
class Study:
    """One table or figure, or a few that belong together."""

    name: str
    title: str
    place: str
    """Where the paper has it."""
    jobs: Callable[[Scale], list[Job]]
    show: Callable[[Sequence[Row]], str]
    """Rows to Markdown."""
    draw: Callable[[Sequence[Row], Path], None] | None = None
    """Rows to an SVG file."""
