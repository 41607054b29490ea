"""One grammar for commands: a run is an argument, --split names a split, --zeta cuts, values complete, runs compare."""

from __future__ import annotations

import csv
import html
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from typer.main import get_command
from typer.testing import CliRunner

import bise
from bise.base.names import FITS, NETWORKS, STREAMS
from bise.cli.app import app
from bise.cli.train import RECIPES as RECIPE_NAMES
from bise.data import table
from bise.extraction.config import PRESETS
from bise.jobs.recipes import RECIPES
from conftest import toy, toy_model, trained

QUICK = ["--steps", "5", "--upsilon", "1", "--batch-size", "60"]
COLUMNS = ["--target", "kind", "--bias", "colour"]


def make():
    return toy_model()


def splits(split):
    return {"train": toy(seed=0), "val": toy(rho=1 / 3, seed=1), "test": toy(rho=1 / 3, seed=2)}[split]


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def sentence(*arguments):
    (line,) = run(*arguments, code=2).stderr.strip().splitlines()
    return line


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    base = tmp_path_factory.mktemp("grammar")
    save_file(trained(make(), splits("train")).state_dict(), base / "net.safetensors")
    return ["--model", "test_grammar:make", "--weights", base / "net.safetensors", "--data", "test_grammar:splits"]


@pytest.fixture(scope="module")
def found(own, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "a"
    run("extract", *own, "--out", folder, *QUICK)
    return folder


@pytest.fixture
def mine(found, tmp_path):
    shutil.copytree(found, tmp_path / "a")
    bise.jobs.sources.trust_run(tmp_path / "a")
    return tmp_path / "a"


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """The toy problem as a csv with an id and a column of splits, and the same columns for every split."""
    path = tmp_path_factory.mktemp("people") / "people.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["person", *(f"x{i}" for i in range(8)), "kind", "colour", "fold"])
        for part, rho, seed in (("train", 0.9, 0), ("val", 1 / 3, 1), ("test", 1 / 3, 2)):
            for i, (x, y, b) in enumerate(toy(rho=rho, seed=seed, n=120)):
                named = ("ant", "bee", "cat")[y], ("blue", "green", "red")[b]
                writer.writerow([1000 * seed + i, *x.tolist(), *named, part])
    return path


def of_features():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 3))


# data that can't mislead


def test_check_and_extract_stop_at_an_unnamed_column_of_splits_and_run_through_with_its_name(people, tmp_path):
    said = (
        f"bise: {people}: column 'fold' is named like one of splits, and would be read by the model; name it with"
        " --split-column, list it with --features if the model should read it, or leave it out with --ignore"
    )
    assert sentence("data", "check", people, *COLUMNS) == said
    train = table(people, target="kind", bias="colour", split_column="fold", ignore=["person"])
    save_file(trained(of_features(), train).state_dict(), tmp_path / "net.safetensors")
    model = ["--model", "test_grammar:of_features", "--weights", tmp_path / "net.safetensors", "--data", people]
    assert sentence("extract", *model, *COLUMNS, "--out", tmp_path / "run") == said
    assert not (tmp_path / "run").exists()
    named = [*COLUMNS, "--split-column", "fold"]
    checked = run("data", "check", people, *named)
    assert "extraction can work on it" in checked.stdout
    (line,) = checked.stderr.strip().splitlines()
    assert "there is another value in every row of 'person', as ids have, so the model doesn't read it" in line
    assert "list it with --features if it should ('*,person' are all columns and this one), or with --ignore" in line
    quiet = [*named, "--ignore", "person"]
    assert run("data", "check", people, *quiet).stderr == ""
    made = run("extract", *model, *quiet, "--out", tmp_path / "run", *QUICK)
    assert "as ids have" not in made.stderr
    names = [column["name"] for column in json.loads((tmp_path / "run/summary.json").read_text())["data"]["features"]]
    assert names == [f"x{i}" for i in range(8)]
    whole = table(people, target="kind", bias="colour", split_column="fold", features=["*", "person"])
    assert whole.feature_names == (*names, "person")


def test_split_names_a_split_and_the_older_name_of_the_column_is_told_of(people):
    checked = run("data", "check", people, *COLUMNS, "--split", "fold", "--ignore", "person")
    assert checked.stderr == (
        "warning: --split names a split, as in bise audit; for a column write --split-column fold\n"
    )
    assert (
        checked.stdout == run("data", "check", people, *COLUMNS, "--split-column", "fold", "--ignore", "person").stdout
    )
    twice = run("data", "check", people, *COLUMNS, "--split", "fold", "--split-column", "fold", code=2)
    assert "--split and --split-column both name a column" in twice.stderr


def test_val_that_is_train_is_told_of_in_python_as_at_the_command_line():
    train = toy()
    config = bise.ExtractConfig(steps=5, upsilon=1, batch_size=60)
    said = "train and val are the very same data, so what is measured on val says nothing about samples"
    with pytest.warns(bise.BiseWarning, match=said):
        bise.extract(trained(make(), train), train, val=train, config=config)


# runs


def test_a_run_is_an_argument_and_the_older_options_go_on_to_work(found, own, tmp_path):
    audited = run("audit", found, "--json").stdout
    assert run("audit", "--run", found, "--json").stdout == audited
    assert run("audit", found, "--run", found, "--json").stdout == audited
    assert "are two runs, and one is looked at" in sentence("audit", found, "--run", tmp_path)
    for older in ("--from", "--run"):
        for command in ("audit", "extract"):
            assert f"{older} " not in run(command, "--help").stdout
    of_model = json.loads(run("audit", *own, "--json").stdout)
    assert json.loads(run("audit", found, "--of", "vanilla", "--json").stdout) == of_model
    assert json.loads(run("audit", "--from", found, "--json").stdout) == of_model
    run("extract", found, "--out", tmp_path / "one", *QUICK)
    run("extract", "--from", found, "--out", tmp_path / "other", *QUICK)
    scores = [(tmp_path / name / "subnetwork/subnetwork.safetensors").read_bytes() for name in ("one", "other")]
    assert scores[0] == scores[1]


def test_zeta_cuts_where_the_slider_does(mine, tmp_path):
    points = json.loads((mine / "thresholds.json").read_text())["points"]
    point = next(point for point in points if point["zeta"] > 0.5 and not point["closed_sites"])
    zeta = str(point["zeta"])
    shown = run("audit", mine, "--zeta", zeta)
    assert shown.stdout.startswith(f"{mine}, subnetwork at ζ = {float(zeta):g}, on test:")
    cut = json.loads(run("audit", mine, "--zeta", zeta, "--json").stdout)
    assert cut["unbiased"] == pytest.approx(point["unbiased"])
    own_sizes = json.loads((mine / "summary.json").read_text())["subnetwork"]["shrunk"]
    figures = json.loads(run("shrink", mine, "--zeta", zeta, "--out", tmp_path / "cut.pt2", "--json").stdout)
    summary = json.loads((mine / "summary.json").read_text())["subnetwork"]
    assert summary["shrunk"] == own_sizes  # of the run's own mask, as before
    assert summary["shrunk_at"][zeta]["parameters"] == figures["parameters"]
    assert figures["parameters"]["shrunk"] < own_sizes["parameters"]["shrunk"]
    module = torch.export.load(tmp_path / "cut.pt2").module()
    model = make()
    model.load_state_dict(trained(make(), splits("train")).state_dict())
    sub = bise.load(mine / "subnetwork", model).at(point["zeta"])
    x = splits("test").tensors[0][:5]
    torch.testing.assert_close(module(x), sub(x), rtol=1e-4, atol=1e-5)
    tuned = run("finetune", mine, "--epochs", "1", "--zeta", zeta)
    assert tuned.exit_code == 0
    summary = json.loads((mine / "summary.json").read_text())
    assert (summary["finetuned"]["units"]["open"], summary["finetuned"]["zeta"]) == (point["open"], point["zeta"])
    assert f"the finetuned network was cut at ζ = {float(zeta):g}, so its mask, size and speed" in summary["notes"][-1]
    verified = run("verify", mine).stdout
    assert f"finetuned cut at ζ = {float(zeta):g}" in " ".join(verified.replace("│", " ").split())
    assert "zeta=1.5 is no threshold; give a value from 0 to 1" in sentence("audit", mine, "--zeta", "1.5")
    assert "--zeta is about a network with a mask" in sentence("audit", mine, "--of", "vanilla", "--zeta", "0.6")
    assert "--zeta 0.6 is about scores, and dense_finetuned has no gates" in sentence(
        "audit", mine, "--of", "dense_finetuned", "--zeta", "0.6"
    )
    assert "at ζ = 1 nothing is left open of" in run("audit", mine, "--zeta", "1").stderr
    said = "bise: --zeta 1 closes so much that every sample gets the same answer; take a lower one, by the slider of"
    for words in (["shrink", mine], ["export", mine, tmp_path / "cut.onnx"], ["finetune", mine, "--epochs", "1"]):
        assert said in run(*words, "--zeta", "1", code=2).stderr
    assert not (tmp_path / "cut.onnx").exists()


def test_a_mask_that_was_cut_otherwise_is_noticed(mine):
    """verify holds the finetuned mask against the ζ that was noted."""
    run("finetune", mine, "--epochs", "1", "--zeta", "0")
    path = mine / "finetuned/subnetwork.json"
    content = json.loads(path.read_text())
    assert content["record"]["zeta"] == 0
    content["record"]["zeta"] = 0.5
    path.write_text(json.dumps(content))
    assert "✗ broken" in run("verify", mine, code=1).stdout


def test_runs_side_by_side(found, own, tmp_path):
    other = tmp_path / "<b>other</b>"
    run("extract", *own, "--out", other, *QUICK, "--gamma", "1")
    page = tmp_path / "compared.html"
    shown = run("compare", found, other, "--out", page)
    assert "What was set otherwise" in shown.stdout
    content = json.loads(run("compare", found, other, "--json").stdout)
    assert content["settings"] == {"extract gamma": ["0.3", "1.0"]}
    assert content["notes"] == []
    for folder in (found, other):
        summary = json.loads((folder / "summary.json").read_text())
        lines = {line["network"]: line for line in content["networks"] if line["run"] == str(folder)}
        assert set(lines) == {"model", "subnetwork"}
        for network, name in (("model", "vanilla"), ("subnetwork", "subnetwork")):
            assert lines[network]["name"] == name
            assert lines[network]["figures"]["unbiased"] == summary[name]["unbiased"]
            assert lines[network]["figures"]["conflicting"] == summary[name]["conflicting"]["accuracy"]
        sizes = summary["subnetwork"]["shrunk"]["parameters"]
        assert lines["subnetwork"]["parameters"] == sizes["shrunk"]
        assert lines["model"]["parameters"] == sizes["dense"]
    written = page.read_text()
    own = (found / "report.html").read_text()
    for kind in ("conflicting", "aligned"):  # as the run's own page shows them
        row = re.search(rf"\({kind}\)</bdi></th>(.*?)</tr>", own, re.DOTALL).group(1)
        for figure in re.findall(r"[\d.]+\u202f%", row):
            assert f">{figure}<" in written
    for name in ("vanilla", "subnetwork"):
        assert name in shown.stdout
    assert "<b>other</b>" not in written
    assert "&lt;b&gt;other&lt;/b&gt;" in written
    assert "default-src 'none'" in html.unescape(written)
    assert "<script" not in written
    run("compare", other, found, "--out", page)  # its own page is made again
    assert page.read_text() != written
    (tmp_path / "letter.html").write_text("mine")
    assert "is no report of bise and isn't overwritten" in sentence(
        "compare", found, other, "--out", tmp_path / "letter.html"
    )
    assert sentence("compare", found) == "bise: one run alone can't be compared; name two or more"
    assert "holds no config.json" in sentence("compare", found, tmp_path)


def test_runs_that_cannot_be_compared_say_so(mine, found):
    config = json.loads((mine / "config.json").read_text())
    config["sha256"]["test"] = "2:other"
    (mine / "config.json").write_text(json.dumps(config))
    said = run("compare", found, mine).stdout
    assert "mind: these runs were audited on different test data, so their figures can't be held against" in said
    summary = json.loads((mine / "summary.json").read_text())
    summary["vanilla"]["aligned"] = {"accuracy": "many"}
    (mine / "summary.json").write_text(json.dumps(summary))
    assert "holds something else than bise writes" in sentence("compare", found, mine)


def test_a_comparison_says_which_networks_know_nothing(mine, found):
    """As every verdict does that is read apart from the run's own page."""
    assert "knows nothing" not in run("compare", found, mine).stdout
    summary = json.loads((mine / "summary.json").read_text())
    known = summary["vanilla"]["standing"]
    constant = {"state": "constant", "answer": "bee", "mean_of_classes": 1 / 3, "guessing": 1 / 3, "says": "it is."}
    summary["vanilla"]["standing"] = known | constant
    (mine / "summary.json").write_text(json.dumps(summary))
    shown = run("compare", found, mine, "--out", mine.parent / "page.html").stdout
    assert f"mind: in {mine}, the model gives every sample one class, “bee”: it is right on 33.3 %" in shown
    assert "so its fairness figures say nothing" in shown
    assert "gives every sample one class, “bee”" in (mine.parent / "page.html").read_text()


def test_a_report_in_python(mine, tmp_path):
    (mine / "report.html").unlink()
    assert bise.report(mine) == mine / "report.html"
    whole = (mine / "report.html").read_text()
    assert bise.report(str(mine), tmp_path / "page.html") == tmp_path / "page.html"
    assert (tmp_path / "page.html").read_text() == whole
    with pytest.raises(bise.BadInput, match="holds no config"):
        bise.report(tmp_path)


# completion


def completed(*words):
    """What bash is offered behind these words, the last of them begun."""
    environment = {**os.environ, "_BISE_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["bise", *words])}
    environment |= {"COMP_CWORD": str(len(words)), "PYTHONPATH": os.pathsep.join(sys.path)}
    program = "import sys; from bise.cli.app import app; app(prog_name='bise')"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    return done.stdout.split()


def test_values_are_completed_by_the_shell():
    assert completed("extract", "--preset", "p") == ["paper"]
    assert completed("audit", "runs/a", "--of", "") == ["vanilla", *NETWORKS]


VALUES = {
    "device": ("auto", "cpu", "cuda"),
    "preset": PRESETS,
    "fit": FITS,
    "streams": STREAMS,
    "mi": ("auto", "conflicting", "batch", "none"),
    "precision": ("auto", "fp32", "bf16"),
}


def test_every_option_with_few_values_completes_them():
    """Looked at where the shell would ask: in each command's own parameters."""
    seen = set()
    for name, command in get_command(app).commands.items():
        for one in command.params:
            if one.name in VALUES:
                context = command.make_context(name, [], resilient_parsing=True)
                offered = [item.value for item in one.shell_complete(context, "")]
                assert offered == list(VALUES[one.name]), (name, one.name)
                seen.add(one.name)
    assert seen == set(VALUES)


def test_recipes_are_offered_by_their_names():
    assert list(RECIPE_NAMES) == list(RECIPES)


# what a run says of itself


def test_progress_of_a_run_that_is_made_once_counts_none():
    """Of one that may be made twice, tests/extraction has the words."""
    told = []
    config = bise.ExtractConfig(steps=5, upsilon=1, batch_size=60, margin=0.0, smoothing=0.0)
    bise.extract(toy_model(), toy(), val=toy(seed=1), config=config, progress=lambda label, *_: told.append(label))
    assert {label for label in told if label.startswith("extracting")} == {"extracting"}


def test_a_schedule_that_is_too_short_is_named_as_the_cause():
    train, val = toy(), toy(rho=1 / 3, seed=1)
    short = bise.ExtractConfig(steps=1, upsilon=1, kappa=0.01)
    said = "the schedule is probably too short for masks to be found: 2 steps in all, of which the default has 1,000; "
    said += "give more by upsilon=… (now 1, usually 5) or steps=… (now 1, usually 20)"
    with pytest.warns(bise.BiseWarning, match="no mask was as good on val as the model itself"):
        found = bise.extract(trained(make(), train), train, val=val, config=short)
    assert found.record["notes"][-1].endswith(f"; {said}")
    still = replace(short, lr=1e-60, weight_decay=0.0, momentum=0.0)  # the scores stay at 0, which is open
    with pytest.warns(bise.BiseWarning, match="no unit was closed; the schedule is probably too short"):
        found = bise.extract(trained(make(), train), train, config=still)
    assert found.record["notes"][-1] == f"no unit was closed; {said}"
    assert found.units[0] == found.units[1]
