"""How every command ends when something is wrong."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import typer

from bise.base.errors import BadInput, BiseWarning, Lost, Unwritable, cautions_go_to
from bise.base.output import one_line, tell
from bise.cli import interrupts
from bise.cli.flags import flagged

VERBOSE: ContextVar[bool] = ContextVar("verbose", default=False)


@contextmanager
def guard(resumable: bool = False, how: str = "") -> Iterator[None]:
    """Bad input ends in one sentence and exit code 2; Ctrl-C in one line and 130; any other failure in one and 1.

    `how` says in that line how to go on, where it is another way than most commands'.
    """
    again = f"run the same command again {'with --resume to go on' if resumable else 'to start over'}"
    try:
        try:
            interrupts.catch(f"bise: stopped; {how or again}")
            with _warnings_told():
                yield
        finally:
            interrupts.catch_no_more()
    except (typer.Exit, typer.Abort):
        raise
    except KeyboardInterrupt as error:
        interrupts.tell()
        raise typer.Exit(interrupts.STOPPED) from error
    except Exception as error:
        if interrupts.came():  # a library has made another error of it
            interrupts.tell()
            raise typer.Exit(interrupts.STOPPED) from error
        raise typer.Exit(_told(error, resumable)) from error


@contextmanager
def _warnings_told() -> Iterator[None]:
    """Ours go to standard error in any case, other libraries' with -v only."""
    import warnings

    def say(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if VERBOSE.get() or issubclass(category, BiseWarning):
            tell(f"warning: {flagged(str(message))}")

    with warnings.catch_warnings(), cautions_go_to(lambda sentence: tell(f"warning: {flagged(one_line(sentence))}")):
        if VERBOSE.get():
            warnings.simplefilter("always")
        warnings.simplefilter("always", BiseWarning)
        warnings.showwarning = say
        yield


def _told(error: Exception, resumable: bool) -> int:
    """Say what went wrong; gives the exit code."""
    if isinstance(error, BadInput):
        tell(f"bise: {flagged(' '.join(str(error).splitlines()))}")
        return 2
    if isinstance(error, Lost):
        remedy = " with --resume to go on" if resumable else ""
        tell(f"bise: the run failed: {error}; run the same command again{remedy}")
    elif isinstance(error, Unwritable):
        remedy = ", then go on with --resume" if resumable else " and run the same command again"
        tell(f"bise: the run failed: {error}; make room or allow writing there{remedy}")
    elif VERBOSE.get():
        tell(traceback.format_exc())
    else:
        what = (str(error).strip().splitlines() or ["no message"])[0]
        tell(f"bise: the run failed: {type(error).__name__}: {what} (-v shows where)")
    return 1
