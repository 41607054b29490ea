"""What a command prints and where it can't: hostile labels, closed and full outputs, odd widths, silenced warnings."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys

import pytest

from bise.base.output import CONTROL, one_line, visible
from conftest import ROOT, TESTS
from small_job import OWN, QUICK

BISE = [sys.executable, "-m", "bise"]
HOSTILE = {
    "title": "\x1b]0;owned\x07",
    "colour": "\x9b31mred",
    "over": "good\x08bad",
    "turned": "\u202egnp.exe",
    "gone": "a\x7f\x85b",
}
"""Commands of a terminal, by what they would do."""


def bise(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, shell="", **environment):
    """The real command, by way of a shell where that has to close an output."""
    command = [*BISE, *map(str, words)]
    if shell:
        command = ["sh", "-c", f'exec "$@" {shell}', "sh", *command]
    env = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    return subprocess.run(command, stdout=stdout, stderr=stderr, cwd=TESTS, env=env)


def harmless(done):
    """Both outputs, which hold no command of a terminal."""
    out, errors = done.stdout.decode(), done.stderr.decode()
    assert not CONTROL.search(out + errors)
    return out, errors


@pytest.fixture
def rows(tmp_path):
    """A csv whose columns and labels are commands of a terminal."""
    import pandas as pd

    y = [HOSTILE["title"], HOSTILE["colour"]] * 60
    b = [HOSTILE["over"], HOSTILE["turned"], HOSTILE["gone"]] * 40
    path = tmp_path / "rows\x1b[2J.csv"
    columns = {f"y{HOSTILE['title']}": y, f"b{HOSTILE['colour']}": b, "x": [row % 50 for row in range(120)]}
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("extra", [[], ["--json"], ["-v"]])
def test_labels_and_columns_are_no_commands_of_a_terminal(rows, extra):
    how = ["--target", f"y{HOSTILE['title']}", "--bias", f"b{HOSTILE['colour']}", *extra]
    out, _ = harmless(bise("data", "check", rows, *how))
    if "--json" in extra:
        (split,) = json.loads(out)["splits"].values()
        assert split["target"] == f"y{HOSTILE['title']}"
    else:
        assert r"y\x1b]0;owned\x07" in out
        table = [line for line in out.splitlines() if "60" not in line and " 20" in line]
        assert len({len(line) for line in table}) == 1, "its columns are aligned"


def test_neither_are_columns_and_files_in_errors(rows, tmp_path):
    returning = tmp_path / "returning\r.csv"
    returning.write_bytes(b"x,y\n1,good\rbad\n")
    for words in (
        ["data", "check", rows, "--target", f"y{HOSTILE['title']}", "--bias", "\x9b5n"],
        ["data", "check", f"{rows}\x1b[5n", "--target", "x", "--bias", "x"],
        ["verify", "a\x1b[2Jb\rc\u202ed"],
        ["--\x1b[2J"],
        ["ex\x9b31m"],
        ["data", "check", returning, "--target", "x", "--bias", "y"],
    ):
        done = bise(*words)
        out, errors = harmless(done)
        assert (done.returncode, out) == (2, "")
        assert len(errors.splitlines()) == 1


def test_control_characters_are_written_out():
    assert visible("a\tb\nc") == "a\tb\nc"
    assert one_line("a\tb\nc") == r"a\tb\nc"
    assert visible("".join(HOSTILE.values())) == r"\x1b]0;owned\x07\x9b31mredgood\x08bad\u202egnp.exea\x7f\x85b"
    every = "".join(map(chr, [*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]))
    assert not set(visible(every)) & (set(every) - {"\t", "\n"})
    assert visible("γ ρ é 中 ✓ 👩‍🔬") == "γ ρ é 中 ✓ 👩‍🔬"


def test_everything_that_is_printed_goes_by_one_way():
    """print, rich's console and Python's warnings each in a module of their own."""
    own = {"print": {"output.py", "interrupts.py"}, "Console": set(), "warn": {"errors.py", "work.py"}}
    for path in (ROOT / "src/bise").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if name == "warn" or (name in own and isinstance(node.func, ast.Name)):
                    assert path.name in own[name], f"{path.name}:{node.lineno} calls {name}"


# outputs that are closed, full, or without a reader

DONE = "bise: what was done is saved; only the output couldn't be written"


@pytest.fixture
def plain(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,y,b\n" + "1,0,0\n1,0,1\n2,1,1\n2,1,0\n" * 30)
    return ["data", "check", path, "--target", "y", "--bias", "b"]


@pytest.mark.parametrize(
    ("shell", "reason"), [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")]
)
@pytest.mark.parametrize("unbuffered", ["1", pytest.param("", marks=pytest.mark.long)])
def test_an_output_that_is_closed_or_full_is_no_failed_run(plain, shell, reason, unbuffered):
    for words in (plain, ["--version"]):
        done = bise(*words, shell=shell, PYTHONUNBUFFERED=unbuffered)
        assert (done.returncode, done.stdout) == (3, b"")
        assert done.stderr.decode().splitlines() == [f"{DONE} ({reason})"]


def test_what_is_done_is_saved_all_the_same(tmp_path):
    run = tmp_path / "run"
    done = bise("extract", *OWN, *QUICK, "--out", run, shell=">/dev/full 2>&1")
    assert done.returncode == 3
    assert json.loads((run / "summary.json").read_text())["stopped"]
    assert not (run / "checkpoints").exists()


def test_without_standard_error_nothing_is_lost_but_what_it_says(plain):
    whole = bise(*plain).stdout
    for shell in ("<&- 2>&-", "2>/dev/full"):
        done = bise(*plain, shell=shell)
        assert (done.returncode, done.stdout) == (0, whole)
    assert bise("verify", "nowhere", shell=">&- 2>&-").returncode == 2


def test_a_failure_keeps_its_exit_code(tmp_path):
    done = bise("verify", tmp_path, shell=">/dev/full")
    assert done.returncode == 2
    assert DONE not in done.stderr.decode()


def test_a_reader_that_left_ends_a_command_as_it_does_others(plain):
    reading, writing = os.pipe()
    os.close(reading)
    done = bise(*plain, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


# widths


@pytest.mark.parametrize("columns", ["0", "-1", "²", "", "many", "1e3", "9" * 5000])
def test_a_width_that_is_none_counts_as_unset(plain, columns):
    for words in (plain, ["--help"]) if columns == "0" else (["--help"],):
        unset = bise(*words, COLUMNS="80").stdout
        done = bise(*words, COLUMNS=columns, LINES=columns, TERMINAL_WIDTH=columns)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout == unset
        assert len(unset) > 100


# warnings


def test_a_module_that_silences_warnings_does_not_silence_ours(tmp_path):
    own = [*OWN[:2], "--data", "small_job:silent_splits", "--steps", "2", "--upsilon", "1"]
    done = bise("extract", *own, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert b"warning: train and val are the very same data" in done.stderr
