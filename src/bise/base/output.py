"""What a command prints: without control characters of others, and no failure where it can't be written."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import sys
from typing import Any

UNSHOWN = 3
"""Exit code of a command whose work is done, and whose output couldn't be written."""
NO_READER = 128 + int(getattr(signal, "SIGPIPE", 13))
"""Exit code where the output's reader left: a shell's for what ends by SIGPIPE."""
BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""What turns the direction of writing, so that a text reads as another."""
CONTROL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff{BIDI}]")
"""All but the tab and the end of a line; the last two are no characters, and XML can't hold them."""
SIZES = ("COLUMNS", "LINES", "TERMINAL_WIDTH")


def visible(text: str) -> str:
    """`text` with control characters written out, as \\x1b: labels and file names may hold a terminal's commands."""
    return CONTROL.sub(_written_out, text)


def one_line(text: str) -> str:
    """`text`, visible, as a single line."""
    return visible(text.replace("\t", "\\t").replace("\n", "\\n"))


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return "\\r" if code == 13 else f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def show(text: object) -> None:
    """Print a result to standard output."""
    print(visible(str(text)))


def show_json(content: Any, indent: int | None = 2) -> None:
    """Print a result as JSON, which escapes every control character but one by itself."""
    print(json.dumps(content, indent=indent).replace("\x7f", "\\u007f"))


def tell(text: str) -> None:
    """Print to standard error what is no result."""
    print(visible(text), file=sys.stderr)


def open_streams() -> None:
    """Make standard output and error bear everything: closed, full, without a reader, of few characters."""
    for name in SIZES:  # 0 is how a program says that it doesn't know
        if not re.fullmatch(r"0*[1-9][0-9]{0,3}", os.environ.get(name, "80"), re.ASCII):
            del os.environ[name]
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # closed: the next file of a run would take its place, and what a library prints
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, descriptor)
            if nothing != descriptor:
                os.close(nothing)
    sys.stdout, sys.stderr = _lasting(sys.stdout, 1), _lasting(sys.stderr, 2)


def close_streams(code: int) -> int:
    """The exit code of a command that would have ended with `code`, now that all it printed has to be out."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    buffer = getattr(sys.stdout, "buffer", None)
    error = getattr(getattr(buffer, "raw", buffer), "error", None)
    if error is None or code != 0:
        return code
    if error.errno == errno.EPIPE:  # as in bise audit … | head: who reads has seen enough
        return NO_READER
    tell(f"bise: what was done is saved; only the output couldn't be written ({error.strerror})")
    return UNSHOWN


class _Lasting(io.FileIO):
    """A descriptor that keeps the first error of a write, instead of raising it in the midst of the work."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.error = self.error or error
            return memoryview(data).nbytes


def _lasting(stream: Any, descriptor: int) -> Any:
    """`stream` on such a descriptor, or as it is where it is no file."""
    raw = _Lasting(descriptor, "wb", closefd=False)
    if stream is None:  # it was closed when Python started
        raw.error = OSError(errno.EBADF, os.strerror(errno.EBADF))
        return io.TextIOWrapper(io.BufferedWriter(raw), errors="replace", line_buffering=True)
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.flush()
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="replace",  # what a terminal of few characters can't show is no reason to fail
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
