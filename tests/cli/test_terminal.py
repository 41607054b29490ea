"""What the command line shows and how it ends: pipes, widths, exit codes, Ctrl-C, TensorBoard's files."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from bise.base.errors import BadInput
from bise.base.files import SCHEMA
from bise.cli.app import app
from bise.cli.terminal import Bars, audit_table, show_table, shrunk_table
from bise.reporting.charts import short
from bise.runs.log import append_log
from conftest import TESTS
from small_job import OWN, QUICK, splits


def commands(group, path=()):
    """The words of every command that there is."""
    for name, command in group.commands.items():
        yield from commands(command, (*path, name)) if hasattr(command, "commands") else [[*path, name]]


COMMANDS = list(commands(get_command(app)))
MAIN = [sys.executable, "-c", "from bise.cli.app import main; main()"]


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


class Exploding:
    """A data set that fails in the middle of a run, not at its door."""

    def __init__(self, data):
        self.data, self.y, self.b, self.reads = data, data.y, data.b, 0

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        self.reads += 1
        if self.reads > 1000:
            raise RuntimeError("the disk went away\nand more")
        return self.data[index]


def exploding(split):
    return Exploding(splits(split)) if split == "train" else None


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example_and_fits(command):
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    assert f"Example: bise {' '.join(command)} " in " ".join(result.stdout.split()) + " "
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "--json" in result.stdout


def test_help_at_the_root_names_the_exit_codes_and_needs_no_torch():
    program = "import sys; from bise.cli.app import main\ntry:\n    main()\nfinally:\n    print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert "Exit codes" in done.stdout
    assert run("--version").stdout.startswith("bise ")


def test_completion_knows_commands_and_options():
    program = "import sys; sys.argv[0] = 'bise'; from bise.cli.app import main; main()"
    for words, at, expected in (("bise ex", "1", {"extract", "export"}), ("bise extract --ga", "2", {"--gamma"})):
        asked = os.environ | {"_BISE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": at}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=asked)
        assert set(done.stdout.split()) == expected


TIMES = {"device": "NVIDIA H200", "first_ms": 1234.56, "second_ms": 1234.56, "ratio": 1.0}
FIGURES = {
    "parameters": {"dense": 109_483_778, "shrunk": 99_000_000},
    "macs": {"dense": 11_000_000_000, "shrunk": 10_000_000_000},
    "latency_by_batch": {"1": TIMES, "256": TIMES},
    "difference_float64": 1e-16,
}


def test_tables_fit_80_columns():
    part = {"unbiased": 1.0, "worst_group": 1.0, "aligned": {"accuracy": 1.0}, "conflicting": {"accuracy": 1.0}}
    rows = {"dense_finetuned": part | {"units": {"open": 26560, "all": 26560}}}
    out = io.StringIO()
    console = Console(file=out, width=80)
    console.print(audit_table("Accuracy on the test split, %", rows))
    console.print(shrunk_table(FIGURES))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in out.getvalue()
    assert any("26560 / 26560" in line for line in lines)
    assert "their ratio is the median over neighbours" in " ".join(out.getvalue().split())


@pytest.mark.parametrize(
    ("count", "expected"),
    [(999, "999"), (12_345, "12.3 k"), (999_499, "999 k"), (999_500, "1 M"), (999_999, "1 M"), (999_999_999, "1 G")],
)
def test_sizes_are_rounded_before_their_unit_is_chosen(count, expected):
    figures = {"parameters": {"dense": count, "shrunk": count}, "macs": {"dense": 7, "shrunk": 7}}
    out = io.StringIO()
    Console(file=out, width=80).print(shrunk_table(figures | {"difference_float64": 0.0}))
    assert out.getvalue().count(f" {expected} │") == 2
    assert short(count) == expected
    assert short(-999.7) == "-1000"


@pytest.mark.parametrize("width", [60, 50, 40, 20])
def test_figures_are_never_cut(width):
    part = {"unbiased": 1.0, "worst_group": 0.987, "aligned": {"accuracy": 1.0}, "conflicting": {"accuracy": 0.123}}
    rows = {name: part | {"units": {"open": 26560, "all": 26561}} for name in ("vanilla", "dense_finetuned")}
    out = io.StringIO()
    console = Console(file=out, width=width)
    for table in (audit_table("Accuracy on the test split, %", rows), shrunk_table(FIGURES)):
        show_table(console, table)
    assert "…" not in out.getvalue()
    words = out.getvalue().split()
    assert (words.count("98.7"), words.count("12.3"), words.count("26561")) == (2, 2, 2)
    for whole in ("1234.56 ms", "109 M", "dense finetuned", "1e-16"):
        assert whole in out.getvalue()


def test_progress_in_a_pipe_is_lines_without_control_characters(monkeypatch):
    out = io.StringIO()
    clock = iter(range(0, 10_000, 3))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    with Bars(Console(file=out, width=80)) as bars:
        for done in range(1, 21):
            bars("extracting", done, 20)
    lines = out.getvalue().splitlines()
    assert 2 <= len(lines) <= 10, "a line now and then, not one a step"
    assert all(re.fullmatch(r"extracting: \d+/20(, about \d+ s left)?", line) for line in lines)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", out.getvalue())


def test_progress_in_a_pipe_tells_of_the_whole_and_not_of_its_parts(monkeypatch):
    """40 epochs of 60 s each, the first of which ends at 60; validating never has a line of its own."""
    out = io.StringIO()
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with Bars(Console(file=out, width=80)) as bars:
        for epoch in range(1, 41):
            now += 50
            for part in (500, 1000):
                bars("validating", part, 1000)
                now += 5
            bars("finetuning", epoch, 40)
    lines = out.getvalue().splitlines()
    assert not any(line.startswith("validating") for line in lines[2:])
    assert "finetuning: 20/40, about 20 min left" in lines
    assert lines[-1] == "finetuning: 40/40"


def test_a_run_in_a_pipe_keeps_stdout_for_its_result(tmp_path):
    """What a shell script sees: JSON on stdout, neither colours nor bars on either."""
    done = subprocess.run(
        [*MAIN, "extract", *OWN, *QUICK, "--out", str(tmp_path / "run"), "--json"],
        capture_output=True,
        text=True,
        cwd=TESTS,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["subnetwork"]["units"]["all"] == 32
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stderr


def test_a_terminal_of_few_characters_is_no_failure(tmp_path):
    """γ, ρ, ✓ and a name of the user's are not in every character set."""
    (tmp_path / "rows.csv").write_text("a,y,б\n" + "1,0,0\n1,0,1\n2,1,1\n2,1,0\n" * 30, encoding="utf-8")
    run_folder = str(tmp_path / "run")
    for arguments in (
        ["extract", "--help"],
        ["data", "check", str(tmp_path / "rows.csv"), "--target", "y", "--bias", "б"],
        ["extract", *OWN, *QUICK, "--out", run_folder],
        ["verify", run_folder],
    ):
        done = subprocess.run(
            [*MAIN, *arguments],
            capture_output=True,
            cwd=TESTS,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "ascii"},
        )
        assert done.returncode == 0, done.stderr
        assert b"?" in done.stdout
        assert b"Traceback" not in done.stderr


def test_exit_codes(tmp_path):
    good = run("extract", *OWN, *QUICK, "--out", str(tmp_path / "good"))
    assert good.exit_code == 0, good.output
    assert f"report: {tmp_path / 'good' / 'report.html'}" in good.stdout
    narrow = CliRunner().invoke(app, ["verify", str(tmp_path / "good")], env={"COLUMNS": "20"})
    assert f"  what was found: 7 files are there and can be read, schema {SCHEMA}\n" in narrow.stdout
    bad = run("extract", *OWN, "--gamma", "-1", "--out", str(tmp_path / "bad"))
    assert bad.exit_code == 2
    failed = run(
        "extract", OWN[0], OWN[1], "--data", "test_terminal:exploding", *QUICK, "--out", str(tmp_path / "failed")
    )
    assert failed.exit_code == 1
    assert failed.stderr.strip().splitlines()[-1].startswith("bise: the run failed: RuntimeError: the disk went away")
    loud = run("-v", "extract", *OWN[:2], "--data", "test_terminal:exploding", *QUICK, "--out", str(tmp_path / "loud"))
    assert loud.exit_code == 1
    assert "Traceback" in loud.stderr


def test_json_on_stdout_is_json_and_nothing_else(tmp_path):
    out = str(tmp_path / "run")
    for arguments in (["extract", *OWN, *QUICK, "--out", out], ["report", out], ["finetune", out, "--epochs", "1"]):
        result = run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        json.loads(result.stdout)


def test_a_reader_that_has_seen_enough_is_no_failure(tmp_path):
    (tmp_path / "rows.csv").write_text("a,y,b\n" + "1,0,0\n1,0,1\n2,1,1\n2,1,0\n" * 30)
    check = [*MAIN, "data", "check", str(tmp_path / "rows.csv"), "--target", "y", "--bias", "b"]
    with subprocess.Popen(check, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(tmp_path, ctrl_c):
    process = subprocess.Popen(
        [*MAIN, "demo", "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "run/config.json").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip().splitlines()[-1] == "bise: stopped; run the same command again with --resume to go on"
    assert "Traceback" not in errors
    assert not list(tmp_path.rglob("*.part"))


def test_tensorboard_beside_the_metrics(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = append_log(tmp_path / "metrics.jsonl", "extract", tensorboard=True)
    for epoch in (1, 2):
        log({"epoch": epoch, "loss": 0.5 / epoch, "val": {"unbiased": 0.25 * epoch}, "collapsed": ["x"]})
    found = reader.EventAccumulator(str(tmp_path / "events" / "extract"))
    found.Reload()
    assert set(found.Tags()["scalars"]) == {"loss", "val/unbiased"}
    assert [(e.step, e.value) for e in found.Scalars("val/unbiased")] == [(1, 0.25), (2, 0.5)]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_tensorboard_that_is_not_there_is_said_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("bise.runs.log.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"bise\[log\]"):
        append_log(tmp_path / "metrics.jsonl", "extract", tensorboard=True)
    result = run("extract", *OWN, *QUICK, "--tensorboard", "--out", str(tmp_path / "run"))
    assert result.exit_code == 2
    assert not (tmp_path / "run").exists()
