"""Ctrl-C ends a command in one line and exit code 130, at whatever moment it comes.

Only what Python has loaded already is imported here, since this is at work before anything else is.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Any

STOPPED = 130
START_OVER = "bise: stopped; run the same command again to start over"


class _State:
    """Of this process."""

    sentence = START_OVER
    owner = 0  # the process that took Ctrl-C, and not one that it forked
    catching = False  # whether somebody up the stack waits for a KeyboardInterrupt
    came = told = False


def take() -> None:
    """Handle Ctrl-C from here on; where it is ignored, as under nohup, or somebody else's, it stays so."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    _State.owner = os.getpid()
    signal.signal(signal.SIGINT, _interrupted)
    sys.unraisablehook = _unraisable


def leave() -> None:
    """The work is done and shown: what Python still does until its end is too late to be stopped."""
    if signal.getsignal(signal.SIGINT) is _interrupted:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def catch(sentence: str) -> None:
    """From here on an interrupt is raised as KeyboardInterrupt; `sentence` says how to go on."""
    _State.sentence, _State.came, _State.told, _State.catching = sentence, False, False, True


def catch_no_more() -> None:
    _State.catching = False


def came() -> bool:
    """Whether one was raised: some libraries turn it into an error of their own."""
    return _State.came


def tell() -> None:
    """Say once that the command was stopped."""
    if not _State.told:
        _State.told = True
        print(_State.sentence, file=sys.stderr, flush=True)


def _interrupted(number: int, frame: Any) -> None:
    if os.getpid() != _State.owner:  # forked to read ahead: whoever started it ends it
        raise KeyboardInterrupt
    if not _State.catching or _importing(frame):
        _end()
    _State.came = True
    raise KeyboardInterrupt


def _importing(frame: Any) -> bool:
    """Whether a module is being imported: there exceptions get lost, or end the process with a core."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _unraisable(event: Any) -> None:
    """One that came inside a destructor or a callback, which would go on."""
    if event.exc_type is KeyboardInterrupt and os.getpid() == _State.owner:
        _end()
    sys.__unraisablehook__(event)


def _end() -> None:
    """Leave at once. A run's folder bears that, as it bears a kill, and its lock is freed."""
    line = "" if _State.told else _State.sentence + "\n"
    _State.told = True
    if os.isatty(2):
        line = "\r\x1b[K\x1b[?25h" + line  # a bar may stand in this line, and hides the cursor
    with suppress(OSError):  # nobody is there to be told
        os.write(2, line.encode())
    os._exit(STOPPED)
