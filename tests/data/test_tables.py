"""One's own csv, parquet, folders: labels, splits and inputs by hand; and every broken file ends in one sentence."""

from __future__ import annotations

import csv
import json
import sys
import warnings

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

from bise import BadInput, BiseWarning
from bise.data import hugging_face, image_folder, labels, table
from bise.data.core.numbering import held_out, number_labels
from bise.data.core.pictures import check_pictures
from bise.data.facts import facts_of
from bise.data.own.coding import Coding
from bise.data.own.tables import read_table

PEOPLE = """age,job,sex,rich,part
20,cook,F,no,train
40,nurse,M,yes,train
,cook,F,no,train
30,judge,,yes,Validation
60,nurse,M,no,2
"""


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE)
    return path


def write(tmp_path, content, name="a.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_labels_splits_and_features_by_hand(people):
    whole = read_table(people, target="rich", bias="sex", split_column="part")
    train, val, test = (whole.split(name) for name in ("train", "val", "test"))
    assert whole.names.classes == ("no", "yes")
    assert whole.names.bias_classes == (("F", "M"),)
    assert (train.y.tolist(), train.b.tolist()) == ([0, 1, 0], [0, 1, 0])
    assert (val.y.tolist(), val.b.tolist()) == ([1], [-1])
    assert train.class_names == test.class_names
    # train's ages 20 and 40: mean 30, deviation 10; the cell that is empty takes the mean
    assert train.feature_names == ("age", "age missing", "job=cook", "job=nurse")
    assert train[0][0].tolist() == [-1, 0, 1, 0]
    assert train[2][0].tolist() == [0, 1, 1, 0]
    assert val[0][0].tolist() == [0, 0, 0, 0]  # no judge in train
    assert test[0][0].tolist() == [3, 0, 0, 1]
    assert labels(train).bias_classes == (2,)


def test_new_rows_are_encoded_as_the_training_rows_were(people):
    train = table(people, target="rich", bias="sex", split_column="part")
    rows = train.encoder({"age": [50, None], "job": ["nurse", "pilot"]})
    assert rows.tolist() == [[2, 0, 0, 1], [0, 1, 0, 0]]
    for bad, expected in (
        ({"age": [1]}, "there is no column 'job'"),
        (
            {"age": [1, "old"], "job": ["cook"]},
            "'age' holds 'old' in row 2, and in training it held numbers; write a number",
        ),
        ({"age": [1, 2], "job": ["cook"]}, "different lengths"),
    ):
        with pytest.raises(BadInput, match=expected):
            train.encoder(bad)


def test_named_features_and_a_bias_among_them(people):
    data = table(people, target="rich", bias=["sex", "job"], split_column="part", features=["age", "sex"])
    assert data.feature_names == ("age", "age missing", "sex=F", "sex=M")
    assert data[1][2] == (1, 2)
    assert data.bias_names == (("F", "M"), ("cook", "judge", "nurse"))


@pytest.mark.parametrize(
    ("values", "numbers", "names"),
    [
        (["b", "a", "", " b "], [1, 0, -1, 1], ("a", "b")),
        (["10", "9", "1.0", "1"], [2, 1, 0, 0], ("1", "9", "10")),
        (["True", "False"], [1, 0], ("False", "True")),
        (["1", "one"], [0, 1], ("1", "one")),
        (["-1", "1"], [0, 1], ("-1", "1")),
        (["1.0", "nan", "0.0", "NaN"], [1, -1, 0, -1], ("0", "1")),  # as numpy writes a gap
    ],
)
def test_labels_are_numbered_by_sorted_value(values, numbers, names):
    found, kept = number_labels(values, "column")
    assert found.tolist() == numbers
    assert kept == names


def test_a_gap_among_names_is_a_label_and_is_told_of():
    with pytest.warns(BiseWarning, match="column: 'nan' is taken for a label like the others; empty these cells"):
        found, kept = number_labels(["nan", "dad"], "column")
    assert (found.tolist(), kept) == ([1, 0], ("dad", "nan"))


@pytest.mark.parametrize(
    ("values", "known", "numbers"),
    [
        (["c", "b", ""], ("a", "b", "c"), [2, 1, -1]),  # a file without the first label
        (["3.0", "01"], ("1", "2", "3"), [2, 0]),
        (["01"], ("01", "x"), [0]),
    ],
)
def test_labels_that_are_known_keep_their_numbers(values, known, numbers):
    found, kept = number_labels(values, "column", known)
    assert (found.tolist(), kept) == (numbers, known)


def test_a_label_that_training_never_had_is_refused():
    with pytest.raises(BadInput, match=r"column holds 'd', which the training data didn't \(a, b\); leave these rows"):
        number_labels(["a", "d"], "column", ("a", "b"))


def test_new_rows_are_read_as_the_training_rows_were(tmp_path):
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_text("age,town,y,b\n10,A,ant,0\n20,B,bee,1\n30,A,cat,1\n")
    new.write_text("town,age,y,b\nB,50,cat,1\nC,20,bee,1\n")  # another order, mean and scale; no ant, no b = 0
    train = table(old, target="y", bias="b")
    with pytest.warns(BiseWarning, match=r"new.csv: cells are empty or hold a category .* in town \(50 %\), where"):
        found = table(new, target="y", bias="b", like=train)
    assert (found.y.tolist(), found.b.tolist()) == ([2, 1], [1, 1])
    assert (found.class_names, found.bias_names) == (train.class_names, train.bias_names)
    # (age − 20) / √(200/3), town=A, town=B
    expected = torch.tensor([[30 / (200 / 3) ** 0.5, 0, 1], [0, 0, 0]])
    assert torch.allclose(found.dataset.tensors[0], expected)
    again = Coding.of_facts(json.loads(json.dumps(facts_of(labels(train), train))))
    assert again == train.coding
    with pytest.raises(BadInput, match=r"new.csv is to be read as features, and the training data keep no way how"):
        table(new, target="y", bias="b", like=Coding(names=train.names))
    with pytest.raises(BadInput, match="2 biases are named, and the training data's were 'b'; name as many"):
        table(new, target="y", bias=["b", "town"], like=train)
    with pytest.raises(
        BadInput, match="the file has 'b' and 'y' for the training data's 'y' and 'b', target first; name"
    ):
        table(new, target="b", bias="y", like=train)
    new.write_text("age,part,y,b\n10,test,ant,0\n20,test,bee,1\n")
    with pytest.raises(BadInput, match="features are made by what the training rows hold, and there is none"):
        read_table(new, target="y", bias="b", split_column="part")


def test_features_that_can_not_be_made_are_named_with_their_file(tmp_path):
    train = table(write(tmp_path, "age,y,b\n1,0,0\n2,1,1\n"), target="y", bias="b")
    new = write(tmp_path, "age,y,b\n1,0,0\nold,1,1\n", "new.csv")
    with pytest.raises(BadInput, match=r"new.csv: column 'age' holds 'old' in row 2, and in training"):
        table(new, target="y", bias="b", like=train)
    with pytest.raises(BadInput, match=r"none.csv: no column is left for the features; name them with features=…"):
        table(write(tmp_path, "y,b\n0,0\n1,1\n", "none.csv"), target="y", bias="b")
    ids = write(tmp_path, "id,y,b\n" + "".join(f"n{i % 1001},{i % 2},{i % 3 % 2}\n" for i in range(1002)), "ids.csv")
    with pytest.raises(BadInput, match=r"ids.csv: column 'id' has 1,001 different texts, .* with features=…"):
        table(ids, target="y", bias="b")


def test_cells_of_new_rows_that_tell_nothing_are_told_of(tmp_path):
    """200 rows; of wage 20 % are empty in training, of the rest none."""
    head = "age,wage,town,y,b"
    rows = [
        [str(i + 0.5), "" if i % 5 == 0 else "7", "AB"[i % 2], "no" if i % 3 else "yes", str(i % 4 // 2)]
        for i in range(200)
    ]

    def file(change):
        lines = [
            ",".join(change(i, dict(zip(head.split(","), row, strict=True))).values()) for i, row in enumerate(rows)
        ]
        return write(tmp_path, "\n".join([head, *lines]))

    how = {"target": "y", "bias": "b"}
    train = table(file(lambda i, row: row), **how)
    assert [column.usual for column in train.encoder.columns] == [0, 0.2, 0]

    def told(change):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            table(file(change), **how, like=train)
        return [str(one.message) for one in found]

    assert told(lambda i, row: row) == []
    assert told(lambda i, row: row | {"town": "C" if i < 2 else row["town"]}) == []  # 1 %
    assert told(lambda i, row: row | {"wage": "" if i % 4 == 0 else "7"}) == []  # 25 %, hardly more
    (said,) = told(lambda i, row: row | {"town": row["town"].lower(), "age": "" if i < 10 else row["age"], "wage": ""})
    assert "in wage (100 %), town (100 %), age (5 %), where training had none or far fewer" in said
    assert "write them as the training data did" in said


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
def test_separators_line_ends_and_byte_order_marks(tmp_path, separator, end, start):
    lines = ["y,b,note", 'no,1,"two', 'lines"', "yes,2,plain", "", "no,2,ü"]
    path = write(tmp_path, start + end.join(lines).replace(",", separator) + end)
    data = table(path, target="y", bias="b", features=["note"])
    assert data.y.tolist() == [0, 1, 0]
    assert data.b.flatten().tolist() == [0, 1, 1]
    assert data.feature_names[1:] == (f"note=two{end}lines", "note=ü")


def test_parquet_reads_like_csv(people, tmp_path):
    frame = pandas.read_csv(people)
    frame["flag"] = [True, False, True, False, True]
    frame.to_parquet(tmp_path / "people.parquet")
    columns = {"target": "rich", "bias": ["sex"], "split_column": "part", "features": ["age", "job"]}
    ours, theirs = read_table(people, **columns), read_table(tmp_path / "people.parquet", **columns)
    assert torch.equal(ours.b, theirs.b)
    assert torch.equal(ours.split("train").tensors[0], theirs.split("train").tensors[0])
    flags = read_table(tmp_path / "people.parquet", target="flag", features=["age"])
    assert (flags.y.tolist(), flags.names.classes) == ([1, 0, 1, 0, 1], ("False", "True"))


BROKEN = {
    "empty": (b"", "is empty; it needs a header"),
    "blank lines": (b"\n\n", "is empty; it needs a header"),
    "header only": (b"y,b\n", "has a header and no rows"),
    "missing column": (b"why,b\n1,2\n", r"has no column 'y'; it has 'why', 'b'"),
    "duplicate column": (b"y,b,b\n1,2,3\n", "two columns named 'b'"),
    "ragged": (b"y,b\n1,2\n\n1,2,3\n", r"line 4: 3 fields where the header has 2"),
    "ragged after a quoted line end": (b'y,b\n"1\n",2\n1\n', r"line 4: 1 fields where the header has 2"),
    "latin-1": ("y,b\n1,ü\n".encode("latin-1"), r"line 2 is not UTF-8 \(byte 0xfc\)"),
    "utf-16": ("y,b\n1,2\n".encode("utf-16"), "UTF-8"),
    "NUL": (b"y,b\n1,\x00\n", "line 2 holds a NUL byte"),
    "huge field": (b"y,b\n1," + b"a" * 200_000 + b"\n", "line 2: a field is longer than 131,072"),
    "open quotes": (b'y,b\n1,"2\n3,4\n', "line 2: quotes that open in this row never close"),
    "stray quotes": (b'y,b\n1,"2"2\n', "line 2: .*doubled"),
    "line ends of old Macs": (b"y,b\r1,2\r0,3\r", r"line 1 holds \\r without \\n, .*with \\n or \\r\\n line ends$"),
    "one such line end": (b"y,b\n1,2\r0,3\n", r"line 2 holds \\r without \\n"),
    "gzip": (b"\x1f\x8b\x08abc", "is gzip-compressed, not a csv"),
    "excel": (b"PK\x03\x04abc", "Excel file, not a csv"),
    "parquet": (b"PAR1abc", "parquet file, not a csv"),
    "one class": (b"y,b\n1,2\n1,3\n", r"column 'y' holds one class only \('1'\)"),
    "missing target": (b"y,b\n1,2\n,3\n0,2\n", r"column 'y' is empty in 1 of 3 rows \(rows 2\)"),
    "no bias at all": (b"y,b\n1,\n0,\n", "column 'b' is empty in every row"),
    "fractions": (b"y,b\n1,2\n0.5,3\n", "column 'y' holds 0.5, which is no whole number"),
    "too many classes": (b"y,b\n" + b"".join(b"%d,0\n" % i for i in range(1001)), "1,001 different values .*wrong col"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_ends_in_one_sentence(case, tmp_path):
    content, expected = BROKEN[case]
    with pytest.raises(BadInput, match=expected) as caught:
        read_table(write(tmp_path, content), target="y", bias="b", labels_only=True)
    assert "\n" not in str(caught.value)
    assert "a.csv" in str(caught.value)


def test_other_things_that_are_no_table(tmp_path):
    with pytest.raises(BadInput, match="nowhere.csv does not exist"):
        table(tmp_path / "nowhere.csv", target="y")
    with pytest.raises(BadInput, match="is a folder"):
        table(tmp_path, target="y")
    with pytest.raises(BadInput, match="no readable parquet file"):
        table(write(tmp_path, b"y,b\n", "a.parquet"), target="y")


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"target": "rich", "bias": "rich"}, "'rich' is named for two purposes"),
        ({"target": "rich", "image": "job", "text": "job"}, "name one of them only"),
        ({"target": "rich", "split_column": "part", "holdout": (0.1, 0.1)}, "one of them only"),
        ({"target": "rich", "split_column": "job"}, "'cook', 'nurse', 'judge'; a split is train, val or test"),
        ({"target": "rich", "holdout": (0.5, 0.5)}, "leaves no row to train on"),
        ({"target": "rich", "features": ["rich", "age"]}, "would read its answer"),
        ({"target": "rich", "image": "job"}, "pictures need a size"),
        ({"target": "rich", "text": "job"}, "text needs a tokenizer"),
        ({"target": "rich", "text": "job", "tokenizer": "no.txt"}, "tokenizer='no.txt' does not exist"),
        ({"target": "rich", "split": "dev"}, "split='dev' is unknown"),
        ({"target": "rich", "split": "val"}, "has no row of split 'val'"),
        ({"target": "rich", "separator": "||"}, "is not one character"),
    ],
)
def test_arguments_that_make_no_sense(people, how, expected):
    with pytest.raises(BadInput, match=expected):
        table(people, **how)


def test_a_holdout_is_the_same_for_the_same_seed():
    part = held_out(1000, (0.1, 0.2), 7)
    assert torch.equal(part, held_out(1000, (0.1, 0.2), 7))
    assert not torch.equal(part, held_out(1000, (0.1, 0.2), 8))
    assert torch.bincount(part).tolist() == [700, 100, 200]


def test_row_numbers_are_no_feature(tmp_path):
    path = write(tmp_path, ",y,b,x\n0,1,0,5\n1,0,1,6\n")
    with pytest.warns(BiseWarning, match="without a name"):
        assert table(path, target="y", bias="b").feature_names == ("x",)


def test_constant_and_odd_numbers(tmp_path):
    path = write(tmp_path, "y,c,big\n1,0.1,1e29\n0,0.1,nan\n1,0.1,-1e29\n")
    data = table(path, target="y")
    assert data.feature_names == ("c", "big", "big missing")
    assert data.tensors[0].isfinite().all()
    assert data.tensors[0][:, 0].abs().max() < 1e-6
    with pytest.raises(BadInput, match="holds 1e300 in row 2, too large"):
        table(write(tmp_path, "y,c\n1,2\n0,1e300\n"), target="y")


def test_columns_that_only_look_like_numbers(tmp_path):
    with pytest.raises(BadInput, match="column 'c' holds 1,5, a number with a comma"):
        table(write(tmp_path, "y;c\n1;2\n0;1,5\n"), target="y")
    rows = "".join(f"{i % 2},{i}\n" for i in range(20))
    with pytest.warns(BiseWarning, match="'c' is taken for categories, since it holds 'n/a'"):
        assert len(table(write(tmp_path, f"y,c\n{rows}1,n/a\n"), target="y").feature_names) == 21


def test_pictures_of_a_table_come_from_beside_it_or_from_root(tmp_path):
    (tmp_path / "in").mkdir()
    for i in range(2):
        Image.fromarray(np.full((2, 2, 3), 255 * i, np.uint8)).save(tmp_path / f"in/{i}.png")
    path = write(tmp_path, "f,y\nin/0.png,0\nin/1.png,1\n")
    data = table(path, target="y", image="f", size=2)
    assert [data[i][0].mean().item() for i in (0, 1)] == [0, 1]
    other = write(tmp_path, "f,y\n0.png,0\n1.png,1\n", "b.csv")
    assert table(other, target="y", image="f", size=(4, 3), fit="pad", root=tmp_path / "in")[1][0].shape == (3, 4, 3)
    with pytest.raises(BadInput, match=r"names no file in 1 of 2 rows \(row 2"):
        table(write(tmp_path, "f,y\n0.png,0\n,1\n", "c.csv"), target="y", image="f", size=2)


def test_text_by_a_function_of_ones_own(tmp_path):
    path = write(tmp_path, "s,y\nab,0\nabcde,1\n")
    data = table(path, target="y", text="s", tokenizer=lambda text: [ord(c) - 96 for c in text], length=4)
    assert data[0][0]["input_ids"].tolist() == [1, 2, 0, 0]
    assert data[0][0]["attention_mask"].tolist() == [1, 1, 0, 0]
    assert data[1][0]["input_ids"].tolist() == [1, 2, 3, 4]


@pytest.mark.data
def test_text_by_a_vocabulary(data_root, tmp_path):
    path = write(tmp_path, "s,y\nhello world,0\nbye,1\n")
    data = table(path, target="y", text="s", tokenizer=data_root / "bert/vocab.txt", length=6)
    # [CLS] hello world [SEP], as lines 102, 7593, 2089 and 103 of the vocabulary
    assert data[0][0]["input_ids"].tolist() == [101, 7592, 2088, 102, 0, 0]


@pytest.fixture
def animals(tmp_path):
    for split in ("train", "val"):
        for kind in ("cat", "dog"):
            (tmp_path / "pets" / split / kind).mkdir(parents=True)
            for i in range(2):
                picture = np.full((3, 3, 3), 100 * i, np.uint8)
                Image.fromarray(picture).save(tmp_path / f"pets/{split}/{kind}/{split}{kind}{i}.png")
    return tmp_path / "pets"


def test_a_folder_of_pictures_with_a_bias_csv(animals, tmp_path):
    rows = "file,place\ntrain/cat/traincat0.png,sofa\ntraincat1.png,lawn\ntraindog0.png,lawn\n"
    biases = write(tmp_path, rows, "bias.csv")
    (animals / "train/cat/notes.txt").write_text("x")
    with pytest.warns(BiseWarning, match=r"left out \(1 × .txt\)"):
        data = image_folder(animals, biases, size=3)
    assert data.class_names == ("cat", "dog")
    assert data.bias_names == (("lawn", "sofa"),)
    assert (data.y.tolist(), data.b.tolist()) == ([0, 0, 1, 1], [1, 0, 0, -1])
    assert data[1][0].mean().item() == pytest.approx(100 / 255)
    (animals / "train/cat/notes.txt").unlink()
    flat = image_folder(animals / "train", size=3)
    assert (len(flat), flat.b) == (4, None)
    for bad, expected in (
        ("file,place\nbird.png,x\n", "row 1: 'bird.png' is no picture of the folder; write its path below that, or"),
        ("file,place\ntraincat0.png,x\ntrain/cat/traincat0.png,y\n", "row 2: .* has a second row"),
        ("name,place\na,b\n", "has no column 'file'"),
        ("file\ntraincat0.png\n", "has no column beside 'file'"),
    ):
        with pytest.raises(BadInput, match=expected):
            image_folder(animals, write(tmp_path, bad, "bad.csv"), size=3)
    with pytest.raises(BadInput, match="no sample of split 'test'"):
        image_folder(animals, size=3, split="test")
    with pytest.raises(BadInput, match="holds no picture"):
        image_folder(tmp_path / "pets/train/cat", size=3)


def test_what_lies_beside_the_splits_of_a_folder_is_no_class(animals):
    (animals / "spare").mkdir()  # empty
    assert len(image_folder(animals, size=3)) == 4
    Image.fromarray(np.zeros((3, 3, 3), np.uint8)).save(animals / "spare/a.png")
    with pytest.raises(BadInput, match=r"holds splits \(train, val\) and 'spare' beside them, which is none; move"):
        image_folder(animals, size=3)


def test_a_folder_of_new_pictures_is_numbered_as_the_training_set(animals, tmp_path):
    train = image_folder(animals, write(tmp_path, "file,place\ntraincat0.png,sofa\ntraincat1.png,lawn\n"), size=3)
    for name in ("dog", "ant"):
        (tmp_path / "new" / name).mkdir(parents=True)
    Image.fromarray(np.zeros((3, 3, 3), np.uint8)).save(tmp_path / "new/dog/d.png")
    biases = write(tmp_path, "file,place\nd.png,sofa\n", "new.csv")
    found = image_folder(tmp_path / "new", biases, size=3, like=train)
    assert (found.y.tolist(), found.b.tolist()) == ([1], [1])
    Image.fromarray(np.zeros((3, 3, 3), np.uint8)).save(tmp_path / "new/ant/a.png")
    with pytest.raises(BadInput, match=r"holds 'ant', which the training data didn't \(cat, dog\)"):
        image_folder(tmp_path / "new", biases, size=3, like=train)


def test_folders_of_hugging_face(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    kinds = datasets.Features(
        {
            "img": datasets.Image(),
            "label": datasets.ClassLabel(names=["yes", "no"]),
            "sex": datasets.Value("string"),
            "age": datasets.Value("float64"),
        }
    )
    pictures = [Image.fromarray(np.full((2, 2, 3), 50 * i, np.uint8)) for i in range(4)]
    content = {"img": pictures, "label": [0, 1, 1, 0], "sex": ["m", "f", None, "m"], "age": [1.0, 3.0, None, 2.0]}
    one = datasets.Dataset.from_dict(content, features=kinds)
    datasets.DatasetDict({"train": one, "validation": one.select([0, 1])}).save_to_disk(tmp_path / "both")
    one.save_to_disk(tmp_path / "one")
    data = hugging_face(tmp_path / "both", target="label", bias="sex", image="img", size=2)
    assert (data.y.tolist(), data.b.tolist(), data.class_names) == ([0, 1, 1, 0], [1, 0, -1, 1], ("yes", "no"))
    assert data[2][0].mean().item() == pytest.approx(100 / 255)
    assert len(hugging_face(tmp_path / "both", target="label", split="val", features=["age"])) == 2
    held = hugging_face(tmp_path / "one", target="label", bias="sex", features=["age"], holdout=(0.25, 0.25))
    assert (len(held), held.feature_names) == (2, ("age", "age missing"))
    turned = kinds.copy()
    turned["label"] = datasets.ClassLabel(names=["no", "yes"])
    datasets.Dataset.from_dict(content | {"label": [1, 0, 0, 1]}, features=turned).save_to_disk(tmp_path / "turned")
    again = hugging_face(tmp_path / "turned", target="label", bias="sex", image="img", size=2, like=data)
    assert (again.y.tolist(), again.class_names) == ([0, 1, 1, 0], ("yes", "no"))
    for how, expected in (
        ({"target": "lable"}, "has no column 'lable'; it has 'label'"),
        ({"target": "label", "image": "age", "size": 2}, "not of the type Image"),
        ({"target": "label"}, "holds dict values"),
        ({"target": "label", "holdout": (0.1, 0.1)}, "has splits of its own"),
    ):
        with pytest.raises(BadInput, match=expected):
            hugging_face(tmp_path / "both", **how)
    empty = datasets.Dataset.from_dict(
        {"img": [None, pictures[0]], "y": [0, 1]},
        datasets.Features({"img": datasets.Image(), "y": datasets.Value("int64")}),
    )
    empty.save_to_disk(tmp_path / "empty")
    with pytest.raises(BadInput, match=r"empty, row 1 can't be read as a picture \(it is empty\)"):
        hugging_face(tmp_path / "empty", target="y", image="img", size=2)[0]
    with pytest.raises(BadInput, match="can't be read as a folder of datasets"):
        hugging_face(tmp_path / "nowhere", target="label")


def test_without_datasets_the_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(BadInput, match="the package datasets is not installed"):
        hugging_face(tmp_path, target="y")


def test_a_large_table_is_not_read_beyond_its_labels(tmp_path):
    path = tmp_path / "wide.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["y", "b", "f"])
        writer.writerows([i % 2, i % 3, f"picture {i}"] for i in range(10_000))
    whole = read_table(path, target="y", bias="b", image="f", labels_only=True)
    assert torch.bincount(whole.b.flatten()).tolist() == [3334, 3333, 3333]
    with pytest.raises(BadInput, match="has no column 'g'"):
        read_table(path, target="y", bias="b", image="g", labels_only=True)


@pytest.mark.parametrize("form", ["bytes", "struct", "paths"])
def test_pictures_inside_a_parquet_file(tmp_path, form):
    files = []
    for i in range(4):
        Image.fromarray(np.full((4, 6, 3), 60 * i, np.uint8)).save(tmp_path / f"{i}.png")
        files.append((tmp_path / f"{i}.png").read_bytes())
    cells = {
        "bytes": files,
        "struct": [{"bytes": content, "path": None} for content in files],
        "paths": [{"bytes": None, "path": f"{i}.png"} for i in range(3)] + [{"bytes": files[3], "path": "gone.png"}],
    }[form]
    path = tmp_path / "a.parquet"
    pandas.DataFrame({"y": ["a", "b"] * 2, "b": ["u", "u", "v", "v"], "img": cells}).to_parquet(path)
    data = table(path, target="y", bias="b", image="img", size=(4, 6))
    assert [int(data.dataset[i].float().mean()) for i in range(4)] == [0, 60, 120, 180]
    assert check_pictures(data.dataset) == {}
    broken = [files[0], b"no picture", None, files[3]] if form == "bytes" else [None, {"bytes": b"x", "path": None}] * 2
    pandas.DataFrame({"y": ["a", "b"] * 2, "b": ["u", "u", "v", "v"], "img": broken}).to_parquet(path)
    data = table(path, target="y", bias="b", image="img", size=4, fit="crop")
    assert len(check_pictures(data.dataset)) == (2 if form == "bytes" else 4)
    with pytest.raises(BadInput, match=r"a.parquet, row 2 can't be read as a picture \(it is no picture"):
        data[1]


def test_infinity_in_a_column_of_numbers_is_refused(tmp_path):
    rows = "".join(f"{i % 2},{i}\n" for i in range(20))
    for text in ("inf", "-Infinity", "1e400"):
        with pytest.raises(BadInput, match=f"column 'x' holds {text} in row 21, too large a number"):
            table(write(tmp_path, f"y,x\n{rows}1,{text}\n"), target="y")
    assert table(write(tmp_path, "y,x\n0,inf\n1,big\n"), target="y").feature_names == ("x=big", "x=inf")
