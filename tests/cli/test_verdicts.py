"""What commands say of a model that knows nothing, and README's own example with and without mean and deviation."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

import bise
from bise.cli.app import app
from bise.measure.standing import CAUSES
from conftest import toy, toy_model, trained

ROOT = Path(__file__).parents[2]
CLASSES = ("black", "blond", "brown")
PIXELS = {"black": 110, "blond": 130, "brown": 150}
"""The one thing that tells the classes apart, in the middle of the scale: a small step, until it is scaled."""


def make():
    return toy_model()


def splits(split):
    return {"train": toy(), "val": toy(rho=1 / 3, seed=1), "test": toy(rho=1 / 3, seed=2)}[split]


def make_pictures():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 12), nn.ReLU(),
            nn.Linear(12, 3),
        )  # fmt: skip


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def plain(text):
    return " ".join(text.split())


@pytest.fixture
def net(tmp_path):
    save_file(trained(make(), splits("train")).state_dict(), tmp_path / "net.safetensors")
    return tmp_path / "net.safetensors"


def test_audit_says_that_a_model_knows_nothing(tmp_path):
    """Its trained weights were forgotten, and its last layer answers 1 to everything."""
    state = make().state_dict()
    last = max(name.partition(".")[0] for name in state)
    state[f"{last}.weight"].zero_(), state[f"{last}.bias"].copy_(torch.tensor([0.0, 1.0, 0.0]))
    blank = tmp_path / "blank.safetensors"
    save_file(state, blank)
    own = ["--model", "test_verdicts:make", "--weights", blank, "--data", "test_verdicts:splits"]
    result = run("audit", *own)
    assert result.exit_code == 0, result.output
    first, *rest = result.stdout.splitlines()
    assert first.startswith("MIND: the model gives every sample one class, “1”: it is right on 33.3 % as the mean of 3")
    assert any(line.endswith("(these say nothing of a model that knows nothing)") for line in rest)
    places = [plain(result.stderr).index(cause) for cause in CAUSES]
    assert places == sorted(places)
    for option in ("--mean and --std", "its outputs are read in the order 0, 1, 2", "--weights", "--size"):
        assert option in plain(result.stderr)
    found = run("audit", *own, "--json")
    assert json.loads(found.stdout)["standing"]["state"] == "constant"
    assert "gives every sample one class" in plain(found.stderr)


def test_shrink_and_export_take_the_dense_control(tmp_path, net):
    own = ["--model", "test_verdicts:make", "--weights", net, "--data", "test_verdicts:splits"]
    few = ["--steps", "4", "--upsilon", "1", "--batch-size", "60"]
    assert run("extract", *own, *few, "--out", tmp_path / "run").exit_code == 0
    refused = run("shrink", tmp_path / "run", "--of", "dense_finetuned")
    assert refused.exit_code == 2
    assert f"bise finetune {tmp_path / 'run'} makes one" in plain(refused.stderr)
    assert run("finetune", tmp_path / "run", "--epochs", "1").exit_code == 0
    result = run("shrink", tmp_path / "run", "--of", "dense_finetuned", "--json")
    assert result.exit_code == 0, result.output
    sizes = json.loads(result.stdout)["parameters"]
    assert sizes["shrunk"] == sizes["dense"], "it has no gates"
    before = json.loads((tmp_path / "run/summary.json").read_text())
    assert before["subnetwork"]["shrunk"]["parameters"] != sizes
    result = run("export", tmp_path / "run", tmp_path / "dense.pt2", "--of", "dense_finetuned")
    assert result.exit_code == 0, result.output
    loaded = torch.export.load(tmp_path / "dense.pt2").module()
    audited = run("audit", "--run", tmp_path / "run", "--of", "dense_finetuned", "--json")
    right = (loaded(splits("test").tensors[0]).argmax(1) == splits("test").y).double().mean()
    assert float(right) == pytest.approx(json.loads(audited.stdout)["accuracy"])
    page = (tmp_path / "run/report.html").read_text()
    assert "The exported file dense.pt2 gives the same answers" in page
    units = re.search(r"Size and speed, closed units removed.*?</table>", page, re.DOTALL).group()
    assert f">{before['subnetwork']['shrunk']['parameters']['shrunk']}<" in units, "the subnetwork's, not the control's"
    assert "✗" not in run("verify", tmp_path / "run").stdout


def pictures(folder):
    """labels.csv and pictures as README's example names them, with hair of three shades and a light or dark frame."""
    with (folder / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "hair", "sex", "fold"])
        for i in range(240):
            hair, fold = CLASSES[i % 3], ("train", "train", "val", "test")[i // 3 % 4]
            agrees = i // 12 % (10 if fold == "train" else 2) != 0
            sex = "f" if (i % 3 == 1) == agrees else "m"
            picture = Image.new("RGB", (8, 8), (PIXELS[hair] + i % 5,) * 3)
            picture.putpixel((0, 0), (140, 120, 130) if sex == "f" else (120, 130, 140))
            picture.save(folder / f"{i}.png")
            writer.writerow([f"{i}.png", hair, sex, fold])


def example_of(page):
    """The command of a page that extracts from pictures in a table, as one list of words."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = (line for line in text.splitlines() if line.startswith("bise extract") and "--image" in line)
    return shlex.split(line)[1:]


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md", "docs/data.md"])
def test_the_pages_examples_for_pictures_carry_mean_and_deviation(page):
    words = example_of(page)
    assert words[words.index("--mean") + 1] == "0.485,0.456,0.406"
    assert words[words.index("--std") + 1] == "0.229,0.224,0.225"


def test_a_reader_who_follows_readme_gets_the_right_figures(tmp_path, monkeypatch):
    """The same command on small pictures; and what it says without mean and deviation."""
    monkeypatch.chdir(tmp_path)
    pictures(tmp_path)
    monkeypatch.setitem(sys.modules, "nets", sys.modules[__name__])
    monkeypatch.setattr(sys.modules[__name__], "make", make_pictures)
    words = example_of("README.md")
    mean, std = ([float(v) for v in words[words.index(key) + 1].split(",")] for key in ("--mean", "--std"))
    scaled = bise.data.Transform(mean=tuple(mean), std=tuple(std))
    columns = {"target": "hair", "bias": "sex", "split_column": "fold", "image": "file", "size": 8, "transform": scaled}
    train = bise.data.table("labels.csv", split="train", **columns)
    x = torch.stack([train[i][0] for i in range(len(train))])
    net, y = make_pictures(), train.y
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    save_file(net.state_dict(), "net.safetensors")
    words[words.index("--size") + 1] = "8"
    quick = ["--steps", "4", "--upsilon", "1", "--batch-size", "60"]
    result = run(*words, *quick)
    assert result.exit_code == 0, result.output
    assert "Likely causes" not in result.output
    assert "pixels go from 0 to 1" not in result.output
    found = json.loads((tmp_path / "runs/hair/summary.json").read_text())
    assert found["vanilla"]["accuracy"] > 0.9
    assert found["vanilla"]["standing"]["state"] == "above chance"
    for key in ("--mean", "--std"):
        at = words.index(key)
        del words[at : at + 2]
    words[words.index("--out") + 1] = "runs/forgotten"
    result = run(*words, *quick)
    assert result.exit_code == 0, result.output
    assert "(1) the inputs are not scaled as in training, by mean and standard deviation" in plain(result.output)
    assert "pixels go from 0 to 1, since no --mean and --std are given" in plain(result.stderr)
    assert "MIND: a model that knows nothing treats all groups alike" in plain(result.stdout)
    found = json.loads((tmp_path / "runs/forgotten/summary.json").read_text())
    assert found["vanilla"]["standing"]["says"]
    assert found["vanilla"]["accuracy"] < 0.5
