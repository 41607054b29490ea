"""What every command shares: how it ends when something is wrong, and --json."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print the summary as JSON instead of a table.")]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust", help="Call the functions that the run names, now and until its config.json says otherwise."
    ),
]
VERBOSE: ContextVar[bool] = ContextVar("verbose", default=False)


@contextmanager
def guard(resumable: bool = False) -> Iterator[None]:
    """Bad input ends in one sentence and exit code 2; Ctrl-C in one line and 130; any other failure in one and 1."""
    import warnings

    from bise.errors import BadInput, BiseWarning, Unwritable

    def tell(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if VERBOSE.get() or issubclass(category, BiseWarning):
            print(f"warning: {message}", file=sys.stderr)

    try:
        with warnings.catch_warnings():
            if VERBOSE.get():
                warnings.simplefilter("always")
            warnings.simplefilter("always", BiseWarning)
            warnings.showwarning = tell
            yield
            sys.stdout.flush()  # here, where a closed pipe is met with grace
    except BadInput as error:
        print(f"bise: {' '.join(str(error).splitlines())}", file=sys.stderr)
        raise typer.Exit(2) from error
    except BrokenPipeError as error:  # as in bise audit … | head: who reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from error
    except KeyboardInterrupt as error:
        how = "with --resume to go on" if resumable else "to start over"
        print(f"bise: stopped; run the same command again {how}", file=sys.stderr)
        raise typer.Exit(130) from error
    except Unwritable as error:
        remedy = ", then go on with --resume" if resumable else " and run the same command again"
        print(f"bise: the run failed: {error}; make room or allow writing there{remedy}", file=sys.stderr)
        raise typer.Exit(1) from error
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if VERBOSE.get():
            traceback.print_exc()
        else:
            what = (str(error).strip().splitlines() or ["no message"])[0]
            print(f"bise: the run failed: {type(error).__name__}: {what} (-v shows where)", file=sys.stderr)
        raise typer.Exit(1) from error
