"""A run folder from a stranger: links, pipes, devices, folders and huge files in the place of each file of a run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from safetensors.torch import save_file
from typer.testing import CliRunner

from bise.cli.app import app
from conftest import copy_run, toy, toy_model, trained

QUICK = ["--steps", "5", "--upsilon", "1", "--batch-size", "60"]
SECRET = b"not yours\n"
OWN = ["--model", f"{__name__}:make", "--data", f"{__name__}:splits"]
BENCH = ["bench", *OWN, "--methods", "erm,dfr", "--seeds", "1", "--epochs", "1"]


def make():
    return toy_model()


def splits(split):
    return {"train": toy(seed=0), "val": toy(rho=1 / 3, seed=1), "test": toy(rho=1 / 3, seed=2)}[split]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@contextmanager
def at_most(seconds):
    """Fails what hangs."""

    def late(*_):
        raise AssertionError(f"hangs beyond {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Extracted, refitted, finetuned and with a page, by the commands themselves."""
    base = tmp_path_factory.mktemp("strange")
    save_file(trained(make(), splits("train")).state_dict(), base / "net.safetensors")
    own = ["--model", f"{__name__}:make", "--weights", base / "net.safetensors", "--data", f"{__name__}:splits"]
    for command in (
        ["extract", *own, "--out", base / "run", *QUICK],
        ["refit", base / "run"],
        ["finetune", base / "run", "--epochs", "1"],
        ["front", base / "run", "--budget", "0.5"],
        ["report", base / "run", "--card"],
        [*BENCH, "--out", base / "bench"],
    ):
        result = run(*command)
        assert result.exit_code == 0, result.output
    return base / "run"


@pytest.fixture
def outside(tmp_path):
    """What no command may touch: a folder with a dot file, a plain file and folders as a run has them."""
    folder = tmp_path / "outside"
    (folder / "finetune").mkdir(parents=True)
    for name in (".hidden", "file", "finetune/finetuned.safetensors", ".x.1.part"):
        (folder / name).write_bytes(SECRET)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def commands(folder: Path, tmp_path: Path) -> dict[str, list[object]]:
    return {
        "verify": ["verify", folder],
        "report": ["report", folder],
        "audit": ["audit", folder],
        "compare": ["compare", folder, folder, "--out", tmp_path / "compared.html"],
        "shrink": ["shrink", folder],
        "export": ["export", folder, tmp_path / "m.pt2"],
        "finetune": ["finetune", folder, "--epochs", "1", "--resume"],
        "refit": ["refit", folder, "--resume"],
        "from": ["extract", "--from", folder, "--out", tmp_path / "other", *QUICK],
        "card": ["report", folder, "--card"],
        "a card elsewhere": ["report", folder, "--card", "--out", tmp_path / "card.md"],
        "a page elsewhere": ["report", folder, "--out", tmp_path / "page.html"],
        "limits": ["audit", folder, "--fail-under", "accuracy=0.1", "--junit", tmp_path / "limits.xml"],
        "folder": ["shrink", folder, "--folder", tmp_path / "deployed"],
        "front": ["front", folder, "--budget", "0.5", "--no-refit", "--resume"],
    }


COMMANDS = list(commands(Path(), Path()))
READING = ("verify", "report", "audit", "compare", "shrink", "card", "a card elsewhere", "a page elsewhere", "limits")
"""Those that neither learn nor export."""
FILES = [
    ".lock", "checkpoints", "checkpoints/finetune", "checkpoints/finetune/finetuned.safetensors", "config.json",
    "dense_finetuned", "dense_finetuned/subnetwork.json", "dense_finetuned/subnetwork.safetensors", "events",
    "finetune.json", "finetuned", "finetuned/subnetwork.json", "finetuned/subnetwork.safetensors", "metrics.jsonl",
    "front", "front.json", "front/macs-0.5", "front/macs-0.5/subnetwork.json", "front/macs-0.5/subnetwork.safetensors",
    "front/macs-0.5-refitted", "front/macs-0.5-refitted/subnetwork.json",
    "front/macs-0.5-refitted/subnetwork.safetensors", "README.md", "non_finite.json",
    "refit.json", "refitted",
    "refitted/subnetwork.json",
    "refitted/subnetwork.safetensors", "report.html", "samples.json", "subnetwork", "subnetwork/subnetwork.json",
    "subnetwork/subnetwork.safetensors", "summary.json", "thresholds.json",
]  # fmt: skip


def replace(path: Path, kind: str, outside: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(2**30)  # a hole: it takes no room on the disk
    elif kind == "nested":  # within the bytes that a file may have, and gigabytes when it is parsed
        path.write_bytes(b'{"schema": 2, "source": {}, "epoch": [' + b"[[[[]]]]," * (6 * 10**6) + b'1], "job": "a"}\n')
    elif kind == "text":
        path.write_bytes(b'{"schema": 2, "source": "' + b"x" * (60 * 2**20) + b'"}\n')
    else:
        path.symlink_to({"file": outside / "file", "folder of others": outside, "device": "/dev/zero"}[kind])


def test_the_list_names_every_file_of_a_run(whole):
    found = {str(path.relative_to(whole)) for path in whole.rglob("*")}
    assert found <= set(FILES)
    assert {path.name for path in (whole.parent / "bench").iterdir()} <= set(BENCH_FILES)


MANY = [pytest.param(name, marks=pytest.mark.long) for name in FILES if name.startswith("front/")]


@pytest.mark.parametrize("kind", ["file", "folder of others", "device", "pipe"])
@pytest.mark.parametrize("name", [*(name for name in FILES if not name.startswith("front/")), *MANY])
def test_links_and_special_files_are_refused_and_nothing_outside_changes(whole, outside, tmp_path, name, kind):
    folder = tmp_path / "run"
    copy_run(whole, folder)
    replace(folder / name, kind, outside)
    before = contents(outside)
    for command, arguments in commands(folder, tmp_path).items():
        with at_most(10):
            result = run(*arguments)
        assert result.exit_code == 2, (command, result.output)
        assert result.stderr.count("\n") == 1, result.stderr
        assert contents(outside) == before
    assert not (tmp_path / "other").exists()


BENCH_FILES = [".lock", "checkpoints", "checkpoints/bench", "config.json", "README.md", "report.html", "summary.json"]


RARE = [pytest.param(kind, marks=pytest.mark.long) for kind in ("folder of others", "device", "folder")]


@pytest.mark.parametrize("kind", ["file", "pipe", "huge", *RARE])
@pytest.mark.parametrize("name", BENCH_FILES)
def test_the_folder_of_a_comparison_harms_nobody_either(whole, outside, tmp_path, name, kind):
    """Every command on it; most have no use for one, and say so."""
    folder = tmp_path / "run"
    shutil.copytree(whole.parent / "bench", folder)
    replace(folder / name, kind, outside)
    before = contents(outside)
    more = {"bench": [*BENCH, "--out", folder, "--resume"]}
    for command, arguments in (commands(folder, tmp_path) | more).items():
        with at_most(10):
            result = run(*arguments)
        links = kind not in ("folder", "huge")
        assert result.exit_code in ((2,) if links else (0, 1, 2)), (command, result.output)
        assert result.stderr.count("\n") == 1 or not links, (command, result.stderr)
        assert "Traceback" not in result.output
        assert contents(outside) == before
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("second", [True, False])
def test_one_strange_run_among_several_is_named(whole, outside, tmp_path, second):
    copy_run(whole, tmp_path / "run")
    replace(tmp_path / "run/summary.json", "device", outside)
    pair = [whole, tmp_path / "run"] if second else [tmp_path / "run", whole]
    result = run("compare", *pair, "--out", tmp_path / "page.html")
    assert result.exit_code == 2
    assert f"{tmp_path / 'run'}/summary.json is a symbolic link" in result.stderr
    assert not (tmp_path / "page.html").exists()


OUTPUTS = {
    "page": ["report", "RUN", "--out"],
    "card": ["report", "RUN", "--card", "--out"],
    "compared": ["compare", "RUN", "RUN", "--out"],
    "limits": ["audit", "RUN", "--fail-under", "accuracy=0.1", "--junit"],
    "export": ["export", "RUN"],
    "shrink": ["shrink", "RUN", "--out"],
    "onnx": ["shrink", "RUN", "--onnx"],
}


@pytest.mark.parametrize("kind", ["file", "folder of others", "device", "pipe"])
@pytest.mark.parametrize("command", OUTPUTS)
def test_no_output_takes_the_place_of_what_is_no_file_of_ours(whole, outside, tmp_path, command, kind):
    """One named by mistake, as /dev/stdout; a link stays a link, and a pipe a pipe."""
    copy_run(whole, tmp_path / "run")
    words = [str(tmp_path / "run") if word == "RUN" else word for word in OUTPUTS[command]]
    out = tmp_path / {"onnx": "out.onnx", "page": "p.html", "compared": "p.html"}.get(command, "out.pt2")
    replace(out, kind, outside)
    before, mode = contents(outside), out.lstat().st_mode
    with at_most(20):
        result = run(*words, out)
    if command in ("export", "shrink", "onnx") and kind == "file":  # a file to deploy replaces an earlier one
        assert result.exit_code == 0, result.output
    else:
        assert result.exit_code == 2, result.output
        assert result.stderr.count("\n") == 1, result.stderr
        assert out.lstat().st_mode == mode
    assert contents(outside) == before


@pytest.mark.parametrize("command", ["page", "card", "compared"])
def test_an_output_may_be_a_link_to_one_of_ours_and_stays_one(whole, tmp_path, command):
    copy_run(whole, tmp_path / "run")
    words = [str(tmp_path / "run") if word == "RUN" else word for word in OUTPUTS[command]]
    (tmp_path / "far").mkdir()
    assert run(*words, tmp_path / "far/out").exit_code == 0
    first = (tmp_path / "far/out").read_bytes()
    (tmp_path / "far/out").write_bytes(first + b"\n")
    (tmp_path / "link").symlink_to(tmp_path / "far/out")
    assert run(*words, tmp_path / "link").exit_code == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "far/out").read_bytes() == first


WORST = [
    ("checkpoints/finetune/finetuned.safetensors", "huge"),
    ("metrics.jsonl", "huge"),
    ("samples.json", "folder"),
    ("subnetwork/subnetwork.safetensors", "huge"),
]
SOME_AND_ALL = WORST + [
    pytest.param(name, kind, marks=pytest.mark.long)
    for name in FILES
    for kind in ("folder", "huge")
    if (name, kind) not in WORST
]


@pytest.mark.parametrize(("name", "kind"), SOME_AND_ALL)
def test_a_folder_or_a_huge_file_in_the_place_of_a_file_is_told_of(whole, outside, tmp_path, name, kind):
    """Where a command has no use for it, it may go on; it never hangs."""
    for command in COMMANDS:
        folder = tmp_path / command
        copy_run(whole, folder)
        replace(folder / name, kind, outside)
        with at_most(10 if command in READING else 60):  # the others learn or export
            result = run(*commands(folder, tmp_path)[command])
        assert result.exit_code in (0, 1, 2), result.output
        assert "Traceback" not in result.output
        assert "the run failed: " not in result.output or "make room" in result.output, (command, result.output)
        shutil.rmtree(folder)
        for made in ("other", "deployed"):
            shutil.rmtree(tmp_path / made, ignore_errors=True)


HEAVY = [
    ("config.json", "huge"),
    ("finetuned/subnetwork.json", "huge"),
    (".lock", "huge"),
    ("config.json", "nested"),
    ("summary.json", "nested"),
    ("summary.json", "text"),
    ("samples.json", "nested"),
    ("metrics.jsonl", "nested"),
    ("metrics.jsonl", "text"),
]
PEAK = """
import sys
from bise.cli.app import app
try:
    app()
finally:
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print("peak", peak.split()[1], file=sys.stderr)
"""


@pytest.mark.long
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the system doesn't tell the most memory of a process"
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_huge_file_does_not_fill_the_memory(whole, outside, tmp_path, command):
    for name, kind in (*WORST, *HEAVY):
        folder = tmp_path / "run"
        shutil.copytree(whole, folder)
        replace(folder / name, kind, outside)
        arguments = [str(argument) for argument in commands(folder, tmp_path)[command]]
        result = subprocess.run(
            [sys.executable, "-c", PEAK, *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert "Traceback" not in result.stderr, result.stderr
        peak = int(result.stderr.splitlines()[-1].split()[1])
        assert peak < 2**20, f"{name}: {peak} KiB are more than 1 GiB"
        shutil.rmtree(folder)
        for made in ("other", "deployed"):
            shutil.rmtree(tmp_path / made, ignore_errors=True)


def test_a_hard_link_in_the_place_of_the_lock_or_the_log_is_not_written_through(whole, outside, tmp_path):
    folder = tmp_path / "run"
    copy_run(whole, folder)
    os.link(outside / "file", folder / ".lock")
    result = run("shrink", folder)
    assert result.exit_code != 0
    assert "hard link" in result.stderr
    assert (outside / "file").read_bytes() == SECRET


def test_weights_of_your_own_may_be_a_link(whole, tmp_path):
    (tmp_path / "link.safetensors").symlink_to(whole.parent / "net.safetensors")
    own = ["--model", f"{__name__}:make", "--data", f"{__name__}:splits", "--weights", tmp_path / "link.safetensors"]
    assert run("audit", *own).exit_code == 0


def test_a_run_folder_may_be_reached_through_a_link(whole, tmp_path):
    (tmp_path / "link").symlink_to(whole)
    assert run("verify", tmp_path / "link").exit_code == 0
