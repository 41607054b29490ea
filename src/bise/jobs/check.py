"""`bise data check`: whether extraction can work on a data set, by the labels of every split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bise.base.errors import BadInput, NoSplit
from bise.base.names import SQUASH
from bise.data import names
from bise.data.core.arguments import SPLITS
from bise.data.core.contract import Progress
from bise.data.core.pictures import Pictures, check_pictures
from bise.data.own.check import Check, check
from bise.data.own.hub_files import is_hugging_face
from bise.jobs.data_sources import splits_of
from bise.jobs.steps import split_of


def check_job(source: str, own: dict[str, Any], *, files: bool, progress: Progress) -> Check:
    """The labels of every split of a data set, and, where `files` are to be opened, the pictures that can't be read."""
    no_pictures = BadInput("--files opens pictures, and there are none here; name their column with --image")
    if files and not (own.get("image") or Path(source).is_dir() or source in names()):
        raise no_pictures
    # the size is of no matter here, but pictures can't be listed without one
    sized = "size" in own and source not in names()  # then it is said how pictures fit into it
    how = {"size": "1", "fit": SQUASH} | own if files and not sized and source not in names() else own
    texts = "text" in own and "tokenizer" in own  # then it is worth while to count those that are cut off
    path = Path(source)
    # where extraction would make features, they are made here too: what it refuses can't be called fit
    features = not {"image", "text"} & own.keys() and (path.is_file() or is_hugging_face(path))
    try:
        splits = splits_of(source, how, labels_only=not (files or sized or texts or features), option="source")
    except NoSplit:  # no training rows to make features by, which the check says in its own words
        splits = splits_of(source, how, labels_only=True, option="source")
    parts = {name: split_of(splits, name) for name in SPLITS}
    pictures = [
        data.dataset
        for data in parts.values()
        if data is not None and isinstance(getattr(data, "dataset", None), Pictures)
    ]
    if files and not pictures:
        raise no_pictures
    unreadable: dict[str, str] = {}
    for part in pictures if files else ():
        unreadable |= check_pictures(part, progress=progress)
    opened = sum(len(part) for part in pictures) if files else None
    return check(parts, unreadable=unreadable, opened=opened)
