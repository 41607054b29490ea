"""Mistakes in the command line itself, told like all bad input: one sentence, exit code 2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from bise.base.output import tell

_UsageError: Any = typer.BadParameter.__mro__[1]  # click's, or the copy of it that newer versions of typer bring


class OneSentence(TyperGroup):
    """A group of commands that says in one line what is wrong with its arguments."""

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        with _told():
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: Any) -> Any:
        with _told():
            return super().invoke(ctx)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help is what was asked for
            raise
        what = " ".join(error.format_message().split()).rstrip(".")
        command = " ".join(["bise", *error.ctx.command_path.split()[1:]]) if error.ctx else "bise"
        tell(f"bise: {what[:1].lower()}{what[1:]}; see {command} --help")
        raise typer.Exit(2) from error
