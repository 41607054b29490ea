"""The options that describe one's own data, given to a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from bise.base.output import tell
from bise.jobs.own_options import OWN

_OLD = "split"
_OLD_SPLIT = Annotated[str | None, typer.Option("--split", hidden=True)]
"""What --split-column was called by commands that choose no split."""


def own_data(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of `OWN`; it receives those that were set as one dict, `own`."""
    signature = inspect.signature(command, eval_str=True)
    kept = [p for p in signature.parameters.values() if p.name != "own"]
    renamed = _OLD not in signature.parameters
    kinds = OWN | ({_OLD: _OLD_SPLIT} if renamed else {})
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in kinds.items()
    ]

    @wraps(command)
    def wrapper(**arguments: Any) -> Any:
        own = {name: arguments.pop(name) for name in OWN}
        old = arguments.pop(_OLD) if renamed else None
        if old is not None:
            if own["split_column"] is not None:
                raise typer.BadParameter("--split and --split-column both name a column; give --split-column alone")
            tell(f"warning: --split names a split, as in bise audit; for a column write --split-column {old}")
            own["split_column"] = old
        return command(**arguments, own={name: value for name, value in own.items() if value is not None})

    first = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in kept]
    wrapper.__signature__ = signature.replace(parameters=[*first, *options])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in (*first, *options)} | {"return": None}
    return wrapper
