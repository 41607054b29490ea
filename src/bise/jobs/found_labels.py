"""`--bias-from RUN:NUMBER`: groups that `bise find` kept, as the b of the very samples that it looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from bise.base.errors import BadInput
from bise.base.files import read_tensors
from bise.base.plain import check_plain
from bise.jobs.finding import fingerprints, with_bias, without_bias
from bise.runs.folder import check_complete, read_summary

LABELS = "groups.safetensors"
OPTION = "bias_from"


def key_of(number: int, split: str) -> str:
    return f"{number}.{split}"


def place_of(text: str) -> tuple[Path, int]:
    """(run folder, number from 1) of what is typed as RUN:NUMBER."""
    folder, colon, number = text.rpartition(":")
    if not colon or not folder or not number.isdecimal() or int(number) < 1:
        raise BadInput(f"--bias-from {text!r} names no candidate; write RUN:NUMBER, such as runs/found:2")
    return Path(folder), int(number)


def resolved(text: str) -> str:
    """As a run's configuration keeps it: by the whole path."""
    folder, number = place_of(text)
    return f"{folder.resolve()}:{number}"


def labelled(splits: Any, text: str, *, checked: bool = True) -> Any:
    """The function from a split's name to its data, with the candidate's groups in the place of b.

    Where inputs are not to be read, they aren't `checked` against those that were labelled, and targets are.
    """
    folder, number = place_of(text)
    check_complete(folder)
    summary = read_summary(folder)
    found = summary.get("find")
    if not isinstance(found, dict) or not isinstance(found.get("candidates"), list):
        raise BadInput(f"--bias-from {folder} is no run of bise find; name one")
    candidates = found["candidates"]
    if number > len(candidates):
        raise BadInput(f"--bias-from {text}: {folder} has {len(candidates)} candidates; choose one from 1")
    candidate, known = candidates[number - 1], summary.get("data") or {}
    check_plain(folder)
    groups = read_tensors(folder / LABELS)

    def split(name: str) -> Any:
        data = splits(name)
        if data is None:
            return None
        b = groups.get(key_of(number, name))
        if b is None:
            raise BadInput(
                f"--bias-from {text} has no groups of the split {name!r}; run bise find on these data, or choose"
                " another candidate"
            )
        return _given(data, b.long(), known.get(name) or {}, candidate, found["classes"], f"{name}: --bias-from {text}",
                      checked)  # fmt: skip

    return split


def _given(
    data: Any, b: Tensor, known: dict[str, Any], candidate: dict[str, Any], classes: list[str], what: str, checked: bool
) -> Any:
    hidden = without_bias(data)[0]
    mine = fingerprints(hidden, inputs=checked)
    if len(hidden) != len(b) or any(known.get(key) != value for key, value in mine.items()):
        raise BadInput(f"{what} was found on other data than these; run bise find on these data")
    if len(b) and not -1 <= int(b.min()) <= int(b.max()) < len(candidate["groups"]):
        raise BadInput(f"{what} holds groups that it has no names of; run bise find again")
    return with_bias(data, hidden.y, b, candidate["name"], candidate["groups"], classes)
