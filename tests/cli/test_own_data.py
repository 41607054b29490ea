"""A csv file at the command line, from the audit to the file to deploy, with features, pictures and sentences."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn
from typer.testing import CliRunner

import bise
from bise.cli.app import app
from bise.data import table
from conftest import toy, toy_model, trained

QUICK = ["--steps", "5", "--upsilon", "1", "--batch-size", "60"]


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def make():
    return toy_model()


class Pixels(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.fc = nn.Linear(8, 2)

    def forward(self, x):
        return self.fc(self.first(x).relu().mean((2, 3)))


def pixels():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # the weights are a run's own, so they must be the same each time
        return Pixels()


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 8)
        self.hidden = nn.Linear(8, 16)
        self.fc = nn.Linear(16, 2)

    def forward(self, input_ids, attention_mask, **_):
        x = self.embedding(input_ids) * attention_mask.unsqueeze(-1)
        return self.fc(self.hidden(x.sum(1)).relu())


@pytest.fixture
def people(tmp_path):
    """The toy problem as a csv with named labels, a few of them without a bias, and weights of a vanilla model."""
    path = tmp_path / "people.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{i}" for i in range(8)), "kind", "colour", "part"])
        for part, rho, seed in (("train", 0.9, 0), ("val", 1 / 3, 1), ("test", 1 / 3, 2)):
            data = toy(rho=rho, seed=seed, n=300)
            for i, (x, y, b) in enumerate(data):
                colour = "" if i % 40 == 0 and part == "train" else ("blue", "green", "red")[b]
                writer.writerow([*x.tolist(), ("ant", "bee", "cat")[y], colour, part])
    train = table(path, target="kind", bias="colour", split_column="part")
    save_file(trained(make(), train).state_dict(), tmp_path / "model.safetensors")
    return path


def test_from_a_csv_file_to_a_file_to_deploy(people, tmp_path):
    columns = ["--target", "kind", "--bias", "colour"]
    weights = ["--model", "test_own_data:make", "--weights", tmp_path / "model.safetensors"]
    own = [*weights, "--data", people, *columns, "--split-column", "part"]
    out = tmp_path / "run"
    run("extract", *weights, "--data", people, *columns, "--split-column", "part", "--out", out, *QUICK)
    summary = json.loads((out / "summary.json").read_text())
    audited = json.loads(run("audit", *own, "--run", out, "--json").stdout)
    assert audited["unbiased"] == pytest.approx(summary["subnetwork"]["unbiased"])
    source = json.loads((out / "config.json").read_text())["source"]
    assert source["data"] == str(people)
    assert source["own"] == {"target": "kind", "bias": "colour", "split_column": "part"}
    run("finetune", out, "--epochs", "1")
    run("shrink", out, "--out", tmp_path / "small.pt2")
    run("export", out, tmp_path / "tuned.pt2", "--of", "finetuned")
    assert all((tmp_path / name).stat().st_size > 0 for name in ("small.pt2", "tuned.pt2"))
    refused = CliRunner().invoke(app, ["export", str(out), "model.tflite"])
    assert (refused.exit_code, refused.stderr) == (2, "bise: model.tflite should end in .onnx or .pt2\n")


def test_a_run_is_audited_on_other_rows_as_its_own_were_read(people, tmp_path):
    columns = ["--target", "kind", "--bias", "colour", "--split-column", "part"]
    weights = ["--model", "test_own_data:make", "--weights", tmp_path / "model.safetensors"]
    out, new = tmp_path / "run", tmp_path / "new.csv"
    run("extract", *weights, "--data", people, *columns, "--out", out, *QUICK)
    with people.open(newline="") as file:
        head, *rows = list(csv.reader(file))
    kept = [row for row in rows if row[-1] == "test" and row[-3] != "ant"]  # no training rows, and not every class
    with new.open("w", newline="") as file:
        csv.writer(file).writerows([head, *kept])
    found = json.loads(run("audit", out, "--data", new, *columns, "--json").stdout)
    with new.open("w", newline="") as file:
        csv.writer(file).writerows([row[:-1] for row in (head, *kept)])
    unsplit = ["audit", out, "--data", new, *columns[:4]]
    assert json.loads(run(*unsplit, "--json").stdout) == found
    assert run(*unsplit).stdout.startswith(f"{out}, subnetwork:")
    test = table(people, target="kind", bias="colour", split_column="part", split="test")
    model = make()
    model.load_state_dict(load_file(tmp_path / "model.safetensors"))
    sub = bise.load(out / "subnetwork", model)
    some = test.y != 0
    right = sub(test.dataset.tensors[0][some]).argmax(1) == test.y[some]
    assert found["accuracy"] == pytest.approx(float(right.double().mean()))
    # what is aligned is the run's training set's to say
    whole = json.loads(run("audit", out, "--json").stdout)
    assert found["aligned"]["n"] + found["conflicting"]["n"] == len(kept)
    assert 0 < found["aligned"]["n"] < whole["aligned"]["n"]
    for odd, sentence in (
        (["--weights", tmp_path / "model.safetensors"], "--weights are for a model that --model names"),
        (["--target", "kind"], "--target describes data of your own; name them with --data"),
        (["--of", "dense"], "--of 'dense' is unknown; use vanilla, subnetwork, refitted, finetuned, dense_finetuned"),
    ):
        refused = CliRunner().invoke(app, ["audit", "--run", str(out), *map(str, odd)])
        assert (refused.exit_code, sentence in refused.stderr) == (2, True), refused.output
    run("finetune", out, "--epochs", "1")
    said = run("audit", out, "--of", "finetuned").stdout
    assert said.startswith(f"{out}, finetuned, on test:")
    people.write_text("\n".join(people.read_text().splitlines()[:-1]))  # a row less
    refused = CliRunner().invoke(app, ["finetune", str(out), "--epochs", "1"])
    assert (refused.exit_code, "test changed since" in refused.stderr) == (2, True), refused.output
    assert "test isn't what it was when" in run("audit", out).stderr


def test_edited_names_and_features_are_found_by_verify(people, tmp_path):
    """Other files are read by what the summary keeps of the training rows, so an audit would take an edit for true."""
    columns = ["--target", "kind", "--bias", "colour", "--split-column", "part"]
    weights = ["--model", "test_own_data:make", "--weights", tmp_path / "model.safetensors"]
    out = tmp_path / "run"
    run("extract", *weights, "--data", people, *columns, "--out", out, *QUICK)
    run("verify", out)
    summary = json.loads((out / "summary.json").read_text())
    swapped = [["green", "blue", "red"]]
    moved = [summary["data"]["features"][0] | {"mean": 9.0}, *summary["data"]["features"][1:]]
    for key, value in (("class_names", ["bee", "ant", "cat"]), ("bias_names", swapped), ("features", moved)):
        (out / "summary.json").write_text(json.dumps(summary | {"data": summary["data"] | {key: value}}))
        result = CliRunner().invoke(app, ["verify", str(out), "--json"])
        broken = [line for line in json.loads(result.stdout)["promises"] if line["state"] == "broken"]
        assert [line["name"] for line in broken] == ["data"]
        assert repr(key) in broken[0]["detail"]
        assert result.exit_code == 1


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # torch.export.load's own, in some versions
def test_pictures_of_a_csv_file(tmp_path):
    rows = []
    generator = np.random.default_rng(0)
    for i in range(60):
        y, b = i % 2, (i % 2 if i % 5 else 1 - i % 2)
        pixels = generator.integers(0, 60, (7, 9, 3), dtype=np.uint8)
        pixels[..., 2 * b] += 150
        pixels[y * 3 : y * 3 + 3, :, 1] += 150
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
        rows.append(f"{i}.png,{y},{b},{'train' if i < 40 else 'test'}")
    (tmp_path / "labels.csv").write_text("\n".join(["file,y,b,part", *rows]))
    pictures = ["--image", "file", "--size", "8x8", "--mean", "0.5", "--std", "0.25"]
    own = ["--data", tmp_path / "labels.csv", "--target", "y", "--bias", "b", "--split-column", "part", *pictures]
    run("extract", "--model", "test_own_data:pixels", *own, "--out", tmp_path / "run", *QUICK)
    run("shrink", tmp_path / "run", "--out", tmp_path / "small.pt2")
    program = torch.export.load(tmp_path / "small.pt2")  # one that this test wrote
    assert program.module()(torch.zeros(4, 3, 8, 8)).shape == (4, 2)


def test_sentences_of_a_csv_file(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "cat", "dog"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    rows = ["text,y,b"]
    for i in range(60):
        y, b = i % 2, (i % 2 if i % 5 else 1 - i % 2)
        rows.append(f"{words[5 + y]} {words[7 + b]} {words[5 + y]},{y},{b}")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    own = ["--data", tmp_path / "labels.csv", "--target", "y", "--bias", "b", "--holdout", "0,0.3", "--text", "text"]
    tokens = ["--tokenizer", tmp_path / "vocab.txt", "--length", "8"]
    found = run("audit", "--model", "test_own_data:Words", *own, *tokens, "--json")
    assert json.loads(found.stdout)["n"] == 18
    run("extract", "--model", "test_own_data:Words", *own, *tokens, "--out", tmp_path / "run", *QUICK)


def test_every_kind_of_bad_option(people):
    for arguments, expected in (
        (["--target", "kind", "--size", "axb"], "--size 'axb' is no size"),
        (["--target", "kind", "--mean", "a"], "--mean 'a' holds something that is no number"),
        (["--target", "kind", "--std", "0"], "--std 0 is not above 0"),
        (["--target", "kind", "--mean", "1,2"], "--mean has 2 numbers"),
        (["--target", "kind", "--bias-csv", "b.csv"], "is a table, for which --bias-csv has no meaning"),
    ):
        whole = ["audit", "--model", "test_own_data:make", "--data", str(people), *arguments]
        result = CliRunner().invoke(app, whole)
        assert result.exit_code == 2, result.output
        assert expected in result.stderr


def test_columns_with_a_comma_in_their_name_stand_in_quotes(tmp_path):
    path = tmp_path / "rows.csv"
    rows = "1,2,0,0,f\n2,1,0,1,m\n3,5,1,1,f\n4,3,1,0,m\n" * 30
    path.write_text('"width, mm",height,kind,"age, years",sex\n' + rows)
    columns = ["--target", "kind", "--bias", 'sex, "age, years"', "--features", '"width, mm"']
    found = json.loads(run("data", "check", path, *columns, "--json").stdout)
    assert found["splits"]["train"]["biases"] == ["sex", "age, years"]


def test_the_new_commands_have_help_with_an_example():
    for command in (["data", "check"], ["export"]):
        assert f"Example: bise {' '.join(command)}" in run(*command, "--help").stdout.replace("\n", " ")


def test_a_test_split_without_a_class_is_told_of(people, tmp_path):
    rows = people.read_text().splitlines()
    people.write_text("\n".join(row for row in rows if not (",cat," in row and row.endswith(",test"))))
    own = ["--data", people, "--target", "kind", "--bias", "colour", "--split-column", "part"]
    weights = ["--model", "test_own_data:make", "--weights", tmp_path / "model.safetensors"]
    run("extract", *weights, *own, "--out", tmp_path / "run", *QUICK)
    notes = json.loads((tmp_path / "run/summary.json").read_text())["notes"]
    assert "test lacks classes of train (cat), so no figure is about these; add samples of them" in notes


def test_a_test_split_without_conflicting_rows_is_told_of(people, tmp_path):
    head, *rows = people.read_text().splitlines()
    pairs = ("ant,blue,test", "bee,green,test", "cat,red,test")
    kept = [row for row in rows if not row.endswith(",test") or row.endswith(pairs)]
    people.write_text("\n".join([head, *kept]))
    own = ["--data", people, "--target", "kind", "--bias", "colour", "--split-column", "part"]
    weights = ["--model", "test_own_data:make", "--weights", tmp_path / "model.safetensors"]
    result = run("extract", *weights, *own, "--out", tmp_path / "run", *QUICK)
    assert "test has no sample that conflicts with colour" in result.stderr
    notes = json.loads((tmp_path / "run/summary.json").read_text())["notes"]
    assert any(
        note.startswith("test has no sample that conflicts with colour, so no figure is about such") for note in notes
    )


def unnamed(split):
    return toy(rho=0.9 if split == "train" else 1 / 3, n=200)


def test_a_run_whose_labels_have_no_names_says_how_a_file_is_numbered(people, tmp_path):
    own = ["--model", "test_own_data:make", "--weights", tmp_path / "model.safetensors"]
    run("extract", *own, "--data", "test_own_data:unnamed", "--out", tmp_path / "run", *QUICK)
    columns = ["--data", people, "--target", "kind", "--bias", "colour", "--split-column", "part"]
    said = run("audit", "--run", tmp_path / "run", *columns).stderr
    assert "keeps no names of its labels, so those of" in said
