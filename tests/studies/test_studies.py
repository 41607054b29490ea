"""Every study at the scale of a trial, on real digits and pictures; going on after a stop; what is shared."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as xml
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from bise import BadInput, BiseWarning, ExtractConfig
from bise.base.files import SCHEMA, write_json, write_tensors
from bise.cli.app import app
from bise.studies import work
from bise.studies.catalogue import STUDIES
from bise.studies.job import Job, config_hash, configuration, extract_config, finetune_config, vanilla_part
from bise.studies.page import END, MARK, read, render, with_headline, write_page
from bise.studies.reproduction import Limits, planned, reproduce
from bise.studies.results import read_rows
from bise.studies.scale import SCALES
from bise.studies.study import Study
from bise.studies.tables import Line, footnote
from conftest import ROOT

SMOKE, PAPER = SCALES["smoke"], SCALES["paper"]
pytestmark = pytest.mark.filterwarnings("ignore:every mask that was judged gives each sample of val one class")
"""Networks of a trial have learned next to nothing."""
QUICK = ("ranking",)
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in STUDIES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("studies")


def scratch(name: str) -> str:
    return "scratch"


def run(folder: Path, *words: str):
    out = CliRunner().invoke(
        app, ["reproduce", *words, "--results", str(folder / "results"), "--cache", str(folder / "cache")]
    )
    assert out.exit_code == 0, out.output
    return out


@pytest.mark.data
@pytest.mark.parametrize("name", NAMES)
def test_every_study_runs_as_a_trial(name, folder):
    out = run(folder, name, "--scale", "smoke", "--protocol", "all", "--json")
    plan = planned([STUDIES[name]], SMOKE, Limits(), scratch)
    done = json.loads(out.stdout)
    assert done["left"] == 0
    assert done["done"] + done["known"] == len(plan)
    content = json.loads((folder / "results" / f"{name}.json").read_text())
    assert (content["schema"], content["study"], content["scale"]) == (SCHEMA, name, "smoke")
    assert {row["config_hash"] for row in content["rows"]} == set(plan)
    for row in content["rows"]:
        assert f"torch {torch.__version__.split('+')[0]}" in row["device"]
        assert row["seconds"] >= 0
        assert re.fullmatch(r"[0-9a-f]{10}(\+changes)?|version \S+", row["commit"])
        check_row(row)
    text = STUDIES[name].show(content["rows"])
    assert "| " in text
    assert "nan" not in text
    if STUDIES[name].draw is not None:
        STUDIES[name].draw(content["rows"], folder / "figure.svg")
        assert xml.parse(folder / "figure.svg").getroot().tag.endswith("svg")


def check_row(row):
    if row["kind"] == "count":
        return
    assert row["precision"] == "fp32"  # what "auto" comes to on a CPU
    if "extract" in row["config"]:
        asked, used = row["config"]["extract"], row["extracted"]
        assert used["precision"] == "fp32"
        for name in ("margin", "smoothing"):
            assert used[name] >= 0
            assert asked[name] in (None, used[name])
    else:
        assert "extracted" not in row
    assert len(row["weights"]) == 64
    for part in [row, row["last"]] if row["kind"] == "extract" else [row] if row["kind"] != "probe" else []:
        for point in part.get("points", [part]):
            assert 0 <= point["worst_group"] <= point["unbiased"] <= 1
            assert 0 <= point["accuracy"] <= 1
            assert 0 <= point["sparsity"]["units"] <= 100
            assert point["macs"] > 0
        if "by_group" in part:
            groups = part["by_group"].values()
            assert math.isclose(min(groups), part["worst_group"], abs_tol=1e-4)
            assert math.isclose(sum(groups) / len(groups), part["unbiased"], abs_tol=1e-4)


# a few jobs that take seconds

FEW = Study(
    name="few",
    title="",
    place="",
    jobs=lambda scale: [
        Job(label="vanilla", kind="vanilla"),
        Job(label="extraction", kind="extract"),
        Job(label="finetuned", kind="finetune"),
        Job(label="control", kind="finetune", of="dense"),
    ],
    show=lambda rows: "",
)


def figures(path: Path):
    """Rows without what a clock says."""
    rows = read_rows(path, "smoke").values()
    return [{k: v for k, v in row.items() if k not in ("seconds", "phases")} for row in rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """results/ and cache/ of the few jobs, done without a stop."""
    folder = tmp_path_factory.mktemp("whole")
    where = {"results": folder / "results", "cache_folder": folder / "cache", "device": "cpu"}
    assert reproduce([FEW], SMOKE, **where) == {"done": 4, "known": 0, "left": 0}
    return folder


HOLD = """
import sys, time
from pathlib import Path
from bise.base.locks import Lock
lock = Lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("busy", ["results", "cache"])
def test_a_second_process_is_refused_and_leaves_nothing(tmp_path, busy):
    (tmp_path / busy).mkdir()
    holder = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path / busy], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    counts = replace(FEW, jobs=lambda scale: [Job(label="count", kind="count")])
    folders = {"results": tmp_path / "results", "cache_folder": tmp_path / "cache"}
    try:
        with pytest.raises(BadInput, match=f"{busy} is in use by another process \\({holder.pid}\\)"):
            reproduce([counts], SMOKE, **folders)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert [path.name for path in tmp_path.iterdir()] == [busy]
    assert reproduce([counts], SMOKE, **folders)["done"] == 1
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["few.json"]


@pytest.mark.data
def test_a_stopped_study_goes_on_and_ends_as_it_would_have(tmp_path, whole):
    rows, expected = tmp_path / "results/few.json", figures(whole / "results/few.json")

    def do(**options):
        where = {"results": tmp_path / "results", "cache_folder": tmp_path / "cache", "device": "cpu"}
        return reproduce([FEW], SMOKE, **where, **options)

    def stop(line: str) -> None:
        if line.startswith("3/4"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        do(tell=stop)
    assert len(figures(rows)) == 2  # the third was done and not yet written
    assert do() == {"done": 2, "known": 2, "left": 0}
    assert figures(rows) == expected
    # nothing is missing, so nothing is written
    before = rows.stat().st_mtime_ns
    assert do() == {"done": 0, "known": 4, "left": 0}
    assert rows.stat().st_mtime_ns == before
    # with the cache and without the results, models and masks are the same
    rows.unlink()
    models = {p: p.stat().st_mtime_ns for p in (tmp_path / "cache").rglob("*.safetensors")}
    assert len(models) == 2
    do()
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "cache").rglob("*.safetensors")} == models
    assert figures(rows) == expected


SEEDS = replace(FEW, jobs=lambda scale: [replace(job, seed=seed) for seed in (0, 1) for job in FEW.jobs(scale)[:2]])


@pytest.fixture(scope="module")
def by_two(tmp_path_factory) -> Path:
    """results/ and cache/ where seed 1's vanilla model was trained alone, and the rest by two processes."""
    folder = tmp_path_factory.mktemp("two")
    where = {"results": folder / "results", "cache_folder": folder / "cache", "device": "cpu"}
    limits = Limits(seeds=(1,), only=("vanilla",))
    assert reproduce([SEEDS], SMOKE, limits=limits, **where)["done"] == 1
    assert reproduce([SEEDS], SMOKE, processes=2, **where) == {"done": 3, "known": 1, "left": 0}
    return folder


@pytest.mark.data
def test_several_processes_find_what_one_finds(tmp_path, by_two):
    where = {
        name: {"results": path / "results", "cache_folder": path / "cache"}
        for name, path in (("one", tmp_path), ("two", by_two))
    }
    assert reproduce([SEEDS], SMOKE, device="cpu", **where["one"])["done"] == 4
    one, two = (read_rows(path / "results/few.json", "smoke") for path in (tmp_path, by_two))
    assert one.keys() == two.keys()
    clock, threads = ("seconds", "phases", "commit", "date"), ("device",)  # two processes have a thread each
    for key, row in one.items():
        assert {k: v for k, v in row.items() if k not in clock + threads} == {
            k: v for k, v in two[key].items() if k not in clock + threads
        }
    alone = [row["seconds"] is not None for row in two.values()]
    assert sorted(alone) == [False, False, False, True]  # beside others a clock says nothing
    assert reproduce([SEEDS], SMOKE, device="cpu", processes=2, **where["two"])["known"] == 4


@pytest.mark.data
def test_bad_input_in_a_process_comes_out_as_it_is(tmp_path):
    bad = replace(FEW, jobs=lambda scale: [Job(label="bad", kind="extract", seed=s, preset="paper") for s in (0, 1)])
    where = {"results": tmp_path / "results", "cache_folder": tmp_path / "cache", "device": "cpu"}
    with pytest.raises(BadInput, match="does not exist; run `bise data download mnist`"):
        reproduce([bad], SMOKE, root=tmp_path / "nowhere", processes=2, **where)
    with pytest.raises(BadInput, match="--processes 0 is no number"):
        reproduce([bad], SMOKE, processes=0, **where)


@pytest.mark.data
def test_what_a_process_warns_of_is_said_by_the_command(tmp_path, by_two):
    jobs = [Job(label="all close", kind="extract", rho=0.99, seed=s, preset="paper") for s in (0, 1)]
    closing = replace(FEW, jobs=lambda scale: [replace(job, changes={"weight_decay": 50.0}) for job in jobs])
    said = []
    for n in (1, 2):
        where = {"results": tmp_path / f"results{n}", "cache_folder": tmp_path / f"cache{n}", "device": "cpu"}
        shutil.copytree(by_two / "cache", tmp_path / f"cache{n}")  # vanilla models, so that they needn't be trained
        with pytest.warns(BiseWarning, match="closed wholly") as caught:
            reproduce([closing], SMOKE, processes=n, **where)
        said.append(sorted(str(warning.message) for warning in caught))
    assert said[0] == said[1]


@pytest.mark.data
@pytest.mark.parametrize("what", ["can't be written", "anything else"])
def test_a_failure_in_a_process_comes_out_as_one_sentence(tmp_path, what):
    words = ["reproduce", "biased-mnist", "--scale", "smoke", "--only", "vanilla", "--processes", "2"]
    words += ["--device", "cpu", "--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache")]
    limits = Limits(only=("vanilla",), protocol="authors")
    jobs = planned([STUDIES["biased-mnist"]], SMOKE, limits, scratch).values()
    for item in jobs:
        folder = tmp_path / "cache" / f"vanilla-{config_hash(vanilla_part(item.job, SMOKE, 'scratch'))}"
        if what == "anything else":
            write_tensors(folder / "model.safetensors", {"other": torch.zeros(1)})
            write_json(folder / "record.json", {})
        else:
            (folder / "model.safetensors").mkdir(parents=True)
    assert len(jobs) == 2
    command = subprocess.run([sys.executable, "-m", "bise", *words], capture_output=True, text=True)
    assert command.returncode == 1
    (line,) = command.stderr.splitlines()
    if what == "anything else":
        assert line.startswith("bise: the run failed: RuntimeError: RuntimeError in one of the processes: Error(s) in")
    else:
        assert "model.safetensors can't be written (Is a directory); make room" in line
    if what == "anything else":
        loud = CliRunner().invoke(app, ["-v", *words])
        assert "load_state_dict" in loud.stderr  # where in the process it failed


@pytest.mark.data
def test_a_clock_beside_others_is_not_kept_for_later(tmp_path, by_two):
    anew = Job(label="anew", kind="extract", reestimate=True)
    both = replace(SEEDS, jobs=lambda scale: [*SEEDS.jobs(scale), anew])
    shutil.copytree(by_two / "cache", tmp_path / "cache")  # the models, without the rows
    where = {"results": tmp_path / "results", "cache_folder": tmp_path / "cache", "device": "cpu"}
    assert reproduce([both], SMOKE, **where) == {"done": 5, "known": 0, "left": 0}
    rows = read_rows(tmp_path / "results/few.json", "smoke").values()
    clocks = {(row["label"], row["seed"]): row["seconds"] for row in rows if row["seconds"] is not None}
    assert clocks.keys() == {("vanilla", 1)}  # which was trained alone
    assert all("phases" not in row for row in rows if row["seconds"] is None)


@pytest.mark.data
def test_with_one_set_of_data_there_is_nothing_to_divide(tmp_path):
    one = replace(FEW, jobs=lambda scale: FEW.jobs(scale)[:1])
    reproduce([one], SMOKE, results=tmp_path / "r", cache_folder=tmp_path / "c", device="cpu", processes=1000)
    (row,) = read_rows(tmp_path / "r/few.json", "smoke").values()
    assert row["seconds"] > 0  # no other was at work beside it


def workers_of(parent: int) -> list[int]:
    out = subprocess.run(["pgrep", "-P", str(parent), "-f", "spawn_main"], capture_output=True, text=True)
    return [int(line) for line in out.stdout.split()]


def gone(processes: list[int]) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in processes):
        time.sleep(0.1)
    return not any(Path(f"/proc/{pid}").exists() for pid in processes)


@pytest.mark.data
@pytest.mark.long
@pytest.mark.parametrize("whom", ["a process", "the command"])
def test_what_was_done_before_a_kill_is_kept(tmp_path, whom):
    words = ["reproduce", "biased-mnist", "--scale", "smoke", "--processes", "2", "--device", "cpu"]
    words += ["--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache")]
    command = subprocess.Popen(
        [sys.executable, "-m", "bise", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert "vanilla" in command.stdout.readline()
    workers = workers_of(command.pid)
    assert len(workers) == 2
    os.kill(command.pid if whom == "the command" else workers[0], signal.SIGKILL)
    said = command.communicate(timeout=60)[1]
    if whom == "a process":
        assert command.returncode == 2
        assert "processes was killed, perhaps for memory (signal 9)" in said
    assert gone(workers)
    before = len(read_rows(tmp_path / "results/biased-mnist.json", "smoke"))
    again = CliRunner().invoke(app, [*words, "--json"])
    assert again.exit_code == 0, again.output
    counts = json.loads(again.stdout)
    assert counts["known"] == before
    assert counts["left"] == 0


def test_an_interrupt_waits_until_processes_have_started(ctrl_c):
    """By way of a thread that hasn't blocked it, as a queue's."""
    done, started = threading.Event(), []
    thread = threading.Thread(target=done.wait)
    thread.start()

    def interrupted():
        with work._interrupts_held():
            signal.pthread_kill(thread.ident, signal.SIGINT)
            time.sleep(0.1)
            started.append(True)

    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        done.set()
        thread.join()
    assert started


@pytest.mark.data
@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_long_jobs_end_with_their_command(tmp_path, ctrl_c, how):
    words = ["reproduce", "all", "--weights", "scratch", "--processes", "2", "--device", "cpu"]  # a pipe holds less
    words += ["--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache")]
    command = subprocess.Popen(
        [sys.executable, "-m", "bise", *words], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while len(workers := workers_of(command.pid)) < 2:
        assert time.monotonic() < deadline
    if how == signal.SIGINT:
        os.killpg(command.pid, how)  # as a terminal does
    else:
        os.kill(command.pid, how)
    said = command.communicate(timeout=60)[1]  # until the last process has closed it
    assert gone(workers)
    if how == signal.SIGINT:
        assert command.returncode == 130
        assert said == "bise: stopped; the same command goes on behind the last row that was written\n"
        assert not any(tmp_path.iterdir())


@pytest.mark.data
def test_what_one_study_has_measured_another_takes(tmp_path):
    other = replace(FEW, name="other", jobs=lambda scale: [replace(job, label="mine") for job in FEW.jobs(scale)[:1]])
    where = {"results": tmp_path / "results", "cache_folder": tmp_path / "cache", "device": "cpu"}
    limits = Limits(only=("vanilla",))
    assert reproduce([FEW], SMOKE, limits=limits, **where) == {"done": 1, "known": 0, "left": 0}
    assert reproduce([other], SMOKE, **where) == {"done": 0, "known": 1, "left": 0}
    (mine,), (theirs,) = (figures(tmp_path / f"results/{name}.json") for name in ("other", "few"))
    assert mine == theirs | {"label": "mine"}
    assert reproduce([FEW], SMOKE, limits=Limits(minutes=0), **where) == {"done": 0, "known": 1, "left": 3}


def test_data_that_are_missing_leave_the_rest_alone(tmp_path):
    where = {"results": tmp_path / "results", "cache_folder": tmp_path / "cache", "root": tmp_path, "device": "cpu"}
    faces = Job(label="vanilla", kind="vanilla", recipe="celeba")
    mixed = replace(FEW, jobs=lambda scale: [Job(label="count", kind="count", recipe="celeba"), faces])
    with pytest.warns(Warning, match="celeba is left out: .*list_attr_celeba.txt does not exist"):
        assert reproduce([mixed], PAPER, weights="scratch", **where) == {"done": 1, "known": 0, "left": 1}
    with pytest.raises(BadInput, match=r"list_attr_celeba.txt does not exist"):
        reproduce([replace(FEW, name="faces", jobs=lambda scale: [faces])], PAPER, weights="scratch", **where)


# what is planned


def test_every_study_is_planned_at_the_papers_scale():
    keys = {name: planned([study], PAPER, Limits(), scratch) for name, study in STUDIES.items()}
    # the default's best mask at ρ = 0.99 is in all of these, so it is done once
    job = Job(label="", kind="extract", rho=0.99)
    same = config_hash(configuration(job, PAPER, "scratch"))
    ablations = ("gamma", "loss-ablation", "sensitivity", "batch-norm", "label-noise")
    for name in ("biased-mnist", "summary", "presets", *ablations):
        assert same in keys[name], name
    assert set(keys["summary"]) <= set().union(*(keys[name] for name in STUDIES if name != "summary"))
    # 2 protocols × 3 ρ × 3 seeds × (vanilla + 2 presets × (extraction, finetuned, control))
    assert len(keys["biased-mnist"]) == 126
    everything = planned(list(STUDIES.values()), PAPER, Limits(), scratch)
    data = [item.job.data for item in everything.values()]
    assert sum(a != b for a, b in pairwise(data)) == len(set(data)) - 1  # loaded once each


def test_rows_from_other_vanilla_models_are_named_as_in_the_table():
    def row(label, seed, weights):
        return {"label": label, "recipe": "biased-mnist", "rho": 0.99, "seed": seed, "weights": weights}

    same = [row("vanilla", 0, "a"), row("one", 0, "a"), row("vanilla", 1, "b"), row("one", 1, "b")]
    assert "other vanilla models" not in footnote(same)
    assert "other vanilla models" not in footnote([*same, row("two", 2, "c")])  # another seed has its own
    other = [*same, row("two", 0, "x"), row("two", 1, "y"), row("one", 1, "z")]
    lines = [Line(title="The second", label="two"), Line(title="The second, last", label="two")]
    assert footnote(other, lines).endswith("of the same recipe and seed: 2 of “The second”, 1 of “one”.")


def test_limits():
    some = Limits(seeds=(0, 2), rho=(0.99,), only=("vanilla", "extract"), protocol="paper")
    plan = planned([STUDIES["biased-mnist"]], PAPER, some, scratch)
    found = {(item.job.seed, item.job.rho, item.job.label) for item in plan.values()}
    labels = ("vanilla", "extraction, balanced", "extraction, paper")
    assert found == {(seed, 0.99, label) for seed in (0, 2) for label in labels}
    plan = planned([STUDIES["biased-mnist"]], PAPER, Limits(presets=("paper",), only=("extract",)), scratch)
    assert {item.job.label for item in plan.values()} == {"extraction, paper"}
    plan = planned([STUDIES["presets"]], PAPER, Limits(line="on unbiased data"), scratch)
    assert len(plan) == 2 * 3 * 3  # two lines, three ρ, three seeds
    assert all("on unbiased data" in item.job.label for item in plan.values())
    assert planned([STUDIES["mask-counts"]], PAPER, Limits(presets=("paper",)), scratch)  # counting has no preset


def test_the_authors_protocol_is_run_where_a_study_has_it():
    def sides(name, protocol):
        plan = planned([STUDIES[name]], PAPER, Limits(protocol=protocol), scratch)
        return {(item.job.protocol, item.job.preset) for item in plan.values()}

    main = ("biased-mnist", "rho-0.999", "corrupted-cifar10", "celeba", "civilcomments")
    for name in main:
        assert sides(name, "authors") == {("authors", "authors"), ("authors", "balanced")}
        assert sides(name, "paper") == {(None, "paper"), (None, "balanced")}
    assert sides("gamma", "authors") == {("authors", "authors")}
    assert sides("unsupervised", "authors") == {("authors", "authors"), ("authors", "balanced")}  # vanilla has none
    assert sides("ranking", "authors") == sides("ranking", None) == {(None, "balanced")}
    with pytest.raises(BadInput, match="--protocol 'text' is unknown; use authors, paper or all"):
        Limits(protocol="text")
    # the configuration says all that differs
    job = Job(label="", kind="extract", rho=0.99, preset="authors", protocol="authors")
    config = configuration(job, PAPER, "scratch")
    assert (config["protocol"], config["shape"], config["train"]["precision"]) == ("authors", {"last": "tanh"}, "fp32")
    assert (config["extract"]["ties"], config["extract"]["rho"]) == ("later", 0.99)
    assert configuration(job, SMOKE, "scratch")["shape"]["last"] == "tanh"


@pytest.mark.data
def test_rows_of_another_precision_stand_in_until_there_are_right_ones(folder, tmp_path):
    words = ("biased-mnist", "--protocol", "paper", "--preset", "paper", "--only", "extract", "--rho", "0.99")
    run(folder, *words, "--scale", "smoke")
    file = folder / "results/biased-mnist.json"
    content = json.loads(file.read_text())
    (row,) = [r for r in content["rows"] if r["label"] == "extraction, paper" and r["rho"] == 0.99]
    assert row["precision"] == row["config"]["extract"]["precision"] == "fp32"
    old = json.loads(json.dumps(row))
    old["config"]["extract"]["precision"], old["accuracy"] = "auto", 0.5
    for rows, expected in (([old], [0.5]), ([old, row], [row["accuracy"]])):
        write_json(tmp_path / "biased-mnist.json", {**content, "rows": rows})
        found = read(tmp_path, "biased-mnist", SMOKE)
        assert [r["accuracy"] for r in found] == expected
        said = "standing in until there are rows in fp32: 1 of “BISE, preset `paper`”" in render(
            {"biased-mnist": found}
        )
        assert said == (rows == [old])
    # and what is known is not what is right
    key = config_hash(configuration(Job(label="", kind="extract", rho=0.99, preset="paper"), SMOKE, "scratch"))
    assert (config_hash(row["config"]), config_hash(old["config"]) == key) == (key, False)


def test_settings_of_the_papers_scale():
    job = Job(label="", kind="finetune", recipe="corrupted-cifar10", rho=0.98, seed=2)
    assert extract_config(job, PAPER) == ExtractConfig(
        gamma=1.0, head_epochs=50, margin=0.0, smoothing=0.0, gates_at="activations", seed=2
    )
    assert extract_config(replace(job, recipe="biased-mnist"), PAPER) == ExtractConfig(gates_at="activations", seed=2)
    tuned = finetune_config(job, PAPER)
    # our finetuning: one epoch of jittered pictures
    assert (tuned.optimizer, tuned.lr, tuned.batch_size) == ("sgd", 1e-2, 256)
    assert (tuned.sampler, tuned.epochs, tuned.jitter) == ("balanced", 1, 1.0)
    tuned = finetune_config(replace(job, recipe="multi-color-mnist", rho=None), PAPER)
    # and by the optimizer that the supplement gives for this data set
    assert (tuned.optimizer, tuned.lr, tuned.sampler, tuned.epochs) == ("adam", 1e-3, "balanced", 20)
    tuned = finetune_config(replace(job, preset="paper"), PAPER)
    assert (tuned.weights, tuned.epochs, tuned.seed) == ("paper", 50, 2)
    assert extract_config(replace(job, preset="paper", changes={"gamma": 3.0}), PAPER) == ExtractConfig.paper(
        seed=2, gamma=3.0, batch_size=256, augment=True
    )


def test_the_hash_knows_what_matters():
    job = Job(label="a", kind="extract", rho=0.99)
    config = configuration(job, PAPER, "scratch")
    key = config_hash(config)
    assert config_hash(configuration(replace(job, label="b"), PAPER, "scratch")) == key
    assert config_hash(json.loads(json.dumps(config))) == key
    for other in (
        replace(job, seed=1),
        replace(job, rho=0.995),
        replace(job, preset="paper"),
        replace(job, changes={"gamma": 2.0}),
        replace(job, changes={"precision": "fp32"}),
        replace(job, bias="noise", noise=0.1),
        replace(job, reestimate=True),
        replace(job, kind="finetune"),
    ):
        assert config_hash(configuration(other, PAPER, "scratch")) != key
    assert config_hash(configuration(job, PAPER, "imagenet")) != key
    assert (
        config_hash(configuration(replace(job, changes={"graphs": False, "memory": 1 << 30}), PAPER, "scratch")) == key
    )
    # whether masks compete with the model counts where these are samples that it knows by heart
    held = replace(job, held_out=0.1)
    alone = {"baseline": False}
    assert config_hash(configuration(replace(job, changes=alone), PAPER, "scratch")) == key
    keys = {config_hash(configuration(other, PAPER, "scratch")) for other in (held, replace(held, changes=alone))}
    assert len(keys) == 2
    # a row from before a field came: its default is how things were
    older = {**config, "extract": {k: v for k, v in config["extract"].items() if k != "collapse"}}
    assert config_hash(older) == key


# the page, and the command's manners


def test_the_page_is_made_from_the_results():
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    rows = {name: read(ROOT / "results", name) for name in STUDIES}
    assert page == render(rows), "run `bise reproduce --page`"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme == with_headline(readme, rows["biased-mnist"]), "run `bise reproduce --page`"
    drawn = {name for name, study in STUDIES.items() if study.draw is not None and rows[name]}
    assert {path.stem for path in (ROOT / "docs/pictures/results").glob("*.svg")} == drawn


@pytest.mark.data
def test_the_page_has_what_was_run_and_names_what_was_not(folder, tmp_path):
    run(folder, "ranking", "--scale", "smoke")
    rows = (folder / "results/ranking.json").read_text()
    (tmp_path / "ranking.json").write_text(rows)
    said = write_page(tmp_path, SMOKE, tmp_path / "docs")
    assert said.endswith("1 of 19 studies have been run")
    page = (tmp_path / "docs/results.md").read_text(encoding="utf-8")
    assert "## Scores as a ranking" in page
    assert "`bise reproduce ranking`: Figure J.1." in page
    assert "Not yet run: `summary`, `biased-mnist`" in page
    assert "So far" not in page
    assert "So far 1 of 3 jobs." in render({"ranking": json.loads(rows)["rows"]}, PAPER)
    first = (tmp_path / "docs/pictures/results/ranking.svg").read_bytes()
    readme = tmp_path / "README.md"
    readme.write_text(f"{MARK}\n{END}")
    write_page(tmp_path, SMOKE, tmp_path / "docs")
    assert readme.read_text() == f"{MARK}\n{END}"  # a trial's figures mean nothing
    assert (tmp_path / "docs/pictures/results/ranking.svg").read_bytes() == first
    # a row of another configuration stays in the file, and isn't shown under this one's name
    (tmp_path / "ranking.json").write_text(rows.replace('"gamma": 0.3', '"gamma": 1.5'))
    assert read(tmp_path, "ranking", SMOKE) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mnist"], "study 'mnist' is unknown; use all, summary, biased-mnist"),
        ([], "no study is named"),
        (["gamma", "--scale", "tiny"], "--scale 'tiny' is unknown"),
        (["gamma", "--only", "train"], "--only 'train' is unknown"),
        (["gamma", "--seeds", "a"], "--seeds 'a' holds something that is no number"),
        (["gamma", "--preset", "ours"], "--preset 'ours' is unknown"),
        (["gamma", "--minutes", "nan"], "--minutes nan must be a number, 0 or more"),
        (
            ["gamma", "--line", "δ"],
            "--line 'δ' is in no label of gamma; theirs are: γ = 0, balanced; γ = 0.1, balanced",
        ),
        (["gamma", "--rho", "0.99,0.5"], "--rho 0.5 is none of gamma; theirs are 0.99"),
        (["gamma", "--seeds", "0,7"], "--seeds 7 is none of gamma; theirs are 0"),
        (["gamma", "--only", "probe"], "no job of gamma is within all the limits that are given; leave some out"),
        (["gamma", "--minutes", "-1"], "--minutes -1 must be a number, 0 or more"),
    ],
)
def test_bad_words_are_named(words, message, tmp_path):
    out = CliRunner().invoke(app, ["reproduce", *words, "--results", str(tmp_path)])
    assert out.exit_code == 2
    assert message in out.output
    assert not list(tmp_path.iterdir())


def test_scales_are_not_mixed(tmp_path):
    (tmp_path / "gamma.json").write_text('{"schema": 1, "study": "gamma", "scale": "smoke", "rows": []}')
    with pytest.raises(BadInput, match=r"gamma.json holds results of scale 'smoke', and not 'paper'"):
        reproduce([STUDIES["gamma"]], PAPER, results=tmp_path, cache_folder=tmp_path)


def test_the_list_counts_jobs(tmp_path):
    out = CliRunner().invoke(app, ["reproduce", "--list", "--results", str(tmp_path)])
    assert out.exit_code == 0
    lines = {line.split()[0]: line for line in out.stdout.splitlines()}
    assert set(lines) == set(STUDIES)
    assert "0 of 126 jobs" in lines["biased-mnist"]


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("bise.studies.work.Runner.__call__", stopped)
    out = CliRunner().invoke(app, ["reproduce", "mask-counts", "--scale", "smoke", "--results", str(tmp_path)])
    assert out.exit_code == 130
    assert "the same command goes on" in out.output


@pytest.mark.data
def test_what_an_older_version_kept_is_found(tmp_path, whole):
    where = {"results": tmp_path / "results", "cache_folder": tmp_path / "cache", "device": "cpu"}
    shutil.copytree(whole / "cache", tmp_path / "cache")
    kept = sorted((tmp_path / "cache").iterdir())
    assert [folder.name.partition("-")[0] for folder in kept] == ["extract", "vanilla"]
    for folder in kept:  # as if configurations had had fewer fields then
        record = json.loads((folder / "record.json").read_text())
        del record["config"]["train"]["jitter"]
        record["config"].get("extract", {}).pop("patience", None)
        (folder / "record.json").write_text(json.dumps(record))
        folder.rename(folder.with_name(f"{folder.name[:8]}{'0' * 15}"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.*")}
    assert reproduce([FEW], SMOKE, **where)["done"] == 4
    assert figures(tmp_path / "results/few.json") == figures(whole / "results/few.json")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.*")} == before
