"""Two processes learn what one learns: the same jobs by torchrun and without it, compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import typer
from safetensors.torch import load_file
from torch.distributed.run import get_args_parser

from bise.cli.app import app
from bise.cli.several import TOGETHER, several
from bise.engine import processes
from bise.extraction.objective import information, information_gradient, joint_table
from conftest import TESTS
from jobs_together import JOBS

SETTINGS = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
SMALL = ["--steps", "20", "--upsilon", "2", "--batch-size", "60"]


def python(*words, processes=1, code=0):
    """What `python -m …` prints, started by torchrun where several are wanted."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(launcher if processes > 1 else []), "-m", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=TESTS, env=os.environ | SETTINGS, timeout=300)
    assert (done.returncode == 0) == (code == 0), done.stderr
    return done


QUICK = ("default",)
NAMED = [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in JOBS]


@pytest.mark.parametrize("name", NAMED)
def test_several_learn_what_one_learns(tmp_path, name):
    """Scores and weights to 1e-6 of the largest, same masks, same audit; three processes where a batch has two rows."""
    python("jobs_together", name, tmp_path / "one")
    python("jobs_together", name, tmp_path / "several", processes=3 if name == "few rows" else 2)
    one, several = load_file(tmp_path / "one"), load_file(tmp_path / "several")
    assert one.keys() == several.keys()
    scores = [values.abs().max() for key, values in one.items() if key.startswith("scores")]
    for key, expected in one.items():
        found = several[key]
        if key.startswith("mask") or key == "audit":
            assert torch.equal(found, expected), key
        else:
            assert expected.any(), key
            largest = max(scores) if key.startswith("scores") else expected.abs().max()
            assert (found - expected).abs().max() <= 1e-6 * largest, key


def test_the_gradient_of_the_information_is_that_of_the_summed_table():
    """By torch's own derivative of the whole batch, for the rows of each half."""
    torch.manual_seed(0)
    logits = torch.randn(40, 3, dtype=torch.float64).float().requires_grad_()
    b, include = torch.randint(0, 3, (40,)), torch.rand(40) < 0.7
    probabilities = logits.softmax(1)
    (expected,) = torch.autograd.grad(information(*joint_table(probabilities, b, include)), logits)
    halves = [slice(0, 13), slice(13, 40)]
    parts = [joint_table(probabilities[half], b[half], include[half]) for half in halves]
    table, counted = (sum(pieces) for pieces in zip(*parts, strict=True))
    for half in halves:
        found = information_gradient(probabilities[half], b[half], include[half], table, counted)
        torch.testing.assert_close(found, expected[half], rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("rows", [0, 1, 2, 5, 61])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_shares_are_all_rows_once_and_about_the_same(monkeypatch, rows, count):
    monkeypatch.setattr(processes._Joined, "count", count)
    shares = [processes.share(rows, of) for of in range(count)]
    assert [row for share in shares for row in range(rows)[share]] == list(range(rows))
    sizes = [len(range(rows)[share]) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_without_torchrun_nothing_changes():
    x = torch.randn(3)
    with processes.together():
        assert (processes.count(), processes.rank()) == (1, 0)
        assert processes.total(x)[0] is x
        assert processes.gathered(x, [3])[0] is x


@pytest.mark.parametrize("words", [["report", "runs/a"], ["-v", "verify", "runs/a"], ["extract", "--help"]])
def test_of_a_command_that_is_not_shared_the_first_process_does_all(monkeypatch, words):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit) as ended, several(words):
        pytest.fail("the second process worked too")
    assert ended.value.code == 0
    monkeypatch.setenv("RANK", "0")
    with several(words):
        assert processes.count() == 1


def test_torchrun_takes_no_option_of_a_shared_command_but_run_for_its_own():
    """It refuses what begins like several of its options, wherever that stands: a run is an argument, and no --run."""
    theirs = [option for action in get_args_parser()._actions for option in action.option_strings]
    group = typer.main.get_command(app)
    options = {option for name in TOGETHER for parameter in group.commands[name].params for option in parameter.opts}
    assert len(options) > 50
    unclear = {one for one in options if one not in theirs and sum(other.startswith(one) for other in theirs) > 1}
    assert unclear == {"--run"}


@pytest.fixture
def own_home(monkeypatch, tmp_path):
    monkeypatch.setenv("BISE_HOME", str(tmp_path / "home"))


@pytest.mark.long
def test_torchrun_leaves_one_run_that_keeps_its_promises(own_home, tmp_path):
    run = tmp_path / "run"
    own = ["--model", "small_job:make", "--data", "small_job:splits"]
    done = python("bise", "extract", *own, *SMALL, "--out", run, processes=2)
    assert done.stdout.count("run folder:") == 1
    for words in (["refit", run], ["finetune", run, "--epochs", "2"]):
        python("bise", *words, processes=2)
    alone = json.loads(python("bise", "audit", run, "--json").stdout)
    assert json.loads(python("bise", "audit", run, "--json", processes=2).stdout) == alone
    assert python("bise", "report", run, processes=2).stdout.count("report.html") == 1
    python("bise", "verify", run)


@pytest.mark.long
def test_a_comparison_is_shared_and_leaves_one_run(own_home, tmp_path):
    words = [
        "--model",
        "small_job:make",
        "--data",
        "small_job:splits",
        "--methods",
        "erm,group-dro,dfr",
        "--seeds",
        "1",
    ]
    found = {}
    for count in (1, 2):
        out = tmp_path / str(count)
        done = python("bise", "bench", *words, "--epochs", "2", "--out", out, processes=count)
        assert done.stdout.count("run folder:") == 1
        rows = json.loads((out / "summary.json").read_text())["rows"]
        found[count] = {row["method"]: row["figures"] for row in rows}
        assert not (out / "checkpoints").exists()
    assert list(found[1]) == ["vanilla", "erm", "group-dro", "dfr"]
    for method, figures in found[1].items():
        assert found[2][method]["by_group"] == figures["by_group"]
        assert found[2][method]["information"] == pytest.approx(figures["information"], rel=1e-4)


@pytest.mark.long
def test_bad_input_ends_all_of_them(own_home, tmp_path):
    done = python("bise", "extract", "--model", "small_job:no", "--out", tmp_path / "run", processes=2, code=2)
    assert "bise: " in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="the system doesn't tell a process's children")
def test_where_one_is_killed_the_other_says_so_and_the_run_goes_on(own_home, tmp_path):
    run = tmp_path / "run"
    size = ["--steps", "100", "--upsilon", "2", "--batch-size", "60"]
    own = ["bise", "extract", "--model", "small_job:make", "--data", "small_job:splits", *size, "--out", str(run)]
    words = [*own, "--checkpoint-every", "0"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    log = tmp_path / "log"
    with log.open("w") as file:
        both = subprocess.Popen([*launcher, *words], stdout=file, stderr=file, cwd=TESTS, env=os.environ | SETTINGS)
        state = run / "checkpoints" / "extract" / "extract.safetensors"
        wait_for(state.exists, 120)
        second = [pid for pid in children(both.pid) if environment(pid).get("RANK") == "1"]
        os.kill(second[0], 9)
        assert both.wait(60) != 0
    assert log.read_text().count("bise: the run failed: another process of this run has ended") == 1
    python(*own, "--resume")
    python("bise", "verify", run)


def wait_for(what, seconds):
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def children(pid):
    """Those that torchrun has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def environment(pid):
    pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
