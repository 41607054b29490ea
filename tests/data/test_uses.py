"""Columns that would mislead: splits that nobody named stop a run, ids are no features, measurements are."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bise import BadInput, BiseWarning
from bise.data import hugging_face, image_folder, table
from bise.data.core.cells import Cells
from bise.data.core.guessing import guessed
from bise.data.own.uses import holds_splits, is_id, is_named_for_splits


@pytest.mark.parametrize(
    "name",
    [
        "split",
        "Split",
        "fold",
        "cv_fold",
        "kfold",
        "k-fold",
        "fold_id",
        "Partition",
        "data_split",
        "dataSplit",
        "fold 1",
    ],
)
def test_names_of_splits(name):
    assert is_named_for_splits(name)


@pytest.mark.parametrize(
    "name", ["fold_change", "split_time", "part", "x", "", "id", "blindfold", "set", "scaffold", "train", "splits_won"]
)
def test_names_of_something_else(name):
    assert not is_named_for_splits(name)


def test_cells_that_say_splits():
    assert holds_splits(["train", "val", " Test", "validation", "dev"])
    assert holds_splits(["test"])
    for other in (["0", "1", "2"], ["train", "bus"], ["train", ""], []):
        assert not holds_splits(other)


@given(st.lists(st.integers(-(10**9), 10**9), min_size=20, max_size=60, unique=True))
@settings(max_examples=30, deadline=None)
def test_whole_numbers_that_all_differ_are_ids_and_with_decimals_they_are_measurements(numbers):
    assert is_id(map(str, numbers))
    assert not is_id(f"{number}.5" for number in numbers)
    assert not is_id([*map(str, numbers), str(numbers[0])])
    assert not is_id([*map(str, numbers), ""])
    assert is_id(f"name {number}" for number in numbers)


def test_few_rows_tell_nothing_and_odd_cells_make_no_ids():
    assert not is_id(map(str, range(19)))
    assert is_id(map(str, range(20)))
    assert not is_id([*map(str, range(50)), "unknown"])  # numbers, but for a cell
    assert not is_id(str(0.1 * number) for number in range(50))


HEAD = "person,age,fold,y,b"


def rows(head=HEAD, count=60, fold=lambda i: ("train", "val", "test")[i % 3]):
    lines = (f"p{i},{i * 1.5},{fold(i)},{i % 2},{(i % 2) ^ (i % 5 == 0)}" for i in range(count))
    return "\n".join([head, *lines]) + "\n"


def file(tmp_path, text, name="a.csv"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_an_unnamed_column_of_splits_stops(tmp_path):
    how = {"target": "y", "bias": "b"}
    by_name = file(tmp_path, rows(fold=lambda i: i % 7))
    said = r"a.csv: column 'fold' is named like one of splits, and would be read by the model; name it with"
    with pytest.raises(BadInput, match=said):
        table(by_name, **how, ignore=["person"])
    by_cells = file(tmp_path, rows(HEAD.replace("fold", "stage")), "b.csv")
    with pytest.raises(BadInput, match="column 'stage' holds nothing but words for splits, such as train"):
        table(by_cells, **how, holdout=(0.1, 0.1), ignore=["person"])  # it would be a feature all the same
    assert table(by_cells, **how, split_column="stage", ignore=["person"]).feature_names == ("age",)
    assert table(by_cells, **how, ignore=["stage", "person"]).feature_names == ("age",)
    asked = table(by_cells, **how, ignore=["person"], features=["*", "stage"]).feature_names
    assert asked == ("age", "stage=test", "stage=train", "stage=val")
    with pytest.raises(
        BadInput, match=r"passed over, with every row for training; name it with split_column=…, draw splits with h"
    ):  # not a feature, but not split
        table(by_cells, **how, text="person", tokenizer=lambda text: [1])
    with pytest.raises(BadInput, match="passed over, with every row for training"):  # where others are listed
        table(by_name, **how, features=["age"])
    assert len(table(by_cells, **how, text="person", tokenizer=lambda text: [1], holdout=(0.1, 0.1)))
    with pytest.raises(BadInput, match="column 'stage' is to be ignored, and is named for a purpose too"):
        table(by_cells, **how, split_column="stage", ignore=["stage"])
    with pytest.raises(BadInput, match="has no column 'stag'; it has 'stage'"):
        table(by_cells, **how, ignore=["stag"])


def test_an_id_is_no_feature_unless_it_is_named(tmp_path):
    how = {"target": "y", "bias": "b", "split_column": "fold"}
    path = file(tmp_path, rows())
    with pytest.warns(BiseWarning, match=r"another value in every row of 'person', as ids have, so the model doesn't"):
        train = table(path, **how)
    assert train.feature_names == ("age",)  # another value in every row too, with decimals
    assert len(table(path, **how, features=["*", "person"]).feature_names) == 21  # the training rows' names
    assert table(path, **how, like=train, split="test").feature_names == ("age",)
    only = file(
        tmp_path, "".join(line.split(",")[0] + "," + ",".join(line.split(",")[2:]) + "\n" for line in rows().split())
    )
    with pytest.raises(
        BadInput, match=r"no column is left for the features, since there is another value in every row"
    ):
        table(only, **how)


def test_a_parquet_file_and_a_folder_of_datasets_are_judged_alike(tmp_path):
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    frame = pandas.read_csv(file(tmp_path, rows()))
    frame["case"] = range(len(frame))
    frame.to_parquet(tmp_path / "a.parquet")
    datasets.Dataset.from_pandas(frame, preserve_index=False).save_to_disk(str(tmp_path / "saved"))
    for read, path in ((table, tmp_path / "a.parquet"), (hugging_face, tmp_path / "saved")):
        with pytest.raises(BadInput, match="column 'fold' is named like one of splits"):
            read(path, target="y", bias="b")
        with pytest.warns(BiseWarning, match="another value in every row of 'person', 'case'"):
            found = read(path, target="y", bias="b", split_column="fold")
        assert found.feature_names == ("age",)  # floats, though some are whole
        assert (
            read(path, target="y", bias="b", split_column="fold", features=["age", "case"]).feature_names[1] == "case"
        )


def test_a_column_of_splits_is_no_bias(tmp_path):
    from PIL import Image

    for kind in "ab":
        (tmp_path / "pets" / kind).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "pets" / kind / f"{kind}.png")
    places = file(tmp_path, "file,place,split\na.png,in,train\nb.png,out,test\n")
    with pytest.raises(
        BadInput, match="column 'split' is named like one of splits, and would be taken for a bias; name"
    ):
        image_folder(tmp_path / "pets", places, size=4)
    assert image_folder(tmp_path / "pets", places, bias="place", size=4).names.biases == ("place",)


def test_which_alignment_is_a_guess():
    """χ² with one degree of freedom has its 99 % quantile at 6.635; of 2 N I below that, nothing is said to align."""
    import torch

    def cells(table):
        y, b = zip(*((y, b) for y, row in enumerate(table) for b, n in enumerate(row) for _ in range(n)), strict=True)
        return Cells.of(torch.tensor(y), torch.tensor(b))

    def statistic(table):
        total = sum(map(sum, table))
        across, down = [sum(row) for row in table], [sum(column) for column in zip(*table, strict=True)]
        terms = (
            n * math.log(n * total / (across[y] * down[b])) for y, row in enumerate(table) for b, n in enumerate(row)
        )
        return 2 * sum(terms)

    assert guessed(cells([[50, 50], [50, 50]])) == ("b",)
    assert statistic([[59, 41], [41, 59]]) < 6.635
    assert guessed(cells([[59, 41], [41, 59]])) == ("b",)
    assert statistic([[60, 40], [40, 60]]) > 8
    assert guessed(cells([[60, 40], [40, 60]])) == ()
    assert guessed(cells([[50, 50], [50, 50]]).realigned(torch.tensor([[0, 1]]))) == ()
