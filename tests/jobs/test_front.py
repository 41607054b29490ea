"""`bise front`: one run under several budgets, in its summary, on its page and on disk."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import bise
from bise.cli.app import app
from bise.network.size import size
from conftest import toy, toy_model, trained


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


def extracted(base, data):
    save_file(trained(toy_model(), splits("train")).state_dict(), base / "net.safetensors")
    own = ["--model", "conftest:toy_model", "--weights", base / "net.safetensors", "--data", f"test_front:{data}"]
    good("extract", *own, "--out", base / "run", "--steps", "5", "--upsilon", "1", "--batch-size", "60")
    return base / "run"


@pytest.mark.long
def test_a_front_over_budgets(tmp_path, monkeypatch):
    folder = extracted(tmp_path, "splits")
    line = sentence(run("front", folder, "--budget", "0.4", "--budget", "0.001"))
    assert "max_macs=0.001 can't be reached" in line
    assert "give at least 0.028" in line
    assert not (folder / "front.json").exists()
    assert not (folder / "checkpoints").exists()
    with monkeypatch.context() as patch:  # stopped after its first point
        patch.setattr("bise.jobs.front.refit", stop)
        assert run("front", folder, "--budget", "0.4", "--budget", "0.2").exit_code == 130
    assert "go on with --resume" in sentence(run("front", folder, "--budget", "0.4", "--budget", "0.2"))
    said = good("front", folder, "--budget", "0.4", "--budget", "0.2", "--resume").stdout
    assert "Budgets of macs: accuracy on test, %" in said
    found = json.loads((folder / "summary.json").read_text())["front"]
    assert [point["budget"] for point in found["points"]] == [0.2, 0.4]
    model = toy_model()
    model.load_state_dict(load_file(tmp_path / "net.safetensors"))
    x = splits("train").tensors[0][:4]
    for point in found["points"]:
        name = f"macs-{point['budget']:g}"
        sub, fitted = (bise.load(folder / "front" / part, model.eval()) for part in (name, f"{name}-refitted"))
        small = size(sub.shrink(x), x[:1])
        assert small.macs == point["macs"]["shrunk"] <= point["budget"] * point["macs"]["dense"]
        assert point["shares"]["macs"] == small.macs / point["macs"]["dense"]
        again = bise.audit(fitted, splits("test"), aligned=bise.data.labels(splits("train")), probe=False)
        assert point["networks"]["refitted"]["unbiased"] == pytest.approx(again.unbiased)
        assert all(torch.equal(mask, fitted.masks[site]) for site, mask in sub.masks.items())
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "What a smaller network costs" in page
    assert f"bise front {folder} --of macs --budget 0.2 --budget 0.4" in page
    promises = json.loads(run("verify", folder, "--json").stdout)["promises"]
    assert {promise["state"] for promise in promises} == {"holds"}
    assert "holds this run, finished" in good("front", folder, "--budget", "0.4", "--budget", "0.2").stderr
    assert "front.budgets" in sentence(run("front", folder, "--budget", "0.3"))


def stop(*_, **__):
    raise KeyboardInterrupt


def test_a_front_needs_something_to_compare_on(tmp_path):
    folder = extracted(tmp_path, "untested")
    assert "a front compares networks on test or on val, and --data has neither" in sentence(run("front", folder))
    assert "of='weight' is unknown; use 'macs' or 'parameters' or 'latency'" in sentence(
        run("front", folder, "--of", "weight")
    )
