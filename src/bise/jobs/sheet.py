"""`bise data sheet`: a few pictures of every target and bias, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bise.base.errors import BadInput
from bise.base.names import SQUASH
from bise.data.core.contract import Labelled, labels
from bise.data.own.sheet import contact_sheet
from bise.jobs.data_sources import splits_of
from bise.jobs.steps import split_of

SHEET_SIZE = "96"
"""Pixels a side that pictures of any size have on a contact sheet."""


def sheet_job(source: str, own: dict[str, Any], out: Path, *, split: str, per_group: int, scale: int | None) -> None:
    """Draw a few pictures of every target and bias of one split."""
    pictures = own.get("image") or Path(source).is_dir()
    shape = {"size": own.get("size", SHEET_SIZE), "fit": own.get("fit", SQUASH)}
    splits = splits_of(source, own | shape if pictures else own, option="source")
    data = split_of(splits, split)
    if data is None:
        raise BadInput(f"{source} has no split {split!r}; choose another with --split")
    if not isinstance(data, Labelled):
        cells = labels(data, need_bias=False)
        data = Labelled(data, y=cells.y, b=cells.b)
    contact_sheet(data, out, per_group=per_group, scale=scale)
