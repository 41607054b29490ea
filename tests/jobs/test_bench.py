"""`bise bench`: rows, selection, costs, what is skipped, a kill, one's own functions, the page."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import bise
from bise import BadInput, TrainConfig
from bise.cli.app import app
from bise.data import Labelled
from bise.data.core.contract import labels
from bise.jobs.bench_problems import like_train, own_problem, problems_named, shortened
from bise.jobs.bench_rows import _config, changed
from bise.jobs.bench_sources import seeds_of
from bise.methods.rivals.listed import METHODS, methods_named
from bise.methods.shared.interface import Method
from conftest import toy, toy_model

TRAIN, VAL, TEST = toy(300, rho=0.9), toy(150, rho=1 / 3, seed=1), toy(150, rho=1 / 3, seed=2)
SHORT = TrainConfig(epochs=2, batch_size=50, lr=0.05)
pytestmark = pytest.mark.filterwarnings("ignore::bise.BiseWarning")  # small sets leave much in doubt


def make():
    return toy_model(seed=int(torch.initial_seed()))


def compared(**changes):
    how = {
        "val": VAL,
        "test": TEST,
        "methods": ["erm", "rwg", "dfr"],
        "config": SHORT,
        "finetune": SHORT,
        "device": "cpu",
    }
    return bise.bench(make, TRAIN, **(how | changes))


def test_rows_are_what_each_method_gives_by_itself():
    found = compared(seeds=[3])
    assert [one["method"] for one in found.rows] == ["vanilla", "erm", "rwg", "dfr"]
    vanilla, erm, rwg, dfr = found.rows
    assert all(one["seed"] == 3 for one in found.rows)
    # costs by hand: 2 epochs of 300; all of 3 · 16 · 16-ish weights change, or the last layer's 51
    assert [one["cost"]["samples"] for one in found.rows] == [600, 600, 600, 0]
    assert dfr["cost"]["weights_changed"] == 16 * 3 + 3
    assert vanilla["cost"]["weights_changed"] == 0
    assert vanilla["cost"]["macs"] == 8 * 16 + 16 * 16 + 16 * 3
    assert erm["cost"]["labels"] == ["y"]
    assert dfr["cost"]["labels"] == ["y", "val"]
    assert all(one["cost"]["seconds"] > 0 and one["cost"]["peak_bytes"] > 1e6 for one in found.rows)
    # the same figures as from the parts
    model = METHODS["rwg"]
    assert rwg["config"] == {}
    assert model.needs == ("b",)
    by_hand = bise.audit(_trained_by_hand(), TEST, aligned=labels(TRAIN))
    assert vanilla["figures"]["unbiased"] == by_hand.unbiased
    assert vanilla["figures"]["by_group"] == {name: round(v, 4) for name, v in by_hand.by_group.items()}


def _trained_by_hand():
    from bise.engine.inputs import Inputs
    from bise.engine.training import fit
    from bise.methods.finetuning import owning

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        network = owning(make())
    fit(network, Inputs(TRAIN, torch.device("cpu")), labels(TRAIN), replace(SHORT, seed=3))
    return network.bare()


def test_differences_are_paired_by_seed():
    found = compared(methods=["rwg", "erm"], seeds=2, against="erm")
    line = next(one for one in found.table if one["method"] == "rwg")
    values = {one["seed"]: one["figures"]["unbiased"] for one in found.rows if one["method"] == "rwg"}
    others = {one["seed"]: one["figures"]["unbiased"] for one in found.rows if one["method"] == "erm"}
    assert line["difference"]["unbiased"]["mean"] == pytest.approx(sum(values[s] - others[s] for s in (0, 1)) / 2)
    assert line["n"] == 2
    assert line["unbiased"]["mean"] == pytest.approx(sum(values.values()) / 2)
    text = str(found)
    assert "select: unbiased-val" in text
    assert "from erm" in text


def test_what_cannot_run_is_skipped_with_its_reason():
    def broken(model, train, val):
        raise ZeroDivisionError("no idea")

    blind = Labelled(TRAIN.dataset, y=TRAIN.y, classes=3)
    how = {"config": SHORT, "seeds": 1, "device": "cpu"}
    found = bise.bench(make, blind, test=TEST, methods=["rwg", broken, "dfr", "erm"], select="last", **how)
    reasons = {line["method"]: line["reasons"] for line in found.table}
    assert reasons["rwg"] == ["rwg needs bias labels of train, and train has none"]
    assert reasons["dfr"] == ["dfr needs val with bias labels, to fit on, and there is no val"]
    assert reasons["broken"] == ["ZeroDivisionError: no idea"]
    assert reasons["erm"] == []
    with pytest.raises(BadInput, match=r"no method could run: own has no val"):
        bise.bench(make, TRAIN, test=TEST, methods=["erm"], **how)
    one = Labelled(TRAIN.dataset, y=torch.zeros(300, dtype=torch.long), b=TRAIN.b, classes=3)
    with pytest.raises(BadInput, match="train holds one class only"):
        bise.bench(make, one, val=VAL, test=TEST, methods=["erm"], **how)


def test_ones_own_function_beside_ours():
    def doubled(model, train, val):
        out = toy_model()
        out.load_state_dict(model.state_dict())
        with torch.no_grad():
            out[-1].bias[0] += 1
        return out

    found = compared(methods=["erm", doubled, Method(name="again", run=_again, config=None)], seeds=1)
    rows = {one["method"]: one for one in found.rows}
    assert rows["doubled"]["cost"]["weights_changed"] == 1
    assert rows["doubled"]["cost"]["samples"] is None
    assert rows["again"]["figures"] == rows["erm"]["figures"]


def _again(start, train, val, config, setting):
    return METHODS["erm"].run(start, train, val, METHODS["erm"].config, setting)


def test_settings_are_chosen_on_val():
    """Of two settings, one that trains nothing useful and one that does, val takes the better; test isn't asked."""

    def run(start, train, val, config, setting):
        model = start(0)
        if config.good:
            return METHODS["erm"].run(start, train, val, METHODS["erm"].config, setting)
        with torch.no_grad():
            model[-1].weight.zero_()
        return model.eval()

    method = Method(name="two", run=run, config=_Two(), tried=({"good": True}, {"good": False}))
    found = compared(methods=[method], settings=2, seeds=1).rows[1]
    assert found["config"] == {"good": True}
    assert found["settings"] == 2
    assert found["tried"][0]["val"] == pytest.approx(1 / 3, abs=0.1)
    assert found["tried"][1]["val"] > 0.4
    assert compared(methods=[method], settings=1, seeds=1).rows[1]["config"] == {"good": False}
    with pytest.raises(BadInput, match="can't choose between settings"):
        compared(methods=[method], settings=2, select="last")


@dataclass(frozen=True, kw_only=True)
class _Two:
    good: bool = False


def test_a_search_changes_rates_and_extractions_too():
    rates = []

    def run(start, train, val, config, setting):
        rates.append((setting.train.lr, setting.finetune.lr))
        return start(0)

    compared(methods=[Method(name="two", run=run, config=None, tried=({"rate": 0.1},))], settings=3, seeds=1)
    assert rates == [(0.05, 0.05), (pytest.approx(0.005), pytest.approx(0.005))]
    ours = METHODS["bise"]
    problem = replace(own_problem("own", make, {}), search={"steps": 60})
    found = _config(ours, problem, {"extract.gamma": 1.0}).extract
    assert (found.steps, found.gamma, found.upsilon) == (60, 1.0, ours.config.extract.upsilon)
    for method in METHODS.values():  # what is listed can be set
        for change in method.tried:
            _config(method, problem, change)


def test_val_drawn_like_train():
    """Train has its cells 80 : 10 : 5 : 5, val 100 each: 100, 12 or 13, 6 and 6 are the most that keep the shares."""
    y = torch.tensor([0] * 90 + [1] * 10)
    b = torch.tensor([0] * 80 + [1] * 10 + [0] * 5 + [1] * 5)
    train = labels(Labelled(torch.zeros(100, 1), y=y, b=b))
    even = torch.arange(4).repeat_interleave(100)
    val = Labelled(torch.arange(400.0).unsqueeze(1), y=even // 2, b=even % 2)
    drawn = labels(like_train(val, train, seed=0))
    assert drawn.counts.tolist() in ([100, 12, 6, 7], [100, 12, 6, 6], [100, 12, 7, 6])
    assert len(drawn) == 125
    assert torch.equal(labels(like_train(val, train, seed=0)).index, drawn.index)
    # each kept sample is itself, with its own label
    for x, target, bias in (like_train(val, train, seed=1)[i] for i in range(125)):
        assert int(x) // 100 == 2 * target + bias


def test_biased_val_selects_by_another_val():
    found = compared(methods=["erm"], select="biased-val", seeds=1)
    assert found.summary["bench"]["select"] == "biased-val"
    assert "figures" in found.rows[1]


def test_changed_weights_are_counted():
    one, other = toy_model(), toy_model()
    assert changed(one, other) == 0
    with torch.no_grad():
        one[0].weight[0, :3] += 1
    assert changed(one, other) == 3
    assert changed(nn.Linear(8, 2), other) == 18


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"methods": "erm,magic"}, "method 'magic' is unknown"),
        ({"select": "test"}, "select='test' is unknown; use unbiased-val, biased-val, last"),
        ({"against": "magic"}, "against='magic' is not among the methods"),
        ({"seeds": 0}, "name a method and give 1 or more seeds"),
        ({"settings": 0}, "settings=0 tries nothing"),
        ({"methods": ["erm", "erm"]}, "two methods are called 'erm'"),
        ({"methods": [3]}, "method 3 is no name, no Method and no function"),
    ],
)
def test_bad_input(words, sentence):
    with pytest.raises(BadInput, match=sentence):
        compared(**words)


def test_names_and_numbers():
    assert [one.name for one in methods_named(" rwg ,erm,rwg")] == ["rwg", "erm"]
    assert [one.name for one in methods_named("all")] == list(METHODS)
    assert seeds_of("3") == [0, 1, 2]
    assert seeds_of("4,1") == [4, 1]
    for bad in ("x", "0", "-1", "1,1", ""):
        with pytest.raises(BadInput):
            seeds_of(bad)
    demo, mnist = problems_named("demo,biased-mnist:0.997", epochs=10)
    assert (demo.train.epochs, mnist.train.epochs, mnist.train.milestones) == (10, 10, (8, 9))
    assert shortened(TrainConfig(epochs=80, schedule="steps", milestones=(40, 60)), 8).milestones == (4, 6)
    with pytest.raises(BadInput, match="data set 'mars' is unknown"):
        problems_named("mars")
    with pytest.raises(BadInput, match="should return a torch module"):
        own_problem("own", lambda: 3, {}).make(0)


NETS = """
from conftest import toy, toy_model

def make():
    return toy_model()

def load(split):
    return toy(300, rho=0.9) if split == "train" else toy(150, rho=1 / 3, seed=1 + (split == "test"))
"""
WORDS = [
    "--model",
    "nets_bench:make",
    "--data",
    "nets_bench:load",
    "--methods",
    "erm,jtt,dfr",
    "--seeds",
    "1",
    "--epochs",
]


@pytest.fixture
def nets(tmp_path, monkeypatch):
    (tmp_path / "nets_bench.py").write_text(NETS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("nets_bench", None)


def run(*words):
    return CliRunner().invoke(app, ["bench", *map(str, words)], env={"COLUMNS": "160"})


def test_the_command_its_page_and_a_second_call(nets):
    done = run(*WORDS, 2, "--out", "b", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "from erm" in done.stdout
    summary = json.loads((nets / "b/summary.json").read_text(encoding="utf-8"))
    assert [one["method"] for one in summary["rows"]] == ["vanilla", "erm", "jtt", "dfr"]
    page = (nets / "b/report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert all(f">{name}</bdi>" in page for name in ("vanilla", "erm", "jtt", "dfr"))
    assert not (nets / "b/checkpoints").exists()
    again = run(*WORDS, 2, "--out", "b", "--device", "cpu", "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["rows"] == summary["rows"]
    other = run(*WORDS, 3, "--out", "b", "--device", "cpu")
    assert other.exit_code == 2
    assert "holds a run of another configuration" in other.stderr
    (nets / "b/report.html").unlink()
    assert CliRunner().invoke(app, ["report", "b"]).exit_code == 0
    assert (nets / "b/report.html").read_text(encoding="utf-8") == page


def test_the_commands_refusals(nets):
    assert "--model is missing" in run().stderr
    assert "leave --model out" in run("--datasets", "demo", "--model", "x:y").stderr
    assert "no data set" in run("--data", "gone", "--model", "nets_bench:make").stderr
    listed = run("--list")
    assert listed.exit_code == 0
    assert all(name in listed.stdout for name in METHODS)


@pytest.mark.long
def test_a_killed_comparison_goes_on(nets):
    """Killed with -9 behind the first rows, it ends with the rows of one that ran through."""
    command = [sys.executable, "-m", "bise", "bench", *WORDS, "30", "--device", "cpu", "--checkpoint-every", "0"]
    env = {"PYTHONPATH": f"{nets}:{':'.join(sys.path)}", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    process = subprocess.Popen([*command, "--out", "killed"], env=env, cwd=nets, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not (nets / "killed/checkpoints/bench/nets_bench_load-0-erm.json").exists() and process.poll() is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -9
    begun = run(*WORDS, 30, "--device", "cpu", "--checkpoint-every", 0, "--out", "killed")
    assert "begun and not finished" in begun.stderr
    resumed = run(*WORDS, 30, "--device", "cpu", "--checkpoint-every", 0, "--out", "killed", "--resume")
    assert resumed.exit_code == 0, resumed.output
    whole = run(*WORDS, 30, "--device", "cpu", "--checkpoint-every", 0, "--out", "whole")
    assert whole.exit_code == 0, whole.output
    one, other = (json.loads((nets / name / "summary.json").read_text())["rows"] for name in ("killed", "whole"))
    assert [row.get("figures") for row in one] == [row.get("figures") for row in other]
