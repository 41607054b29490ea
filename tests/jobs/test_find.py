"""`bise find`: planted groups are found without their labels, and one goes on as b into extract."""

from __future__ import annotations

import csv
import html
import json
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import bise
from bise.cli.app import app
from bise.data import Labelled
from bise.jobs.found_labels import place_of
from bise.measure.spread import agreement
from conftest import toy, toy_model, trained

pytest.importorskip("sklearn")
QUICK = ["--steps", "5", "--upsilon", "1", "--batch-size", "60"]


def louder(data):
    x = data.dataset.tensors[0].clone()
    x[torch.arange(len(x)), 4 + data.b] += 12
    return x


def loud(split):
    """The toy problem, its bias in features that stand far apart."""
    rho, seed = {"train": (0.9, 0), "val": (1 / 3, 1), "test": (1 / 3, 2)}[split]
    data = toy(rho=rho, seed=seed)
    x = louder(data)
    return Labelled(TensorDataset(x), y=data.y, b=data.b, classes=3, bias_classes=3)


def hidden(split):
    """(x, y) alone."""
    data = loud(split)
    return Labelled(data.dataset, y=data.y, classes=3)


def make():
    return toy_model()


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def sentence(*arguments):
    (line,) = run(*arguments, code=2).stderr.strip().splitlines()
    return line


@pytest.fixture(scope="module")
def model():
    return trained(make(), hidden("train"))


@pytest.fixture(scope="module")
def own(model, tmp_path_factory):
    base = tmp_path_factory.mktemp("find")
    save_file(model.state_dict(), base / "net.safetensors")
    return ["--model", "test_find:make", "--weights", base / "net.safetensors", "--data", "test_find:hidden"]


@pytest.fixture(scope="module")
def kept(own, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "found"
    shown = run("find", *own, "--out", folder).stdout
    return folder, shown


def test_planted_groups_are_found_and_the_model_is_as_it_was(model):
    before = bise.fingerprint(model)
    found = bise.find(model, hidden("train"), val=hidden("val"))
    assert bise.fingerprint(model) == before
    truth = loud("train").b
    best = max(found[:3], key=lambda one: agreement(one.b, truth))
    assert agreement(best.b, truth) > 0.8
    assert best.spread.shown
    assert agreement(best.label(hidden("val")).b, loud("val").b) > 0.5
    other = toy(rho=1 / 3, seed=7)
    x = louder(other)
    assert agreement(best.label(Labelled(TensorDataset(x), y=other.y)).b, other.b) > 0.5, "on samples of another set"
    assert sum(map(sum, best.sizes)) == len(truth)
    assert f"{len(found)} candidates of {found.looked_at}, on 600 samples of val" in str(found)


def test_a_bias_that_data_have_is_compared_with_and_not_used(model):
    seen = bise.find(model, loud("train"), val=loud("val"))
    blind = bise.find(model, hidden("train"), val=hidden("val"))
    assert [one.name for one in seen] == [one.name for one in blind]
    assert all((one.b == other.b).all() for one, other in zip(seen, blind, strict=True))
    assert any("b (its own b)" in one.goes_with for one in seen)
    assert not any("b (its own b)" in one.goes_with for one in blind)


def test_where_nothing_differs_it_says_so():
    """Two groups far apart, which neither targets nor answers have to do with."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 8, generator=generator)
    x[:300, :4] += 6
    train, val = (Labelled(TensorDataset(x), y=torch.randint(0, 2, (600,), generator=generator)) for _ in range(2))
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net[0].weight += torch.eye(8)
        net[2].weight[1, 7] = 1  # the answer is whether the last feature is above a half
        net[2].bias[0] = 0.5
    found = bise.find(net, train, val=val)
    (planted,) = (one for one in found if one.name == "clusters of 1")
    assert agreement(planted.b, (x[:, 0] > 3).long()) > 0.9
    assert not planted.spread.shown
    assert planted is found[-1]
    (line,) = (line for line in str(found).splitlines() if "clusters of 1" in line)
    assert line.endswith("which may be chance")


def test_without_val_differences_are_measured_where_no_group_was_fitted(model):
    found = bise.find(model, hidden("train"))
    assert found.measured_on == "train, apart from those that groups were fitted on"
    assert found.measured == 300


def test_a_model_of_one_epoch_is_a_source(model):
    torch.manual_seed(0)
    found = bise.find(model, hidden("train"), val=hidden("val"), make_model=make)
    names = [one.name for one in found] + [name for one in found for name in one.also] + list(found.left_out)
    assert any(name.startswith("a model of one epoch") for name in names)


def test_columns_that_are_handed_in_are_candidates(model):
    colour = [("blue", "green", "red")[b] for b in loud("val").b.tolist()]
    found = bise.find(model, hidden("val"), columns={"colour": colour})
    names = {name: one for one in found for name in (one.name, *one.also)}
    assert "column colour" in names
    with pytest.raises(bise.BadInput, match="'colour' has 3 cells for 600 samples; give one for each"):
        bise.find(model, hidden("train"), columns={"colour": colour[:3]})


def test_bad_input_is_one_sentence(model, monkeypatch):
    data = hidden("train")
    one = Labelled(TensorDataset(data.dataset.tensors[0][data.y == 1]), y=data.y[data.y == 1])
    with pytest.raises(bise.BadInput, match=r"data hold one class only \(1\), and groups are compared within classes"):
        bise.find(model, one)
    few = Labelled(TensorDataset(data.dataset.tensors[0][:12]), y=data.y[:12])
    with pytest.raises(bise.BadInput, match="12 samples are too few for 2 groups of 10"):
        bise.find(model, few)
    lost = toy_model()
    with torch.no_grad():
        lost[0].weight[0, 0] = float("nan")
    with pytest.raises(bise.BadInput):
        bise.find(lost, data)

    class Bare(nn.Module):
        def forward(self, x):
            return x[:, :3] * 2

    with pytest.raises(bise.BadInput, match="Bare has no layer whose features could be read"):
        bise.find(Bare(), data)
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(
        bise.BadInput, match=r"scikit-learn is not installed; install the extra: pip install 'bise\[demo\]'"
    ):
        bise.find(model, data)


# the command line


def test_the_command_writes_a_page_a_table_and_json(kept, own, tmp_path):
    folder, shown = kept
    summary = json.loads((folder / "summary.json").read_text())
    candidates = summary["find"]["candidates"]
    assert candidates
    page = (folder / "report.html").read_text()
    for number, one in enumerate(candidates, 1):
        assert f'id="candidate-{number}"' in page
        assert one["name"] in html.unescape(page)
        assert f"--bias-from found:{number}" in page
    assert "no candidate is proof of a bias" in " ".join(shown.split())
    assert "No candidate is proof of a bias" in page
    assert "<script" not in page
    printed = json.loads(run("find", *own, "--out", tmp_path / "again", "--json").stdout)
    assert printed["find"] == summary["find"]
    (folder / "report.html").unlink()
    run("report", folder)
    assert (folder / "report.html").read_text() == page


def test_the_chosen_one_goes_on_as_b(kept, own, tmp_path):
    folder, _ = kept
    candidates = json.loads((folder / "summary.json").read_text())["find"]["candidates"]
    number = len(candidates[:2])
    out = tmp_path / "run"
    run("extract", *own, "--bias-from", f"{folder}:{number}", "--out", out, *QUICK)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["data"]["biases"] == [candidates[number - 1]["name"]]
    config = json.loads((out / "config.json").read_text())
    assert config["source"]["own"]["bias_from"] == f"{folder.resolve()}:{number}"
    run("finetune", out, "--epochs", "1")  # which finds the groups again
    again = tmp_path / "of-run"
    run("extract", folder, "--bias-from", f"{folder}:{number}", "--out", again, *QUICK)
    scores = [(place / "subnetwork/subnetwork.safetensors").read_bytes() for place in (out, again)]
    assert scores[0] == scores[1]


def test_groups_of_other_data_are_refused(kept, own, tmp_path):
    folder, _ = kept
    other = [*own[:-1], "test_find:others", "--out", tmp_path / "run"]
    assert "was found on other data than these; run bise find on these data" in sentence(
        "extract", *other, "--bias-from", f"{folder}:1"
    )
    assert not (tmp_path / "run").exists()


def others(split):
    data = hidden(split)
    return Labelled(TensorDataset(data.dataset.tensors[0] + 1), y=data.y, classes=3)


def test_a_run_without_a_network_has_nothing_to_verify(kept):
    folder, _ = kept
    assert "looks for a bias, and keeps no network that could be checked" in sentence("verify", folder)


@pytest.mark.parametrize("text", ["found", "found:", ":2", "found:x", "found:0", "found:-1"])
def test_what_names_no_candidate_is_refused(text):
    with pytest.raises(bise.BadInput, match="names no candidate; write RUN:NUMBER, such as runs/found:2"):
        place_of(text)


def test_bad_input_at_the_command_line(kept, own, tmp_path):
    folder, _ = kept
    to = ["--out", tmp_path / "run"]
    assert "candidates; choose one from 1" in sentence("extract", *own, *to, "--bias-from", f"{folder}:99")
    assert "--bias-from gives a bias, and bise find looks for one; leave it out" in sentence(
        "find", *own, *to, "--bias-from", f"{folder}:1"
    )
    assert "holds no config.json" in sentence("extract", *own, *to, "--bias-from", f"{tmp_path}:1")
    assert "both say what the bias is" in sentence("extract", *own, *to, "--bias", "x", "--bias-from", f"{folder}:1")


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """The toy problem as a csv that says the colour, which the model doesn't read."""
    base = tmp_path_factory.mktemp("people")
    with (base / "people.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["person", *(f"x{i}" for i in range(8)), "kind", "colour", "same", "fold"])
        for part in ("train", "val", "test"):
            data = loud(part)
            for i, (x, y, b) in enumerate(data):
                kind, colour = ("ant", "bee", "cat")[y], ("blue", "green", "red")[b]
                writer.writerow([f"{part}{i}", *x.tolist(), kind, colour, "one", part])
    features = ["--features", ",".join(f"x{i}" for i in range(8))]
    return base, ["--data", base / "people.csv", "--target", "kind", "--split-column", "fold", *features]


def test_a_tables_columns_are_candidates_and_tell_others(people, model, tmp_path):
    base, data = people
    how = {"target": "kind", "split_column": "fold", "features": [f"x{i}" for i in range(8)]}
    train = bise.data.table(base / "people.csv", **how)
    net = trained(make(), train)
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    own = ["--model", "test_find:make", "--weights", tmp_path / "net.safetensors", *data]
    folder = tmp_path / "found"
    found = json.loads(run("find", *own, "--out", folder, "--json").stdout)["find"]
    names = {name: number for number, one in enumerate(found["candidates"], 1) for name in (one["name"], *one["also"])}
    assert "column colour" in names
    assert not {"column person", "column same", "column fold", "column kind"} & set(names)
    assert "x0" not in names
    run("extract", *own, "--bias-from", f"{folder}:{names['column colour']}", "--out", tmp_path / "run", *QUICK)
    told = bise.data.table(base / "people.csv", bias="colour", **how)
    python = bise.find(net, train, val=bise.data.table(base / "people.csv", split="val", **how))
    place = next(one for one in python if "column colour" in (one.name, *one.also))
    assert agreement(place.b, told.b) > 0.9
    assert agreement(place.label(train).b, told.b) > 0.9
    checked = run("data", "check", base / "people.csv", *data[2:], "--bias-from", f"{folder}:1")
    assert "extraction can work on it" in checked.stdout
