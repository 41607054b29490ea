"""`bise refit`: from a run to a refitted network that is shrunk, audited, verified and reported like the others."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import bise
from bise.cli.app import app
from conftest import copy_run, toy, toy_model, trained


def make():
    return toy_model()


def splits(split):
    return {"train": toy(seed=0), "val": toy(rho=1 / 3, seed=1), "test": toy(rho=1 / 3, seed=2)}[split]


def untested(split):
    return splits(split) if split == "train" else None


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def good(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def sentence(result):
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    return line


@pytest.fixture(scope="module")
def extracted(tmp_path_factory):
    base = tmp_path_factory.mktemp("refit")
    save_file(trained(make(), splits("train")).state_dict(), base / "net.safetensors")
    own = [
        "--model",
        "test_refit_command:make",
        "--weights",
        base / "net.safetensors",
        "--data",
        "test_refit_command:splits",
    ]
    good("extract", *own, "--out", base / "run", "--steps", "5", "--upsilon", "1", "--batch-size", "60")
    return base / "run"


@pytest.fixture
def folder(extracted, tmp_path) -> Path:
    copy_run(extracted, tmp_path / "run")
    return tmp_path / "run"


def promises(folder):
    found = json.loads(run("verify", folder, "--json").stdout)["promises"]
    return {promise["name"]: promise["state"] for promise in found}


def test_extract_refit_shrink_verify_report(folder, tmp_path):
    said = good("refit", folder, "--on", "val").stdout
    assert "refit: 5 fitted anew on 600 samples of val, L2" in said
    assert "the model's weights: unchanged" in said
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["refit"] == json.loads((folder / "refit.json").read_text())["refit"]
    assert summary["refitted"]["unbiased"] > summary["subnetwork"]["unbiased"]
    assert summary["refitted"]["units"] == summary["subnetwork"]["units"]
    sub, saved = (bise.load(folder / name, model_of(folder)) for name in ("subnetwork", "refitted"))
    expected = bise.refit(sub, splits("train"), val=splits("val"), on="val")
    assert torch.equal(saved.network[5].weight, expected.network[5].weight)
    audited = json.loads(good("audit", folder, "--of", "refitted", "--json").stdout)
    assert audited["unbiased"] == pytest.approx(summary["refitted"]["unbiased"])
    good("finetune", folder, "--epochs", "1")
    good("shrink", folder, "--of", "refitted", "--out", tmp_path / "small.pt2")
    summary = json.loads((folder / "summary.json").read_text())
    assert {"refitted", "finetuned"} <= summary.keys()
    figures = summary["refitted"]["shrunk"]
    assert figures["difference_float64"] <= 1e-10
    assert figures["parameters"]["shrunk"] < figures["parameters"]["dense"]
    found = promises(folder)
    assert set(found.values()) == {"holds"}
    assert "refitted" in found
    good("report", folder)
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "The refitted network differs in its last layer alone" in page
    assert f"bise refit {folder} --on val" in page
    assert f"bise shrink {folder} --of refitted --out" in page


def test_extract_ends_with_a_refit_where_that_is_asked_for(extracted, folder, tmp_path):
    source = json.loads((extracted / "config.json").read_text())["source"]
    own = ["--model", source["model"], "--weights", source["weights"], "--data", source["data"]]
    out = tmp_path / "both"
    how = ["--steps", "5", "--upsilon", "1", "--batch-size", "60"]
    said = good("extract", *own, *how, "--max-macs", "0.4", "--refit", "--out", out).stdout
    assert "refit: 5 fitted anew on 600 samples of train, L2" in said
    summary = json.loads((out / "summary.json").read_text())
    assert summary["subnetwork"]["shrunk"]["macs"]["shrunk"] <= 0.4 * summary["subnetwork"]["shrunk"]["macs"]["dense"]
    sub, refitted = (bise.load(out / name, model_of(out)) for name in ("subnetwork", "refitted"))
    assert not sub.owned
    expected = bise.refit(sub, splits("train"), val=splits("val"), keep_worse=True)
    figures = expected.record["val"]
    worse = figures["after"]["unbiased"] < figures["before"]["unbiased"]
    assert summary["refitted"]["fit"]["refused"] == worse
    assert refitted.owned == (set() if worse else {"5.weight", "5.bias"})
    assert torch.equal(refitted.network[5].weight, (sub if worse else expected).network[5].weight)
    assert set(promises(out).values()) == {"holds"}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "--max-macs 0.4" in page
    assert "--refit --out" in page
    assert "bise refit" not in page
    assert "holds this run, finished" in good("refit", out).stderr


def test_a_last_layer_that_cannot_be_fitted_is_refused_before_the_extraction(tmp_path):
    data = ["--data", "test_refit_command:splits", "--out", tmp_path / "run"]
    line = sentence(run("extract", "--model", "test_refit_command:normed", *data, "--refit", "--bottleneck", "6"))
    assert "6 is a BatchNorm1d, and only a linear layer" in line
    assert not (tmp_path / "run").exists()


def normed():
    return torch.nn.Sequential(*toy_model(), torch.nn.BatchNorm1d(3))


def model_of(folder):
    model = make()
    model.load_state_dict(load_file(json.loads((folder / "config.json").read_text())["source"]["weights"]))
    return model.eval()


def test_a_refit_of_other_settings_is_not_written_over(folder):
    good("refit", folder)
    again = good("refit", folder)
    assert "holds this run, finished" in again.stderr
    line = sentence(run("refit", folder, "--on", "both"))
    assert "refit.on is train there and both here" in line
    assert f"delete {folder / 'refit.json'}" in line


def test_one_that_was_stopped_is_done_again(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("bise.jobs.pipeline.refit", stop)
        assert run("refit", folder).exit_code == 130
    assert "run refit again with --resume first" in sentence(run("verify", folder))
    assert "go on with --resume" in sentence(run("refit", folder))
    good("refit", folder, "--resume")
    assert set(promises(folder).values()) == {"holds"}
    assert not (folder / "checkpoints").exists()


def stop(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--on", "test"], "on='test' is unknown"),
        (["--l2", "-1"], "l2=-1.0 must be a number greater than 0"),
        (["--bottleneck", "3"], "3 doesn't give the logits by itself"),
    ],
)
def test_what_is_refused_leaves_the_run_as_it_was(folder, arguments, expected):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert expected in sentence(run("refit", folder, *arguments))
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {path for path in after if path.name != ".lock"} == {path for path in before if path.name != ".lock"}
    assert all(after[path] == before[path] for path in before)


def test_a_run_without_val_and_test(tmp_path):
    save_file(make().state_dict(), tmp_path / "net.safetensors")
    own = [
        "--model",
        "test_refit_command:make",
        "--weights",
        tmp_path / "net.safetensors",
        "--data",
        "test_refit_command:untested",
    ]
    out = tmp_path / "run"
    good("extract", *own, "--out", out, "--steps", "5", "--upsilon", "1", "--batch-size", "60")
    said = good("refit", out).stdout
    assert "by 5 folds of train; there is no val to judge it by" in said
    assert set(promises(out).values()) == {"holds"}
    line = sentence(run("refit", out, "--on", "val"))
    assert "there is none" in line or "another configuration" in line


def rewrite(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def in_summary(change):
    return lambda run: rewrite(run / "summary.json", change)


def in_record(change):
    return lambda run: rewrite(run / "refitted/subnetwork.json", lambda content: change(content["record"]))


def another_rest(run):
    """In both files, so that only the model itself speaks against it."""
    other = {"before": "0" * 64, "after": "0" * 64}
    in_record(lambda record: record["rest"].update(other))(run)
    in_summary(lambda summary: summary["refitted"]["fit"]["rest"].update(other))(run)


def another_layer(run):
    """With the hash that goes with it, as somebody would who wants it unseen."""
    path = run / "refitted/subnetwork.safetensors"
    tensors = load_file(path)
    tensors["own.5.weight"] += 1
    save_file(tensors, path)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    rewrite(run / "refitted/subnetwork.json", lambda content: content.update(sha256=sha256))


DAMAGE = {
    "other settings": (in_summary(lambda s: s["refit"].update(on="both")), "configuration"),
    "another figure": (in_summary(lambda s: s["refitted"]["fit"]["l2"].update(chosen=3)), "refitted"),
    "refused, and owns": (in_record(lambda record: record.update(refused=True)), "refitted"),
    "a rest that changed": (in_record(lambda record: record["rest"].update(after="0" * 64)), "refitted"),
    "another model's rest": (another_rest, "refitted"),
    "less of its own": (in_record(lambda record: record.update(tensors=["5.weight"])), "refitted"),
    "another last layer": (another_layer, "weights"),
    "no folder": (lambda run: shutil.rmtree(run / "refitted"), "files"),
    "no refit.json": (lambda run: (run / "refit.json").unlink(), "files"),
}


@pytest.fixture(scope="module")
def refitted(extracted, tmp_path_factory):
    base = tmp_path_factory.mktemp("refitted") / "run"
    copy_run(extracted, base)
    good("refit", base, "--on", "val")
    assert (base / "refitted/subnetwork.json").is_file()
    return base


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_breaks_the_promise_that_speaks_of_it(refitted, tmp_path, kind):
    copy_run(refitted, tmp_path / "run")
    change, broken = DAMAGE[kind]
    change(tmp_path / "run")
    assert promises(tmp_path / "run")[broken] == "broken"
