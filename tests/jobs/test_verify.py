"""`bise verify`: whole runs keep every promise, and each kind of damage breaks exactly the line that speaks of it."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import shutil
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import bise
from bise.base.files import SCHEMA
from bise.cli.app import app
from conftest import copy_run, learned_by_heart, toy, toy_model, trained

QUICK = ["--steps", "5", "--upsilon", "1", "--batch-size", "60"]
NAMES = ["files", "configuration", "log", "hashes", "units", "masks", "unchanged", "weights", "data", "shrunk"]


def make():
    return toy_model()


def splits(split):
    return {"train": toy(seed=0), "val": toy(rho=1 / 3, seed=1), "test": toy(rho=1 / 3, seed=2)}[split]


by_heart = functools.cache(learned_by_heart)


def sure():
    return copy.deepcopy(by_heart()[0])


def told(split):
    _, train, val = by_heart()
    return {"train": train, "val": val, "test": val}[split]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def states(folder, *more):
    """({promise: state}, exit code) by --json."""
    result = run("verify", folder, "--json", *more)
    found = json.loads(result.stdout)
    assert found["schema"] == SCHEMA
    assert found["holds"] == (result.exit_code == 0)
    return {promise["name"]: promise["state"] for promise in found["promises"]}, result.exit_code


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Extracted, shrunk and finetuned by the commands themselves."""
    base = tmp_path_factory.mktemp("verify")
    save_file(trained(make(), splits("train")).state_dict(), base / "net.safetensors")
    own = ["--model", "test_verify:make", "--weights", base / "net.safetensors", "--data", "test_verify:splits"]
    for command in (
        ["extract", *own, "--out", base / "run", *QUICK],
        ["shrink", base / "run"],
        ["finetune", base / "run", "--epochs", "2"],
    ):
        result = run(*command)
        assert result.exit_code == 0, result.output
    return base / "run"


@pytest.fixture
def copied(whole, tmp_path):
    return copy_run(whole, tmp_path / "run")


def test_a_whole_run_keeps_every_promise(whole):
    assert states(whole) == (dict.fromkeys(NAMES, "holds"), 0)
    result = run("verify", whole)
    assert result.exit_code == 0
    assert result.stdout.count("✓ holds") == len(NAMES)


def test_runs_of_two_keep_them_too(tmp_path):
    """Margins that gain little on val were tried and, by the seed, taken or not; the log has both runs."""
    save_file(sure().state_dict(), tmp_path / "net.safetensors")
    own = ["--model", "test_verify:sure", "--weights", tmp_path / "net.safetensors", "--data", "test_verify:told"]
    kept = set()
    for seed in range(4):
        folder = tmp_path / str(seed)
        settings = [*QUICK, "--gamma", "0", "--seed", seed, "--no-baseline", "--tensorboard"]
        result = run("extract", *own, "--out", folder, *settings)
        assert result.exit_code == 0, result.output
        summary = json.loads((folder / "summary.json").read_text())
        which, targets = summary["selection"]["run"], summary["targets"]
        kept.add(which)
        assert targets["margin"] == {1: 0.4, 2: 0.0}[which]
        assert targets["other"]["margin"] == {1: 0.0, 2: 0.4}[which]
        assert targets["other"]["value"] <= summary["selection"]["value"]
        told_of = "were tried first, and were no better on val" if which == 2 else "classified with a margin (0.4)"
        assert told_of in " ".join(result.output.split())
        assert states(folder)[0]["log"] == "holds"
        other = {1: "one with margin 0 and smoothing 0 had", 2: "one with margin 0.4 and smoothing 0.2 had"}[which]
        assert other in (folder / "report.html").read_text()
        assert {path.name for path in (folder / "events").iterdir()} == {"extract", "extract-2"}
    assert kept == {1, 2}


def edit(path, *keys, value):
    """Change one value of a JSON file."""
    content = json.loads(path.read_text())
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value(inner[keys[-1]]) if callable(value) else value
    path.write_text(json.dumps(content))


def retensor(folder, change, *, noted=True):
    """Change the tensors of a saved subnetwork, and note the new file's hash as a faulty writer would."""
    path = folder / "subnetwork.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    if noted:
        edit(folder / "subnetwork.json", "sha256", value=hashlib.sha256(path.read_bytes()).hexdigest())


def swap_mask(tensors):
    """Open a closed unit and close an open one of the same site, so that no count changes."""
    for name, mask in tensors.items():
        if name.startswith("masks.") and mask.any() and not mask.all():
            kept, closed = mask.nonzero()[0, 0], (~mask).nonzero()[0, 0]
            mask[kept], mask[closed] = False, True
            return
    raise AssertionError("no site has both kinds")


def longer(tensors):
    name = next(name for name in tensors if name.startswith("scores."))
    tensors[name] = torch.cat([tensors[name], torch.ones(1)])


def move(name):
    def change(tensors):
        tensors[name] += 0.25 * (1 if tensors[name].dtype.is_floating_point else 0)

    return change


def drop_epoch(run):
    path = run / "metrics.jsonl"
    rows = path.read_text().splitlines()
    epoch = json.loads((run / "summary.json").read_text())["selection"]["epoch"]
    kept = [row for row in rows if (json.loads(row)["job"], json.loads(row)["epoch"]) != ("extract", epoch)]
    path.write_text("\n".join(kept) + "\n")


def half_a_row(run):
    path = run / "metrics.jsonl"
    path.write_text(path.read_text() + '{"schema": 1, "jo')


SHRUNK = ("subnetwork", "shrunk")


def control_for_finetuned(run):
    shutil.rmtree(run / "finetuned")
    shutil.copytree(run / "dense_finetuned", run / "finetuned")


DAMAGE = {
    "summary missing": (lambda r: (r / "summary.json").unlink(), "files"),
    "summary cut short": (lambda r: (r / "summary.json").write_text("{"), "files"),
    "newer schema": (lambda r: edit(r / "samples.json", "schema", value=99), "files"),
    "no tensors": (lambda r: (r / "finetuned/subnetwork.safetensors").unlink(), "files"),
    "half a row": (half_a_row, "files"),
    "another gamma": (lambda r: edit(r / "config.json", "extract", "gamma", value=3.5), "configuration"),
    "another rate": (lambda r: edit(r / "summary.json", "finetune", "lr", value=0.5), "configuration"),
    "finetune.json cut short": (lambda r: (r / "finetune.json").write_text("{"), "files"),
    "another seed": (lambda r: edit(r / "finetune.json", "finetune", "seed", value=8), "configuration"),
    "epoch not in the log": (drop_epoch, "log"),
    "another value": (lambda r: edit(r / "summary.json", "selection", "value", value=lambda v: v + 0.01), "log"),
    "a later epoch": (lambda r: edit(r / "summary.json", "selection", "epoch", value=10_000), "log"),
    "a score moved": (lambda r: retensor(r / "subnetwork", move("last.scores.2"), noted=False), "hashes"),
    "units edited": (lambda r: edit(r / "summary.json", "subnetwork", "units", "open", value=1), "units"),
    "scores too long": (lambda r: retensor(r / "finetuned", longer), "units"),
    "a mask against its score": (lambda r: retensor(r / "subnetwork", swap_mask), "masks"),
    "finetuning moved the mask": (lambda r: retensor(r / "finetuned", swap_mask), "masks"),
    "hash after": (lambda r: edit(r / "summary.json", "weights", "after", value="0" * 64), "unchanged"),
    "finetuned weights": (lambda r: retensor(r / "finetuned", move("own.0.weight")), "weights"),
    "noted difference": (lambda r: edit(r / "summary.json", *SHRUNK, "difference_float64", value=1e-3), "shrunk"),
    "noted dense parameters": (lambda r: edit(r / "summary.json", *SHRUNK, "parameters", "dense", value=7), "shrunk"),
    "noted work": (lambda r: edit(r / "summary.json", *SHRUNK, "macs", "shrunk", value=7), "shrunk"),
    "the control in the finetuned one's place": (control_for_finetuned, "units"),
    "finetune.json missing": (lambda r: (r / "finetune.json").unlink(), "files"),
    "another rho": (lambda r: edit(r / "summary.json", "data", "rho", value=[0.1]), "data"),
    "rho again": (lambda r: edit(r / "summary.json", "rho", value=[0.1]), "data"),
    "another alignment": (lambda r: edit(r / "summary.json", "data", "aligned", value=[[2, 1, 0]]), "data"),
    "more samples": (lambda r: edit(r / "summary.json", "vanilla", "n", value=lambda n: n + 1), "data"),
    "noted parameters": (lambda r: edit(r / "summary.json", *SHRUNK, "parameters", "shrunk", value=7), "shrunk"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_breaks_its_own_line(copied, damage):
    harm, line = DAMAGE[damage]
    harm(copied)
    found, code = states(copied)
    assert code == 1
    assert [name for name, state in found.items() if state == "broken"] == [line]


def test_other_weights_break_their_line(copied, whole):
    other = toy_model(seed=5)
    save_file(other.state_dict(), copied.parent / "other.safetensors")
    more = ["--model", "test_verify:make", "--weights", copied.parent / "other.safetensors"]
    found, code = states(copied, *more)
    assert (found["weights"], found["shrunk"], code) == ("broken", "unchecked", 1)
    right = ["--model", "test_verify:make", "--weights", whole.parent / "net.safetensors"]
    assert states(copied, *right) == (dict.fromkeys(NAMES, "holds"), 0)


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_other_data_break_their_line(copied, monkeypatch, split):
    own = splits

    def other(name):
        """One label of the split is another."""
        data = own(name)
        if name == split:
            data.b[7] = (data.b[7] + 1) % 3
        return data

    monkeypatch.setattr(sys.modules[__name__], "splits", other)
    assert states(copied) == (dict.fromkeys(NAMES, "holds") | {"data": "broken"}, 1)
    assert f"labels of {split} are not" in " ".join(run("verify", copied).stdout.replace("│", " ").split())


def test_where_there_are_no_data_any_more(copied, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "splits", lambda name: None)
    expected = dict.fromkeys(NAMES, "holds") | {"data": "broken", "shrunk": "unchecked"}
    assert states(copied) == (expected, 1)


def test_a_run_from_before_hashes_of_data(copied):
    for name in ("config.json", "finetune.json"):
        content = json.loads((copied / name).read_text())
        content.pop("sha256")
        (copied / name).write_text(json.dumps(content))
    assert states(copied) == (dict.fromkeys(NAMES, "holds") | {"data": "unchecked"}, 0)


def test_without_the_model_the_rest_is_said_to_be_unchecked(copied):
    edit(copied / "config.json", "source", "model", value="no_such_module:make")
    found, code = states(copied)
    assert code == 0
    assert {name for name, state in found.items() if state == "unchecked"} == {"weights", "data", "shrunk"}
    assert "○ unchecked" in run("verify", copied).stdout


def test_a_mask_cut_elsewhere_is_held_against_its_own_threshold(copied, whole):
    model = make()
    model.load_state_dict(load_file(whole.parent / "net.safetensors"))
    sub = bise.load(copied / "subnetwork", model)
    middle = torch.cat(list(sub.scores.values())).double().median().sigmoid().item()
    sub.at(middle).save(copied / "subnetwork")
    shutil.rmtree(copied / "finetuned")
    edit(copied / "summary.json", "subnetwork", "shrunk", value={})
    assert states(copied)[0]["masks"] == "holds"
    edit(copied / "subnetwork/subnetwork.json", "record", "zeta", value=0.999)
    assert states(copied)[0]["masks"] == "broken"


def test_a_run_folder_brings_no_code_and_no_arguments(copied, monkeypatch):
    (copied / "evil.py").write_text("raise SystemExit('ran')")
    monkeypatch.chdir(copied)
    edit(copied / "config.json", "source", "model", value="evil:make")
    found, _ = states(copied)
    assert found["weights"] == "unchecked"
    assert "evil" not in sys.modules
    (copied / "evil.py").unlink()
    touched = copied / "touched"
    edit(
        copied / "config.json",
        "source",
        value=lambda s: s | {"model": "os:mkdir", "model_arguments": {"path": str(touched)}},
    )
    assert states(copied)[0]["weights"] == "unchecked"
    result = run("finetune", copied)
    assert result.exit_code == 2
    assert "which only bise's own keys take" in result.stderr
    assert not touched.exists()


def train_run(folder):
    small = ["--limit", "300", "--epochs", "1", "--device", "cpu"]
    result = run("train", "multi-color-mnist", "--rho", "0.7,0.6", *small, "--out", folder)
    assert result.exit_code == 0, result.output
    return folder


@pytest.mark.long
def test_a_run_in_which_no_mask_was_as_good_as_the_model(tmp_path):
    save_file(trained(make(), splits("train")).state_dict(), tmp_path / "net.safetensors")
    own = ["--model", "test_verify:make", "--weights", tmp_path / "net.safetensors", "--data", "test_verify:splits"]
    result = run("extract", *own, "--out", tmp_path / "run", *QUICK, "--gamma", "1e6")
    assert result.exit_code == 0, result.output
    assert "selection: none, the model itself was the best on val" in result.output
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["selection"]["epoch"] == 0
    assert "so nothing is closed" in (tmp_path / "run" / "report.html").read_text()
    found, _ = states(tmp_path / "run")
    assert found["log"] == "holds"
    result = run("extract", *own, "--out", tmp_path / "alone", *QUICK, "--gamma", "1e6", "--no-baseline")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "alone" / "summary.json").read_text())["selection"]["epoch"] > 0
    for path in (tmp_path / "run" / "summary.json", tmp_path / "run" / "subnetwork" / "subnetwork.json"):
        keys = ("selection", "value") if path.name == "summary.json" else ("record", "selection", "value")
        edit(path, *keys, value=0.1)
    assert states(tmp_path / "run")[0]["log"] == "broken"


@pytest.mark.data
def test_a_run_of_train(tmp_path):
    folder = train_run(tmp_path / "train")
    names = ["files", "configuration", "log", "weights", "data"]
    assert states(folder) == (dict.fromkeys(names, "holds"), 0)
    tensors = load_file(folder / "model.safetensors")
    next(iter(tensors.values())).add_(1)
    save_file(tensors, folder / "model.safetensors")
    assert states(folder) == (dict.fromkeys(names, "holds") | {"weights": "broken"}, 1)


@pytest.mark.data
@pytest.mark.long
def test_a_run_of_extract_from_one_of_train(tmp_path):
    first, out = train_run(tmp_path / "train"), tmp_path / "extract"
    result = run("extract", "--from", first, "--out", out, "--steps", "1", "--upsilon", "1")
    assert result.exit_code == 0, result.output
    assert states(out) == (dict.fromkeys(NAMES, "holds"), 0)


@pytest.mark.long
def test_a_run_of_the_demo_is_like_any_other(tmp_path):
    folder = tmp_path / "demo"
    assert run("demo", "--out", folder).exit_code == 0
    promises = (*NAMES, "refitted")
    assert states(folder) == (dict.fromkeys(promises, "holds"), 0)
    assert (folder / "dense_finetuned/subnetwork.safetensors").is_file()
    assert "(finetune.epochs is 8 there and 20 here); delete" in run("finetune", folder).stderr
    (folder / "finetune.json").unlink()
    assert run("finetune", folder, "--epochs", "1").exit_code == 0
    assert states(folder) == (dict.fromkeys(promises, "holds"), 0)


def rewrite(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def as_older_demo(folder):
    """A run as a demo of an earlier version left it: its finetuning in config.json, and no dense control."""
    tuned = json.loads((folder / "finetune.json").read_text())["finetune"]
    (folder / "finetune.json").unlink()
    shutil.rmtree(folder / "dense_finetuned")
    rewrite(folder / "config.json", lambda config: config.update(finetune=tuned))
    rewrite(folder / "summary.json", lambda summary: (summary.pop("finetune"), summary["data"].update(test=600)))
    log, earlier = folder / "metrics.jsonl", {"finetuned": "finetune", "dense_finetuned": "dense"}
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    rows = [{**row, "job": earlier.get(row["job"], row["job"])} for row in rows]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_demo_of_an_earlier_version_is_still_read(copied):
    as_older_demo(copied)
    assert states(copied) == (dict.fromkeys(NAMES, "holds"), 0)
    assert run("report", copied).exit_code == 0
    page = (copied / "report.html").read_text()
    assert "Finetuning the subnetwork: loss" in page
    assert "Finetuning the dense control: loss" in page
    for command in (["finetune", copied], ["audit", copied, "--of", "dense_finetuned"]):
        refused = run(*command)
        assert refused.exit_code == 2
        assert f"bise extract {copied} --out FOLDER" in refused.stderr
    rewrite(copied / "config.json", lambda config: config["finetune"].update(epochs=3))
    assert states(copied)[0]["configuration"] == "broken"
    rewrite(copied / "config.json", lambda config: config["finetune"].update(epochs=2))
    kept = [line for line in (copied / "metrics.jsonl").read_text().splitlines() if '"finetune"' not in line]
    (copied / "metrics.jsonl").write_text("\n".join(kept) + "\n")
    assert states(copied)[0]["log"] == "broken"
