"""Many runs on a Ray cluster: which tasks there are, what is refused, and a real cluster whose processes die."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from bise.base.errors import BadInput
from bise.cli.app import app
from bise.cli.filling import Filling
from bise.engine.config import TrainConfig
from bise.jobs import bench, engines
from bise.jobs.bench_plan import Plan
from bise.jobs.bench_problems import own_problem
from bise.jobs.bench_work import Elsewhere, tasks_of
from bise.jobs.engines import engine_named
from bise.jobs.tasks import Cluster
from bise.methods.rivals.listed import methods_named
from bise.studies.job import Job
from bise.studies.results import read_rows
from bise.studies.scale import SCALES
from bise.studies.work import Place, Task, independent
from conftest import TESTS, toy, toy_model

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray isn't installed")
pytestmark = pytest.mark.filterwarnings("ignore::bise.BiseWarning")  # small sets leave much in doubt
SHORT = TrainConfig(epochs=2, batch_size=50, lr=0.05)


def plan(*names, seeds=(0,), methods="erm,dfr"):
    parts = {"train": toy(300, rho=0.9), "val": toy(150, rho=1 / 3, seed=1), "test": toy(150, rho=1 / 3, seed=2)}
    problems = [own_problem(name, toy_model, parts, train=SHORT) for name in names]
    return Plan(problems=problems, methods=methods_named(methods), seeds=seeds)


def test_each_method_data_set_and_seed_is_a_task_behind_its_vanilla_model():
    found = tasks_of(plan("a:0.9", "b", seeds=(0, 4), methods="erm,dfr"))
    assert [(task.key, task.given, task.after) for task in found] == [
        ("a_0.9-0-vanilla", (0, 0, None), ()),
        ("a_0.9-0-erm", (0, 0, 0), ("a_0.9-0-vanilla",)),
        ("a_0.9-0-dfr", (0, 0, 1), ("a_0.9-0-vanilla",)),
        ("a_0.9-4-vanilla", (0, 4, None), ()),
        ("a_0.9-4-erm", (0, 4, 0), ("a_0.9-4-vanilla",)),
        ("a_0.9-4-dfr", (0, 4, 1), ("a_0.9-4-vanilla",)),
        ("b-0-vanilla", (1, 0, None), ()),
        ("b-0-erm", (1, 0, 0), ("b-0-vanilla",)),
        ("b-0-dfr", (1, 0, 1), ("b-0-vanilla",)),
        ("b-4-vanilla", (1, 4, None), ()),
        ("b-4-erm", (1, 4, 0), ("b-4-vanilla",)),
        ("b-4-dfr", (1, 4, 1), ("b-4-vanilla",)),
    ]


def test_rows_that_a_run_holds_are_not_done_again(tmp_path, monkeypatch):
    """A comparison that stopped behind two rows hands the other four out, and to a cluster what it would do itself."""
    asked, handed, told = plan("a", seeds=(0, 1)), [], []
    real = engines.results

    def stopping(make, tasks, cluster):
        handed.append(([task.key for task in tasks], cluster))
        stream = real(make, tasks, None)
        yield from (next(stream) for _ in range(2)) if len(handed) == 1 else stream
        if len(handed) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(bench, "results", stopping)
    with pytest.raises(KeyboardInterrupt):
        bench.compare(asked, tmp_path / "run")
    cluster = Cluster()
    there = Elsewhere(cluster=cluster, plan=lambda: asked)
    found = bench.compare(asked, tmp_path / "run", resume=True, elsewhere=there, arrived=told.append)
    keys = [f"a-{seed}-{name}" for seed in (0, 1) for name in ("vanilla", "erm", "dfr")]
    assert handed == [(keys, None), (keys[2:], cluster)]
    assert [f"a-{row['seed']}-{row['method']}" for row in found["rows"]] == keys
    assert told == found["rows"]
    seconds = [row["cost"]["seconds"] for row in found["rows"]]
    assert all(seconds[:2])
    assert seconds[2:] == [None] * 4  # beside others a clock says nothing
    whole = bench.compare(asked)
    assert [row["figures"] for row in whole["rows"]] == [row["figures"] for row in found["rows"]]


def test_a_study_waits_for_the_first_job_that_makes_what_it_starts_from():
    """By hand: a model for each seed; of seed 0 also its extraction, which a finetuning takes."""
    made = [
        Job(label="count", kind="count"),
        Job(label="mask", kind="extract", seed=0),
        Job(label="model", kind="vanilla", seed=0),
        Job(label="model", kind="vanilla", seed=1),
        Job(label="tuned", kind="finetune", seed=0),
        Job(label="dense", kind="finetune", of="dense", seed=1),
        Job(label="anew", kind="extract", reestimate=True, seed=0),
    ]
    tasks = [Task(key=f"{job.label} {job.seed}", job=job, config={}) for job in made]
    place = Place(
        scale=SCALES["smoke"], cache=Path(), device="cpu", starts={"biased-mnist": "scratch"}, roots={}, until=None
    )
    assert {task.key: task.after for task in independent(place, tasks)} == {
        "count 0": (),
        "mask 0": (),
        "model 0": ("mask 0",),
        "model 1": (),
        "tuned 0": ("mask 0",),
        "dense 1": ("model 1",),
        "anew 0": ("mask 0",),
    }


def test_without_ray_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    for words in (["bench", "--datasets", "demo"], ["reproduce", "all"]):
        done = CliRunner().invoke(app, [*words, "--engine", "ray"])
        assert done.exit_code == 2
        assert done.stderr == "bise: Ray is not installed; install the extra: pip install 'bise[cluster]'\n"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("spark", None, None, None), "--engine 'spark' is unknown; use local or ray"),
        (("local", "auto", None, None), "--address is for a cluster; give --engine ray too, or leave it out"),
        (("local", None, None, 0.5), "--gpus is for a cluster"),
        (("ray", None, 0.0, None), "--cpus 0 is no share of a machine; give a number, more than 0"),
        (("ray", None, None, -1.0), "--gpus -1 is no share of a machine; give a number, 0 or more"),
        (("ray", None, float("nan"), None), "--cpus nan is no share"),
        (("ray", None, 1.5, None), "--cpus 1.5 can't be had: beyond 1 Ray knows whole ones only; round it"),
    ],
)
def test_what_no_cluster_can_give_is_refused(given, sentence):
    with pytest.raises(BadInput, match=sentence):
        engine_named(*given)


def test_a_cluster_computes_where_its_tasks_have_something():
    assert (Cluster().device("auto"), Cluster(gpus=0.25).device("auto")) == ("cpu", "cuda")
    assert Cluster(gpus=1).device("cpu") == "cpu"
    with pytest.raises(BadInput, match="--device cuda needs a GPU for each task; give --gpus 1"):
        Cluster().device("cuda")
    with pytest.raises(BadInput, match="--device 'cuda:1' is not for a cluster"):
        Cluster(gpus=1).device("cuda:1")


def test_the_table_fills():
    terminal = Console(force_terminal=True, width=60, height=30, record=True)
    with Filling(plan("a", seeds=(0, 1)), terminal) as bars:
        bars.arrived({"dataset": "a", "method": "erm", "seed": 1, "figures": {"unbiased": 0.5432}})
        bars.arrived({"dataset": "a", "method": "dfr", "seed": 0, "skipped": "no val"})
        (table,) = bars.above()
    cells = [list(column.cells) for column in table.columns]
    assert cells == [["a"] * 3, ["vanilla", "erm", "dfr"], ["·", "·", "–"], ["·", "54.3", "·"]]
    assert "54.3" in terminal.export_text()  # the table was drawn above the bars
    small = Console(force_terminal=True, width=60, height=8)
    assert list(Filling(plan("a"), small).above()) == []
    pipe = Console(force_terminal=False, record=True, width=80)
    Filling(plan("a"), pipe).arrived({"dataset": "a", "method": "dfr", "seed": 0, "skipped": "no val"})
    assert pipe.export_text() == "1/3 a, seed 0, dfr: skipped, no val\n"


# a real cluster

NETS = """
from conftest import toy, toy_model

def make():
    return toy_model()

def load(split):
    return toy(300, rho=0.9) if split == "train" else toy(150, rho=1 / 3, seed=1 + (split == "test"))
"""
WORDS = ["bench", "--model", "nets_ray:make", "--data", "nets_ray:load", "--methods", "erm,rwg,dfr", "--seeds", "3"]
LONG = ["--epochs", "40", "--checkpoint-every", "0", "--device", "cpu"]
SETTINGS = {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex()}


@pytest.fixture(scope="module")
def cluster():
    """The address of a cluster with two slots, and the process that started it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")  # the paths of sockets have to be short
    words = ["start", "--head", "--block", "--num-cpus=2", f"--port={port}", "--node-ip-address=127.0.0.1"]
    words += ["--include-dashboard=false", "--object-store-memory=100000000", f"--temp-dir={folder}"]
    command = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", *words]
    where = os.environ | SETTINGS | TOKEN | {"PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    log = Path(folder, "log")
    with log.open("w") as file:
        head = subprocess.Popen(command, stdout=file, stderr=file, env=where, start_new_session=True)
    try:
        wait_for(lambda: "Ray runtime started" in log.read_text(), 120)
        yield f"127.0.0.1:{port}", head.pid
    finally:
        started = below(head.pid)
        head.terminate()
        head.wait(60)
        for pid in filter(alive, started):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def nets(tmp_path):
    (tmp_path / "nets_ray.py").write_text(NETS, encoding="utf-8")
    return tmp_path


def start(folder, *words, **settings):
    path = os.pathsep.join([str(folder), str(TESTS), *filter(None, sys.path)])
    where = os.environ | SETTINGS | settings | {"PYTHONPATH": path}
    command = [sys.executable, "-m", "bise", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=where, start_new_session=True, **pipes)


def ended(process, code=0):
    out, said = process.communicate(timeout=300)
    assert process.returncode == code, said
    return out, said


def rows(folder):
    found = json.loads((folder / "summary.json").read_text())["rows"]
    return {(row["dataset"], row["seed"], row["method"]): row for row in found}, len(found)


def wait_for(what, seconds):
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
    return found


def below(pid):
    """The processes that this one has started, and theirs."""
    try:
        own = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return own + [one for child in own for one in below(child)]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def at_work(pid):
    """{task: process} of a cluster's processes that are doing one, by the names that Ray gives them."""
    found = {}
    for one in below(pid):
        try:
            words = Path(f"/proc/{one}/cmdline").read_bytes().decode().strip("\0")
        except FileNotFoundError:
            continue
        if words.startswith("ray::nets_ray"):
            found[words.removeprefix("ray::")] = one
    return found


@needs_ray
@pytest.mark.long
def test_a_process_of_the_cluster_is_killed_and_every_row_is_there_once(cluster, nets):
    address, head = cluster
    local = start(nets, *WORDS, *LONG, "--out", "local")
    ended(local)
    process = start(nets, *WORDS, *LONG, "--out", "ray", "--engine", "ray", "--address", address, **TOKEN)
    states = nets / "ray/checkpoints/bench"

    def victim():
        assert process.poll() is None, process.communicate()
        done = [path for path in states.glob("*.json") if not path.stem.endswith("-data")]
        busy = {name: pid for name, pid in at_work(head).items() if any(states.glob(f"{name}.states/**/*.safetensors"))}
        return len(done) >= 5 and [(name, pid) for name, pid in busy.items() if not name.endswith("vanilla")]

    name, pid = wait_for(victim, 240)[0]
    os.kill(pid, signal.SIGKILL)
    ended(process)
    found, count = rows(nets / "ray")
    expected, _ = rows(nets / "local")
    assert count == len(found) == 12
    assert {key: row["figures"] for key, row in found.items()} == {key: row["figures"] for key, row in expected.items()}
    parts = {f"nets_ray_load-{seed}-{method}": row for (_, seed, method), row in found.items()}
    again = [part for part, row in parts.items() if row["cost"]["peak_bytes"] is None]
    assert again == [name]  # it went on from its checkpoint, so that its memory would mislead
    assert not (nets / "ray/checkpoints").exists()


@needs_ray
@pytest.mark.long
def test_ctrl_c_ends_the_cluster_and_one_goes_on_without_it(nets):
    home = nets / "home"
    process = start(nets, *WORDS, *LONG, "--out", "run", "--engine", "ray", "--cpus", "0.5", HOME=str(home))
    states = nets / "run/checkpoints/bench"

    def some():
        assert process.poll() is None, process.communicate()
        return len([path for path in states.glob("*.json") if not path.stem.endswith("-data")]) >= 3

    wait_for(some, 240)
    started = below(process.pid)
    assert len(started) > 2
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, said = ended(process, 130)
    assert said.count("bise: stopped; run the same command again with --resume to go on") == 1
    wait_for(lambda: not any(map(alive, started)), 60)
    assert not (home / ".ray").exists()
    kept = {path.name: path.read_bytes() for path in states.glob("*.json")}
    ended(start(nets, *WORDS, *LONG, "--out", "run", "--resume"))
    found, count = rows(nets / "run")
    assert count == len(found) == 12
    for (_, seed, method), row in found.items():  # what was there is taken as it was
        name = f"nets_ray_load-{seed}-{method}.json"
        if name in kept:
            assert {key: value for key, value in json.loads(kept[name]).items() if key != "schema"} == row


@needs_ray
@pytest.mark.long
@pytest.mark.data
def test_a_study_on_the_cluster_finds_what_one_process_finds(cluster, tmp_path):
    address, _ = cluster
    words = ["reproduce", "biased-mnist", "--scale", "smoke", "--rho", "0.99", "--device", "cpu", "--json"]
    found = {}
    for engine in (["local"], ["ray", "--address", address]):
        where = ["--results", tmp_path / engine[0], "--cache", tmp_path / f"cache-{engine[0]}"]
        out, _ = ended(start(tmp_path, *words, *where, "--engine", *engine, **TOKEN))
        counts = json.loads(out)
        found[engine[0]] = read_rows(tmp_path / engine[0] / "biased-mnist.json", "smoke")
        assert counts == {"done": len({key for _, key in found[engine[0]]}), "known": 0, "left": 0}
    assert found["local"].keys() == found["ray"].keys()
    clock = ("seconds", "phases", "date")
    for key, row in found["local"].items():
        other = {name: value for name, value in found["ray"][key].items() if name not in clock}
        assert {name: value for name, value in row.items() if name not in clock} == other
    again, _ = ended(start(tmp_path, *words, *where, "--engine", "ray", "--address", address, **TOKEN))
    assert json.loads(again)["done"] == 0
