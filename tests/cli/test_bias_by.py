"""`bise extract --bias-by`: guessed labels in a run's folder, and commands that go on from it."""

from __future__ import annotations

import csv
import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from typer.testing import CliRunner

from bise.cli.app import app

COLUMNS = ("a", "b", "c")


def make() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table whose column a tells the bias at a glance, and whose b and c tell the target less well."""
    where = tmp_path_factory.mktemp("bias_by")
    generator = torch.Generator().manual_seed(0)
    with (where / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, "y", "s", "split"])
        for i in range(900):
            split = ("train", "train", "train", "train", "val", "test")[i % 6]
            y = i // 6 % 2
            s = y if torch.rand(1, generator=generator) < (0.9 if split == "train" else 0.5) else 1 - y
            x = torch.randn(3, generator=generator) * 0.5 + torch.tensor([3.0 * s, 0.8 * y, 0.8 * y])
            writer.writerow([*(round(float(value), 4) for value in x), y, s, split])
    model = make()
    save_file(model.state_dict(), where / "net.safetensors")
    return where


def run(folder, monkeypatch, *words: str):
    monkeypatch.chdir(folder)
    return CliRunner().invoke(app, list(words))


def extract(folder, monkeypatch, out: str, *more: str, bias: tuple[str, ...] = ("--bias", "s")):
    given = ("--model", "test_bias_by:make", "--weights", "net.safetensors", "--data", "table.csv", "--target", "y")
    short = ("--steps", "2", "--head-epochs", "1", "--split-column", "split", "--device", "cpu")
    return run(folder, monkeypatch, "extract", *given, *bias, *short, "--out", out, *more)


@pytest.mark.filterwarnings("ignore")  # of a network that knows nothing, and of few samples
def test_guesses_stay_with_the_run(folder, monkeypatch):
    done = extract(folder, monkeypatch, "guessed", "--bias-by", "jtt")
    assert done.exit_code == 0, done.output
    b = load_file(folder / "guessed" / "guessed_bias.safetensors")["b"]
    assert len(b) == 600
    told = json.loads((folder / "guessed" / "summary.json").read_text())
    rows = list(csv.DictReader((folder / "table.csv").open()))
    y = torch.tensor([int(row["y"]) for row in rows if row["split"] == "train"])
    assert told["data"]["pseudo"]["conflicting_share"] == pytest.approx(float((b != y).float().mean()))
    assert told["data"]["conflicting"] == int((b != y).sum())  # and not those of the column
    assert json.loads((folder / "guessed" / "config.json").read_text())["bias_by"] == "jtt"
    # what goes on from it has the same labels, else it would be refused as other data
    refitted = run(folder, monkeypatch, "refit", "guessed", "--device", "cpu")
    assert refitted.exit_code == 0, refitted.output
    assert run(folder, monkeypatch, "verify", "guessed").exit_code == 0


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_no_split_needs_bias_labels(folder, monkeypatch):
    done = extract(folder, monkeypatch, "none", "--bias-by", "epoch", "--ignore", "s", bias=())
    assert done.exit_code == 0, done.output
    told = json.loads((folder / "none" / "summary.json").read_text())
    assert set(told["data"]["pseudo"]) == {"conflicting_share"}
    assert told["selection"]["kind"] == "last"


def test_what_is_no_source_is_named(folder, monkeypatch):
    done = extract(folder, monkeypatch, "odd", "--bias-by", "oracle")
    assert done.exit_code == 2
    assert "--bias-by='oracle' is unknown; use 'epoch' or" in done.output
