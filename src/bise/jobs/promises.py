"""What a promise of a run is, and how checks of it say that it is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bise.runs.reading import Missing


@dataclass(frozen=True)
class Promise:
    """One promise, whether it holds, is broken or could not be checked, and why."""

    name: str
    state: str
    detail: str


class Broken(Exception):
    """A promise that doesn't hold, and why."""


def checked(name: str, check: Callable[..., str], *arguments: Any) -> Promise:
    """What a check finds, which raises Broken, or Missing where it can't be done."""
    try:
        return Promise(name, "holds", check(*arguments))
    except Broken as error:
        return Promise(name, "broken", str(error))
    except Missing as error:
        return Promise(name, "unchecked", str(error))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, RuntimeError) as error:
        what = " ".join(str(error).split())
        return Promise(
            name, "broken", f"the files hold something else than bise writes ({type(error).__name__} {what})"
        )


def same(what: str, noted: Any, *found: Any) -> None:
    for value in found:
        if value != noted:
            raise Broken(f"{what}: {noted!r} is noted, {value!r} is found")
