"""Ctrl-C at any moment from the first import to the end: one line, exit code 130, neither traceback nor core."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

import pytest

from conftest import TESTS

LINE = b"bise: stopped; run the same command again to start over\n"
MODULES = 60
"""Every so manieth module that is imported is a moment of the long test."""
KEPT = {"PYTHONPROFILEIMPORTTIME": "1", "OMP_NUM_THREADS": "1"}
"""Python then says on standard error which module it has imported: moments that need no clock."""


def in_group(words, how=signal.SIG_DFL):
    """A command in a process group of its own, which a terminal's Ctrl-C reaches as a whole."""

    def prepare():
        signal.signal(signal.SIGINT, signal.default_int_handler if how == signal.SIG_DFL else how)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return subprocess.Popen(
        [sys.executable, "-m", "bise", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=TESTS,
        env=os.environ | KEPT,
        start_new_session=True,
        preexec_fn=prepare,
    )


def interrupted(words, moment, how=signal.SIG_DFL):
    """(exit code, output, what it said but for imports, the module) of a command with Ctrl-C after `moment` modules
    once its handling is there; a name is the first module that starts with it."""
    process = in_group(words, how)
    seen, begun, last, said = 0, False, b"", []
    for line in process.stderr:
        if not line.startswith(b"import time:"):
            said.append(line)
            continue
        last = line.rpartition(b"|")[2].strip()
        begun = begun or last == b"bise.cli.interrupts"
        seen += begun
        if seen > moment if isinstance(moment, int) else last.startswith(moment.encode()):
            os.killpg(process.pid, signal.SIGINT)
            break
    said += [line for line in process.stderr if not line.startswith(b"import time:")]
    out = process.stdout.read()
    process.stdout.close()
    process.stderr.close()
    return process.wait(), out, b"".join(said), last.decode()


CHECK = ["data", "check", "small_job:splits"]


@pytest.mark.parametrize("moment", [1, 40, "torch._utils_internal", "torch.nn.modules.conv", "bise.data.core.contract"])
def test_ctrl_c_while_modules_are_imported(moment):
    code, out, said, module = interrupted(CHECK, moment)
    assert (code, out, said) == (130, b"", LINE), module


@pytest.mark.long
def test_ctrl_c_at_many_moments():
    stopped = 0
    for moment in range(1, 4000, MODULES):  # at 0 the handler may be a step away
        code, out, said, module = interrupted(CHECK, moment)
        if code == 0:  # it came after the end of the work
            assert moment > 1000, module
            assert out
            break
        assert (code, out, said) == (130, b"", LINE), module
        stopped += 1
    assert stopped > 10


def test_ctrl_c_that_is_ignored_stays_so():
    code, out, said, _ = interrupted(CHECK, "torch._utils_internal", how=signal.SIG_IGN)
    assert (code, said) == (0, b"")
    assert out


SWALLOWING = """
import sys
sys.argv = ["bise", "data", "check", "swallowing:splits"]
from bise.__main__ import main
main()
"""
MODULE = {
    "converted": "def splits(split):\n    try:\n        stop()\n    except BaseException as error:\n"
    "        raise RuntimeError('another error') from error\n",
    "ignored": "class Last:\n    def __del__(self):\n        stop()\ndef splits(split):\n    Last()\n    wait()\n",
    "imported": "try:\n    stop()\nexcept BaseException:\n    pass\nwait()\n",
}


@pytest.mark.parametrize("how", MODULE)
def test_ctrl_c_that_a_library_swallows_or_converts(tmp_path, how):
    head = "import os, signal, time\ndef stop():\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(0.1)\n"
    head += "def wait():\n    time.sleep(60)\n    raise SystemExit('nobody stopped it')\n"
    (tmp_path / "swallowing.py").write_text(head + MODULE[how])
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", SWALLOWING],
        capture_output=True,
        env=os.environ | {"PYTHONPATH": path},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", LINE)


def test_the_handling_is_there_before_anything_else_is_imported():
    program = (
        "import sys; before = set(sys.modules)\nfrom bise import __main__\nprint(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"torch", "typer", "rich", "numpy", "bise.cli.app"} & set(done.stdout.split())
