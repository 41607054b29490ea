"""The command line: every kind of bad input ends in one sentence and exit code 2, and good input in a run folder."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from html import unescape

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import bise
from bad_data import BAD
from bise.base.files import SCHEMA
from bise.cli.app import app
from bise.data import Labelled
from conftest import Stream, TwoHeads, toy, toy_model, trained

QUICK = ["--steps", "5", "--upsilon", "1", "--batch-size", "60"]


def make():
    return toy_model()


def trained_by_itself():
    return trained(make(), toy(seed=0))


def splits(split):
    return {"train": toy(seed=0), "val": toy(rho=1 / 3, seed=1), "test": toy(rho=1 / 3, seed=2)}[split]


class LooksAtValues(nn.Sequential):
    """Goes by a value of its input, which no graph can hold."""

    def forward(self, x):
        return super().forward(x if float(x.sum()) > 0 else x + 1)


def not_shrinkable():
    return LooksAtValues(*toy_model())


def two_heads():
    return TwoHeads()


def no_site():
    return nn.Sequential(nn.Linear(4, 2))


def four_features(split):
    if split != "train":
        return None
    y = torch.arange(60) % 2
    return Labelled(TensorDataset(torch.randn(60, 4)), y=y, b=torch.where(torch.arange(60) % 5 == 0, 1 - y, y))


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def sentence(result):
    """The one line that a user sees on bad input."""
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("bise: ")
    return line


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file(trained(make(), splits("train")).state_dict(), path)
    return str(path)


def test_extract_then_audit_then_finetune(tmp_path, weights):
    out = str(tmp_path / "run")
    own = ["--model", "test_cli:make", "--weights", weights, "--data", "test_cli:splits"]
    result = run("extract", *own, "--out", out, *QUICK)
    assert result.exit_code == 0, result.output
    assert "the model's weights: unchanged" in result.stdout
    names = sorted(p.name for p in (tmp_path / "run").iterdir())
    assert names == [
        "config.json", "metrics.jsonl", "report.html", "samples.json", "subnetwork", "summary.json", "thresholds.json",
    ]  # fmt: skip
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["schema"] == SCHEMA
    assert {"accuracy", "unbiased", "worst_group", "by_group"} <= set(summary["vanilla"])
    audited = run("audit", out, "--json")
    assert json.loads(audited.stdout)["unbiased"] == pytest.approx(summary["subnetwork"]["unbiased"])
    files = [tmp_path / "out ü" / "small.pt2", tmp_path / "out ü" / "small.onnx"]
    shrunk = run("shrink", out, "--out", str(files[0]), "--onnx", str(files[1]))
    assert shrunk.exit_code == 0, shrunk.output
    assert "shrunk equals masked" in shrunk.stdout
    assert all(path.stat().st_size > 0 for path in files)
    page = unescape((tmp_path / "run/report.html").read_text(encoding="utf-8"))
    assert f"bise shrink {out} --out '{files[0]}' --onnx '{files[1]}'" in page
    figures = json.loads((tmp_path / "run/summary.json").read_text())["subnetwork"]["shrunk"]
    assert figures["parameters"]["shrunk"] < figures["parameters"]["dense"]
    assert figures["difference_float64"] <= 1e-10
    assert set(figures["latency_by_batch"]) == {"1", "256"}
    assert "widths" not in figures
    wide = run("shrink", out, "--align", "8", "--streams", "union", "--json")
    assert wide.exit_code == 0, wide.output
    assert json.loads(wide.stdout)["widths"] == {"align": 8, "streams": "union"}
    assert f"bise shrink {out} --align 8 --streams union" in unescape((tmp_path / "run/report.html").read_text("utf-8"))
    assert run("verify", out, "--trust").exit_code == 0
    for option in (("--align", "none"), ("--streams", "wide"), ("--modes", "fast")):
        bad = run("shrink", out, *option)
        assert bad.exit_code == 2
        assert option[1] in bad.output
    tuned = run("finetune", out, "--epochs", "2", "--lr", "0.01", "--json")
    assert tuned.exit_code == 0, tuned.output
    assert {"vanilla", "subnetwork", "finetuned", "dense_finetuned"} <= set(json.loads(tuned.stdout))
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert {row["job"] for row in rows} == {"extract", "finetuned", "dense_finetuned"}
    assert json.loads(tuned.stdout)["seconds"] != summary["seconds"], "they are of the last process"


@pytest.mark.parametrize("case", BAD)
def test_bad_data_ends_in_one_sentence(case, tmp_path, monkeypatch):
    train, val, expected = BAD[case]
    monkeypatch.setattr(
        sys.modules[__name__],
        "splits",
        lambda split: {"train": train, "val": val or (lambda: None)}.get(split, lambda: None)(),
    )
    out = tmp_path / "run"
    model = "test_cli:trained_by_itself"  # so that nothing else is told of
    result = run("extract", "--model", model, "--data", "test_cli:splits", "--out", str(out), *QUICK)
    assert re.search(expected, sentence(result))
    assert not (out / "summary.json").exists()
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--model", "test_cli:two_heads", "--data", "test_cli:four_features"], "ambiguous: left, right"),
        (["--model", "test_cli:no_site", "--data", "test_cli:four_features"], "has no site"),
        (["--model", "test_cli:make", "--data", "test_cli:splits", "--sites", "zz*"], "pattern 'zz\\*' matches no"),
        (["--model", "test_cli:make", "--data", "test_cli:splits", "--bottleneck", "zz"], "bottleneck='zz'"),
        (["--model", "test_cli:make", "--data", "test_cli:splits", "--preset", "fast"], "--preset 'fast' is unknown"),
        (["--model", "test_cli:make", "--data", "test_cli:splits", "--mi", "some"], "mi='some' is unknown"),
        (["--model", "test_cli:make", "--data", "test_cli:splits", "--gamma", "-1"], "gamma=-1.0"),
        (["--model", "test_cli:nothing", "--data", "test_cli:splits"], "can't be imported"),
        (["--model", "no_such_module:make", "--data", "test_cli:splits"], "can't be imported"),
        (["--model", "make", "--data", "test_cli:splits"], "write package.module:function"),
        (["--model", "nets/mine.py:make", "--data", "test_cli:splits"], "names a file; write nets.mine:make"),
        (["--model", "./mine.py:make", "--data", "test_cli:splits"], "names a file; write mine:make$"),
        (
            ["--model", "/nets/mine.py:make", "--data", "test_cli:splits"],
            "run from its folder /nets and write mine:make",
        ),
        (["--model", "../mine.py:make", "--data", "test_cli:splits"], r"run from its folder \.\. and write mine:make"),
        (["--model", "test_cli:toy", "--data", "test_cli:splits"], "should return a torch module"),
        (["--model", "test_cli:make", "--data", "test_cli:splits", "--weights", "no.safetensors"], "does not exist"),
        (["--model", "test_cli:make", "--data", "test_cli:splits", "--weights", "no.pt"], "can't be read"),
    ],
)
def test_bad_arguments_end_in_one_sentence(arguments, expected, tmp_path):
    result = run("extract", *arguments, "--out", str(tmp_path / "run"), *QUICK)
    assert re.search(expected, sentence(result))


def test_a_module_that_is_a_script_too_is_told_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    script = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('file')\nparser.parse_args(['-x'])"
    )
    (tmp_path / "own_script.py").write_text(script)
    result = run("audit", "--model", "own_script:make", "--data", "test_cli:splits")
    assert result.exit_code == 2, result.output
    last = result.stderr.strip().splitlines()[-1]  # argparse has said its own before
    assert last.startswith("bise: --model 'own_script:make' can't be imported, since its module own_script ended")
    assert last.endswith('put the part of it that is a script under if __name__ == "__main__":')


def test_weights_that_do_not_fit_or_would_run_code(tmp_path):
    other = tmp_path / "other.safetensors"
    save_file(nn.Linear(2, 2).state_dict(), other)
    own = ["--model", "test_cli:make", "--data", "test_cli:splits", "--out", str(tmp_path / "run")]
    assert "doesn't fit" in sentence(run("extract", *own, "--weights", str(other)))
    torch.save(make(), tmp_path / "pickled.pt")
    assert "could run code; save model.state_dict()" in sentence(
        run("extract", *own, "--weights", str(tmp_path / "pickled.pt"))
    )


@pytest.mark.parametrize("model", ["make", "trained_by_itself"])
def test_forgotten_weights_are_told_of(tmp_path, model):
    own = ["--model", f"test_cli:{model}", "--data", "test_cli:splits"]
    result = run("extract", *own, "--out", str(tmp_path / "run"), *QUICK)
    assert result.exit_code == 0, result.output
    said = "give that by --weights" in " ".join(result.stderr.split())
    assert said == (model == "make")


def test_classes_in_another_order_are_told_of(tmp_path, weights):
    state = load_file(weights)
    head = max(name.partition(".")[0] for name in state)
    turned = tmp_path / "turned.safetensors"
    save_file(state | {f"{head}.{kind}": state[f"{head}.{kind}"].roll(1, 0) for kind in ("weight", "bias")}, turned)
    own = ["--model", "test_cli:make", "--data", "test_cli:splits", *QUICK]
    for file in (weights, str(turned)):
        result = run("extract", *own, "--weights", file, "--out", str(tmp_path / f"run{file == weights}"))
        assert result.exit_code == 0, result.output
        said = " ".join(result.stderr.split())
        assert ("its outputs are read in the order 0, 1, 2: number the classes in the data as the model" in said) == (
            file != weights
        )
        # rolled by one, it is wrong wherever it was right: it has learned something, in another order
        assert ("does worse than guessing" in said) == (file != weights)
        assert ("(1) the classes have another order than the model’s" in said) == (file != weights)


def untested(split):
    return None if split == "test" else splits(split)


def test_a_run_without_a_test_split_says_that_nothing_was_audited(tmp_path, weights):
    own = ["--model", "test_cli:make", "--weights", weights, "--data", "test_cli:untested"]
    result = run("extract", *own, "--out", str(tmp_path / "run"), *QUICK)
    assert result.exit_code == 0, result.output
    assert "there is no test split, so nothing was audited" in " ".join(result.stdout.split())


def the_same(split):
    return splits("train" if split == "val" else split)


def own(split):
    return Stream(splits({"test": "val"}.get(split, split)))


def own_and_apart(split):
    return Stream(splits(split))


@pytest.mark.parametrize(
    ("data", "same"),
    [("splits", []), ("the_same", ["train and val"]), ("own", ["val and test"]), ("own_and_apart", [])],
)
def test_splits_that_are_the_very_same_are_told_of(tmp_path, weights, data, same):
    whole = ["--model", "test_cli:make", "--weights", weights, "--data", f"test_cli:{data}"]
    result = run("extract", *whole, "--out", str(tmp_path / "run"), *QUICK)
    assert result.exit_code == 0, result.output
    assert re.findall(r"warning: (\w+ and \w+) are the very same data", result.stderr) == same


def test_a_foreign_or_different_folder_is_never_overwritten(tmp_path):
    own = ["--model", "test_cli:make", "--data", "test_cli:splits", *QUICK]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("dear")
    assert "is no run of bise" in sentence(run("extract", *own, "--out", str(tmp_path / "mine")))
    assert run("extract", *own, "--out", str(tmp_path / "run")).exit_code == 0
    assert "another configuration" in sentence(run("extract", *own, "--gamma", "2", "--out", str(tmp_path / "run")))
    assert run("extract", *own, "--out", str(tmp_path / "run")).exit_code == 0


def test_the_command_on_the_page_makes_the_run_again(tmp_path, weights):
    first, again = tmp_path / "first", tmp_path / "again"
    own = ["--model", "test_cli:make", "--weights", weights, "--data", "test_cli:splits"]
    assert run("extract", *own, *QUICK, "--gamma", "0.3", "--seed", "4", "--out", str(first)).exit_code == 0
    (command,) = re.findall(r"<code>(bise extract .*?)</code>", (first / "report.html").read_text(encoding="utf-8"))
    words = shlex.split(unescape(command))
    assert words[-1] == str(first)
    result = run(*words[1:-1], str(again))
    assert result.exit_code == 0, result.output
    masks = [(folder / "subnetwork/subnetwork.safetensors").read_bytes() for folder in (first, again)]
    assert masks[0] == masks[1]


def test_an_extraction_tells_what_is_left_without_its_closed_units(tmp_path, weights):
    """Parameters and MACs of the toy's three linear layers and its BatchNorm, counted by hand from the masks."""
    own = ["--model", "test_cli:make", "--weights", weights, "--data", "test_cli:splits"]
    result = run("extract", *own, *QUICK, "--out", str(tmp_path / "run"))
    assert result.exit_code == 0, result.output
    figures = json.loads((tmp_path / "run/summary.json").read_text())["subnetwork"]["shrunk"]
    masks = [mask for name, mask in load_file(tmp_path / "run/subnetwork/subnetwork.safetensors").items()
             if name.startswith("masks.")]  # fmt: skip
    for key, (a, b) in {"dense": (16, 16), "shrunk": tuple(int(mask.sum()) for mask in masks)}.items():
        assert figures["parameters"][key] == (8 * a + a) + 2 * a + (a * b + b) + (b * 3 + 3)
        assert figures["macs"][key] == 8 * a + a * b + b * 3
    assert "latency_by_batch" not in figures
    assert "Closed units removed" in result.stdout
    assert "Time isn’t measured yet" in (tmp_path / "run/report.html").read_text(encoding="utf-8")


def test_an_extraction_leaves_very_large_networks_to_bise_shrink(tmp_path, monkeypatch):
    monkeypatch.setattr("bise.jobs.deployment.MOST_PARAMETERS", 498)  # the toy has 499
    own = ["--model", "test_cli:make", "--data", "test_cli:splits"]
    assert run("extract", *own, *QUICK, "--out", str(tmp_path / "run")).exit_code == 0
    assert "shrunk" not in json.loads((tmp_path / "run/summary.json").read_text())["subnetwork"]
    assert f"Not measured. <code>bise shrink {tmp_path}/run</code>" in (tmp_path / "run/report.html").read_text()


def test_an_extraction_stands_where_its_units_can_not_be_taken_out(tmp_path):
    own = ["--model", "test_cli:not_shrinkable", "--data", "test_cli:splits"]
    result = run("extract", *own, *QUICK, "--out", str(tmp_path / "run"))
    assert result.exit_code == 0, result.output
    assert "warning: the closed units could not be taken out" in result.stderr
    assert (tmp_path / "run/subnetwork/subnetwork.safetensors").exists()
    page = (tmp_path / "run/report.html").read_text(encoding="utf-8")
    assert "The closed units could not be taken out" in page


def test_bad_files_to_shrink_into(tmp_path):
    out = str(tmp_path / "run")
    assert run("extract", "--model", "test_cli:make", "--data", "test_cli:splits", *QUICK, "--out", out).exit_code == 0
    assert "should end in .pt2" in sentence(run("shrink", out, "--out", str(tmp_path / "a.onnx")))
    assert "--of 'best' is unknown" in sentence(run("shrink", out, "--of", "best"))
    assert "does not exist" in sentence(run("shrink", out, "--of", "finetuned"))
    assert "does not exist" in sentence(run("shrink", str(tmp_path / "nowhere")))


def test_the_demo_refuses_a_rho_without_conflicts(tmp_path):
    assert "no conflicting sample" in sentence(run("demo", "--rho", "1", "--out", str(tmp_path / "d")))
    assert "rho=1.5" in sentence(run("demo", "--rho", "1.5", "--out", str(tmp_path / "d")))
    assert not (tmp_path / "d").exists()


def test_every_command_has_help_with_an_example():
    for command in ("demo", "audit", "extract", "finetune", "shrink"):
        result = run(command, "--help")
        assert result.exit_code == 0
        assert f"Example: bise {command}" in result.stdout.replace("\n", " ")


def test_help_needs_no_torch():
    program = "import sys; import bise.cli.app; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_real_command_in_a_real_process(tmp_path):
    command = [
        sys.executable,
        "-c",
        "from bise.cli.app import main; main()",
        "demo",
        "--rho",
        "1",
        "--out",
        str(tmp_path / "d"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 2
    assert done.stderr.startswith("bise: train has no conflicting sample")
    assert "Traceback" not in done.stderr


def test_public_names_are_all_there():
    for name in bise.__all__:
        assert getattr(bise, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'extrakt'"):
        _ = bise.extrakt
