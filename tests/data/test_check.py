"""bise data check: what it counts, when it says that extraction can work, and its exit codes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import bise
from bise import BadInput
from bise.cli.app import app
from bise.cli.checked import check_lines
from bise.cli.flags import flagged
from bise.data import Labelled
from bise.data.own.check import check
from bise.data.own.tables import read_table
from conftest import toy


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def rows_of(counts):
    """y and b of a table {(y, b): samples}."""
    return zip(*(cell for cell, count in counts.items() for _ in range(count)), strict=True)


def data(counts):
    y, b = rows_of(counts)
    return Labelled(range(len(y)), y=y, b=b, classes=2, bias_classes=3)


@pytest.fixture
def people(tmp_path):
    """40 aligned and 25 + 3 conflicting rows of train, two without a bias; four rows of val."""
    lines = ["rich,sex,part,x"]
    for rich, sex, part, count in (
        ("no", "F", "train", 20), ("yes", "M", "train", 20), ("no", "M", "train", 25), ("yes", "F", "train", 3),
        ("yes", "", "train", 2), ("no", "F", "val", 2), ("yes", "M", "val", 2),
    ):  # fmt: skip
        lines += [f"{rich},{sex},{part},{i}" for i in range(count)]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(lines))
    return path


def test_counts_by_hand():
    found = check({"train": data({(0, 0): 50, (0, 1): 5, (1, 1): 30, (1, 0): 25, (1, 2): 10})})
    split = found.splits["train"]
    assert split.samples == 120
    assert dict(split.cells)["0", "1"] == 5
    assert (split.empty, split.empty_cells) == (1, (("0", "2"),))
    # P(b|y)/P(b): for y = 0 b = 0 leads; for y = 1 it is b = 2, which no other class has
    assert split.conflicting == (5 + 30 + 25,)
    assert split.rho == (0.5,)
    assert split.imbalance == 10
    assert found.works
    assert any("1 conflicting cell of b with fewer than 20 samples (y = 0, b = 1 has 5)" in w for w in found.warnings)
    assert any("no val split: the last mask" in w for w in found.warnings)


@pytest.mark.parametrize(
    ("counts", "obstacle"),
    [
        ({(0, 0): 5, (1, 1): 5}, "no sample of train conflicts with b"),
        ({(0, 0): 5, (0, 1): 5}, "train holds one class only"),
        ({(0, -1): 5, (1, -1): 5}, "no row of train has a bias label"),
    ],
)
def test_obstacles(counts, obstacle):
    found = check({"train": data(counts)})
    assert not found.works
    assert obstacle in found.obstacles[0]


def test_one_conflicting_b_only_is_a_warning_where_there_are_several():
    one = check({"train": data({(0, 0): 50, (0, 1): 30, (1, 1): 50})})
    assert one.works
    assert not any("mutual information" in w for w in one.warnings)  # even draws have other samples to measure over
    y, first = torch.tensor([0] * 80 + [1] * 50), torch.tensor([0] * 50 + [1] * 30 + [1] * 50)
    second = torch.cat([first[:40], 1 - first[40:60], first[60:120], 1 - first[120:]])
    both = Labelled(TensorDataset(torch.zeros(130, 1)), y=y, b=torch.stack([first, second], 1))
    found = check({"train": both})
    assert found.works
    said = [w for w in found.warnings if "the mutual information over them is zero" in w]
    assert len(said) == 1
    assert said[0].startswith("all 30 conflicting samples share b[0]=1")


def test_a_class_that_val_lacks_is_told_of():
    train = data({(0, 0): 30, (0, 1): 5, (1, 0): 5, (1, 1): 30})
    said = "val lacks classes of train (1), so no mask is judged by these; add samples of them"
    assert said in check({"train": train, "val": data({(0, 0): 3, (0, 1): 3})}).warnings
    aligned = data({(0, 0): 3, (1, 1): 3})
    found = check({"train": train, "val": aligned, "test": aligned}).warnings
    assert said not in found
    missing = "has no sample that conflicts with b, so"
    assert any(w.startswith(f"val {missing} no mask is judged by such") for w in found)
    assert any(w.startswith(f"test {missing} no figure is about such") for w in found)
    whole = data({(0, 0): 3, (0, 1): 3, (1, 1): 3})
    assert not any(missing in w for w in check({"train": train, "val": whole, "test": whole}).warnings)


def test_a_value_of_the_bias_that_val_or_test_lacks_is_told_of():
    train = data({(0, 0): 30, (0, 1): 30, (0, 2): 30, (1, 0): 30, (1, 1): 40, (1, 2): 30})
    one = data({(0, 0): 3, (1, 0): 3})
    found = check({"train": train, "val": one, "test": data({(0, 0): 3, (0, 2): 1, (1, 1): 3})}).warnings
    assert "val has no sample of b = 1, 2, so no mask is judged by these; add samples of them" in found
    assert not any("test has no sample of b" in w for w in found)
    found = check({"train": train, "val": train, "test": one}).warnings
    assert "test has no sample of b = 1, 2, so no figure is about these; add samples of them" in found


def test_a_class_that_train_lacks_is_an_obstacle():
    whole = {"train": data({(0, 0): 30, (0, 1): 30}), "val": data({(1, 0): 3})}
    assert any("val holds class 1, which train lacks" in o for o in check(whole).obstacles)
    assert check({"val": data({(1, 0): 3})}).obstacles[0] == "there is no training split"


def test_data_without_any_bias_is_refused():
    with pytest.raises(BadInput, match="there is no bias to check"):
        check({"train": Labelled(TensorDataset(torch.zeros(2, 1)), y=[0, 1])})


def test_the_alignment_is_the_training_sets():
    found = check({"train": toy(rho=0.95), "test": toy(rho=0, seed=1)})
    assert found.splits["test"].rho[0] < 0.1


def test_names_and_rows_without_bias_at_the_command_line(people):
    result = run("data", "check", people, "--target", "rich", "--bias", "sex", "--split-column", "part")
    assert result.exit_code == 0, result.output
    assert "rich \\ sex   F   M" in result.stdout
    assert "2 rows without a bias label" in result.stdout
    assert "rich = yes, sex = F has 3" in result.stdout.replace("\n  ", " ")
    assert "extraction can work on it" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    told = json.loads(
        run("data", "check", people, "--target", "rich", "--bias", "sex", "--split-column", "part", "--json").stdout
    )
    assert told["works"]
    assert told["splits"]["train"]["without_bias"] == 2
    assert [["yes", "F"], 3] in told["splits"]["train"]["cells"]


def test_exit_codes(people, tmp_path):
    hopeless = tmp_path / "hopeless.csv"
    hopeless.write_text("x,y,b\n5,0,0\n6,1,1\n")
    result = run("data", "check", hopeless, "--target", "y", "--bias", "b")
    assert result.exit_code == 1
    assert "extraction can't work on it" in result.stdout
    for arguments, expected in (
        ([people], "needs a target; name its column with --target"),
        ([people, "--target", "rich", "--split-column", "part"], "there is no bias to check"),
        ([people, "--target", "rich", "--bias", "sexe"], "has no column 'sexe'; it has 'sex'"),
        ([tmp_path / "no.csv", "--target", "y"], "is no file or folder, no data set (biased-mnist"),
        ([people, "--target", "rich", "--rho", "1"], "is a table, for which --rho has no meaning"),
        (
            [people, "--target", "rich", "--bias", "sex", "--ignore", "part", "--files"],
            "name their column with --image",
        ),
        ([people, "--target", "rich", "--bias", "sex", "--holdout", "0.1"], "--holdout '0.1' has 1 numbers"),
        (["test_check:data", "--target", "rich"], "is a function, for which --target has no meaning"),
    ):
        result = run("data", "check", *arguments)
        assert result.exit_code == 2, result.output
        (line,) = result.stderr.strip().splitlines()
        assert expected in line


def table_of(path, column, rows=1200):
    """A csv that is fit but for what `column` makes of each row's number."""
    lines = [f"{column(i)},{i % 2},{(i % 2) ^ (i % 5 == 0):d},{('train', 'val', 'test')[i % 3]}" for i in range(rows)]
    path.write_text("\n".join(["x,y,b,part", *lines]))
    return path


@pytest.mark.parametrize(
    ("column", "refused"),
    [
        (lambda i: i % 400, None),
        (lambda i: "inf" if i == 7 else i, "column 'x' holds inf in row 8, too large a number for a feature"),
        (lambda i: f'"{i % 9},000"', "column 'x' holds 0,000, a number with a comma"),
        (lambda i: f"name {i}" if i % 3 == 0 else "?", None),  # 400 texts of train, and one more
        (lambda i: f"name {i}" if i < 1001 else "?", None),  # a third of them in train
        (lambda i: f"name {i % 3002}", "column 'x' has 1,001 different texts, too many for one-hot features"),
    ],
)
def test_features_that_extraction_would_refuse_are_refused_here(tmp_path, column, refused):
    rows = 3003 if refused and "texts" in refused else 1200
    path = table_of(tmp_path / "a.csv", column, rows)
    result = run("data", "check", path, "--target", "y", "--bias", "b", "--split-column", "part")
    if refused is None:
        assert result.exit_code == 0, result.output
        assert "extraction can work on it" in result.stdout
    else:
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"{path}: {refused}" in result.stderr
        with pytest.raises(BadInput) as error:  # as extraction reads it
            read_table(path, target="y", bias="b", split_column="part")
        assert result.stderr == f"bise: {flagged(str(error.value))}\n"


def test_a_table_without_training_rows_is_checked_by_its_labels(tmp_path):
    path = table_of(tmp_path / "a.csv", lambda i: i % 400)
    path.write_text(path.read_text().replace("train", "test"))
    result = run("data", "check", path, "--target", "y", "--bias", "b", "--split-column", "part")
    assert result.exit_code == 1
    assert "there is no training split" in result.stdout


@pytest.mark.parametrize(
    ("column", "again", "said"),
    [
        (lambda i: i, 4, ["4 of the 104 rows of test are in train too"]),
        (lambda i: i, 1, []),  # fewer than 1 %
        (lambda i: i % 2, 4, []),  # rows that repeat in train as well
    ],
)
def test_rows_of_two_splits_are_counted(tmp_path, column, again, said):
    """300 rows, then rows of train a second time, as test."""
    path = table_of(tmp_path / "a.csv", column, 300)
    head, *rows = path.read_text().splitlines()
    path.write_text("\n".join([head, *rows, *(row.replace("train", "test") for row in rows[: 3 * again : 3])]))
    splits = read_table(path, target="y", bias="b", split_column="part")
    found = check({name: splits.split(name) for name in ("train", "val", "test")}).warnings
    assert [w.partition(", so that")[0] for w in found if " too, so that" in w] == said


def test_many_cells_are_abbreviated(tmp_path):
    path = tmp_path / "many.csv"
    path.write_text("y,b,c\n" + "".join(f"{i % 7},{i % 11},long name of a city {i % 13}\n" for i in range(3000)))
    found = check({"train": read_table(path, target="y", bias=["b", "c"], labels_only=True).split("train")})
    lines = check_lines(found)
    assert any("more cells" in line for line in lines)
    assert max(map(len, lines)) <= 80
    assert len(lines) < 40


def test_long_names_stay_apart(tmp_path):
    path = tmp_path / "long.csv"
    long = "a name that goes on and on for longer than any line of the terminal would hold "
    path.write_text("y,b\n" + "".join(f"{long}{i % 2},{long}{i % 3}\n" for i in range(60)))
    lines = check_lines(check({"train": read_table(path, target="y", bias="b", labels_only=True).split("train")}))
    cells = [line for line in lines if " = " in line and "…" in line and "ρ" not in line]
    assert len(set(cells)) == 6
    assert max(map(len, lines)) <= 80


def test_pictures_are_opened_when_asked(tmp_path):
    rows = ["f,y,b"]
    for i in range(8):
        Image.fromarray(np.zeros((3, 3, 3), np.uint8)).save(tmp_path / f"{i}.png")
        rows.append(f"{i}.png,{i % 2},{i // 4}")
    (tmp_path / "3.png").write_bytes(b"")
    (tmp_path / "pictures.csv").write_text("\n".join(rows))
    arguments = ["data", "check", tmp_path / "pictures.csv", "--target", "y", "--bias", "b", "--image", "f"]
    assert run(*arguments).exit_code == 0
    result = run(*arguments, "--files")
    assert result.exit_code == 1
    assert "3.png (it is empty)" in result.stdout.replace("\n  ", " ")
    assert "1 of 8 files can't be read" in result.stdout
    Image.fromarray(np.zeros((3, 3, 3), np.uint8)).save(tmp_path / "3.png")
    assert "all 8 pictures can be read" in run(*arguments, "--files").stdout


def test_a_folder_of_pictures(tmp_path):
    rows = ["file,ground"]
    for i in range(12):
        kind = "cat" if i % 2 else "dog"
        (tmp_path / "pets" / kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((3, 3, 3), np.uint8)).save(tmp_path / f"pets/{kind}/{i}.png")
        rows.append(f"{i}.png,{'sofa' if i % 3 else 'lawn'}")
    (tmp_path / "bias.csv").write_text("\n".join(rows))
    asked = ["data", "check", tmp_path / "pets", "--bias-csv", tmp_path / "bias.csv"]
    assert run(*asked).exit_code == 0  # its labels alone
    result = run(*asked, "--files")
    assert result.exit_code == 0, result.output
    assert "class \\ ground  lawn  sofa" in result.stdout
    refused = run("data", "check", tmp_path / "pets")
    assert (refused.exit_code, "the csv that has it with --bias-csv" in refused.stderr) == (2, True)
    refused = run("data", "check", tmp_path / "pets", "--target", "y")
    assert "is a folder of pictures, for which --target has no meaning" in refused.stderr


@pytest.mark.data
def test_a_data_set_by_name():
    result = run("data", "check", "biased-mnist", "--rho", "0.999")
    assert result.exit_code == 0, result.output
    assert "ρ(colour) = 0.999" in result.stdout


@pytest.mark.parametrize("name", ["train", "val", "test"])
def test_a_split_without_any_bias_label_is_an_obstacle_and_refused(tmp_path, name):
    lines = ["x,y,b,part"]
    for part in ("train", "val", "test"):
        lines += [f"{i},{i % 2},{'' if part == name else (i % 2) ^ (i % 5 == 0)},{part}" for i in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    table = read_table(tmp_path / "a.csv", target="y", bias="b", split_column="part")
    splits = {part: table.split(part) for part in ("train", "val", "test")}
    assert any(f"no row of {name} has a bias label" in obstacle for obstacle in check(splits).obstacles)
    model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    work = {"test": lambda: bise.audit(model, splits["test"])}.get(
        name, lambda: bise.extract(model, splits["train"], val=splits["val"], config=bise.ExtractConfig(steps=1))
    )
    with pytest.raises(BadInput, match=f"no sample of {'data' if name == 'test' else name} has all its bias labels"):
        work()
