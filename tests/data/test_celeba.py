"""CelebA in its authors' layout: real JPEG files, both lists, both protocols, both ways to make a square."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from bise import BadInput, TrainConfig
from bise.cli.app import app
from bise.data import labels, load
from bise.data.core.sampling import sample_weights
from bise.data.sets.celeba import IMAGENET_MEAN, IMAGENET_STD, celeba, read_attributes, read_partition
from bise.engine.inputs import Inputs
from bise.engine.training import fit
from bise.methods.finetuning import owning

Image = pytest.importorskip("PIL.Image")

ATTRIBUTES = ["5_o_Clock_Shadow", "Blond_Hair", "Male", "Young"]
# (blond, male): how many in train, val, test
COUNTS = {(0, 0): (7, 5, 4), (0, 1): (6, 4, 5), (1, 0): (4, 3, 3), (1, 1): (2, 2, 2)}


def shade(number):
    return (10 * (number % 20), 40, 255 - 10 * (number % 20))


def write(root, *, csv=False, nested=False, counts=COUNTS):
    """The folder as it is unpacked; picture n is of one colour on its left half and black on its right."""
    folder = root / "celeba"
    pictures = folder / "img_align_celeba" / ("img_align_celeba" if nested else "")
    pictures.mkdir(parents=True)
    rows, parts = [], []
    number = 0
    for part in range(3):
        for (blond, male), each in counts.items():
            for _ in range(each[part]):
                number += 1
                name = f"{number:06}.jpg"
                rows.append((name, [-1, 2 * blond - 1, 2 * male - 1, 1 if number % 3 else -1]))
                parts.append((name, part))
                pixels = np.zeros((218, 178, 3), np.uint8)
                pixels[:, :89] = shade(number)
                Image.fromarray(pixels).save(pictures / name, quality=95)
    if csv:
        text = "image_id," + ",".join(ATTRIBUTES) + "\n"
        text += "".join(f"{name},{','.join(map(str, values))}\n" for name, values in rows)
        (folder / "list_attr_celeba.csv").write_text(text)
        (folder / "list_eval_partition.csv").write_text(
            "image_id,partition\n" + "".join(f"{name},{part}\n" for name, part in parts)
        )
    else:
        text = f"{len(rows)}\n{' '.join(ATTRIBUTES)} \n"
        text += "".join(f"{name} {' '.join(f'{v:2d}' for v in values)}\n" for name, values in rows)
        (folder / "list_attr_celeba.txt").write_text(text)
        (folder / "list_eval_partition.txt").write_text("".join(f"{name} {part}\n" for name, part in parts))
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write(tmp_path_factory.mktemp("celeba"))


@pytest.mark.parametrize(("split", "part"), [("train", 0), ("val", 1), ("test", 2)])
def test_official_split_and_labels(root, split, part):
    cells = labels(load("celeba", split=split, root=root))
    assert cells.counts.tolist() == [counts[part] for counts in COUNTS.values()]
    # blond women and men of other hair are aligned
    assert cells.aligned_bias.tolist() == [[1, 0]]


def test_splits_as_in_the_authors_code_drawn_as_pandas_draws(tmp_path):
    pandas = pytest.importorskip("pandas")
    counts = {(0, 0): (17, 5, 4), (0, 1): (12, 4, 5), (1, 0): (14, 3, 3), (1, 1): (11, 2, 2)}
    root = write(tmp_path, counts=counts)
    sets = {s: load("celeba", split=s, protocol="authors", root=root, seed=3) for s in ("train", "val", "test")}
    # val: a fifth of the smallest cell, int(2.2), of each; train is the rest; test: the official val, equally
    assert labels(sets["val"]).counts.tolist() == [2, 2, 2, 2]
    assert labels(sets["train"]).counts.tolist() == [15, 10, 12, 9]
    assert labels(sets["test"]).counts.tolist() == [2, 2, 2, 2]
    assert (sets["train"].transform.flip, sets["val"].transform.flip) == (True, False)
    files = {split: sorted(data.dataset.paths) for split, data in sets.items()}
    assert not set(files["train"]) & set(files["val"])
    lines = [line.split() for line in (root / "celeba/list_attr_celeba.txt").read_text().splitlines()[2:]]
    parts = dict(line.split() for line in (root / "celeba/list_eval_partition.txt").read_text().splitlines())
    frame = pandas.DataFrame([(name, int(v[1]), int(v[2])) for name, *v in lines], columns=["image", "blond", "male"])
    for split, official, size in (("val", "0", 2), ("test", "1", 2)):
        part = frame[frame["image"].map(parts) == official]
        alike = [group.sample(size, random_state=3) for _, group in part.groupby(["blond", "male"])]
        assert files[split] == sorted(name for group in alike for name in group["image"])
    other = load("celeba", split="val", protocol="authors", root=root, seed=4)
    assert sorted(other.dataset.paths) != files["val"]
    with pytest.raises(BadInput, match="of which the smallest has 2 here, too few"):
        load("celeba", split="train", protocol="authors", root=write(tmp_path / "few"))


def test_weights_are_a_quarter_of_the_inverse_share(root):
    cells = labels(load("celeba", split="train", root=root))
    weights = sample_weights(cells, "paper")
    assert float(weights.sum()) == pytest.approx(19)
    assert float(weights[cells.index == 3][0]) == pytest.approx(19 / (4 * 2))


def test_equal_groups(root):
    first, again = (load("celeba", split="test", protocol="equal", root=root, seed=seed) for seed in (0, 1))
    assert labels(first).counts.tolist() == [2, 2, 2, 2]
    assert list(first.dataset.paths) == list(again.dataset.paths)
    assert labels(load("celeba", split="train", protocol="equal", root=root)).counts.tolist() == [7, 6, 4, 2]


def test_pictures_are_streamed_squashed_and_normalised(root):
    data = load("celeba", split="train", root=root)
    assert data.tensors is None
    raw = data.dataset[4]
    assert raw.dtype == torch.uint8
    assert raw.shape == (3, 224, 224)
    assert (raw[:, 100, 20].float() - torch.tensor(shade(5))).abs().max() < 6
    assert raw[:, 100, 200].max() < 6
    x, y, b = data[4]
    assert (y, b) == (0, 0)
    expected = (raw / 255 - torch.tensor(IMAGENET_MEAN)[:, None, None]) / torch.tensor(IMAGENET_STD)[:, None, None]
    assert torch.allclose(x, expected, atol=1e-6)
    assert data.transform.flip
    assert not load("celeba", split="test", root=root).transform.flip


def test_training_pictures_are_mirrored_half_of_the_time(root):
    inputs = Inputs(load("celeba", split="train", root=root), torch.device("cpu"))
    order = torch.zeros(200, dtype=torch.long)
    x, _ = next(inputs.batches(order, 200, torch.Generator().manual_seed(0)))
    bright = x[:, 2, 100, 20] > 0  # the coloured half is on the left, unless the picture is mirrored
    assert 70 < int(bright.sum()) < 130
    x, _ = next(inputs.batches(order[:5], 5))
    assert bool((x[:, 2, 100, 20] > 0).all())


def test_the_middle_square_against_torchvision(tmp_path):
    from bise.network.architectures.vision import torchvision

    torchvision()
    from torchvision import transforms

    pixels = np.random.default_rng(0).integers(0, 256, (218, 178, 3), np.uint8)
    path = write(tmp_path) / "celeba/img_align_celeba/000001.jpg"
    Image.fromarray(pixels).save(path)
    steps = {
        "squash": [transforms.Resize((224, 224))],
        "crop": [transforms.CenterCrop(178), transforms.Resize((224, 224))],
    }
    for preprocessing, chain in steps.items():
        oracle = transforms.Compose([*chain, transforms.PILToTensor()])(Image.open(path))
        data = celeba("train", preprocessing=preprocessing, root=tmp_path)
        assert torch.equal(data.dataset[0], oracle)


def test_csv_lists_and_nested_pictures_read_alike(root, tmp_path):
    other = write(tmp_path, csv=True, nested=True)
    for split in ("train", "test"):
        a, b = load("celeba", split=split, root=root), load("celeba", split=split, root=other)
        assert torch.equal(a.y, b.y)
        assert torch.equal(a.b, b.b)
        assert torch.equal(a.dataset[0], b.dataset[0])


def test_other_attributes_measure_alignment_on_train(root):
    data = celeba("test", target="Male", bias="Blond_Hair", root=root)
    # in train blond is more frequent among women, so women (Male=0) go with blond and men with other hair
    assert labels(data).aligned_bias.tolist() == [[1, 0]]
    with pytest.raises(BadInput, match="no attribute 'Bald'; it has 5_o_Clock_Shadow, Blond_Hair"):
        celeba("test", target="Bald", root=root)


def test_training_from_disk_works(root):
    torch.manual_seed(0)
    model = owning(torch.nn.Sequential(torch.nn.AvgPool2d(112), torch.nn.Flatten(), torch.nn.Linear(12, 2)))
    data = load("celeba", split="train", root=root)
    history = fit(model, Inputs(data, torch.device("cpu")), labels(data), TrainConfig(epochs=2, batch_size=8))
    assert len(history) == 2


def test_the_recipe_trains_from_these_files(root, tmp_path):
    own = ["--data-root", root, "--weights", "scratch", "--device", "cpu", "--epochs", "1", "--limit", "8"]
    result = CliRunner().invoke(app, ["train", "celeba", *map(str, own), "--out", str(tmp_path / "run"), "--json"])
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["start"] == "scratch"
    assert summary["samples"] == {"train": 8, "test": 8}
    result = CliRunner().invoke(app, ["audit", "--from", str(tmp_path / "run"), "--json"])
    assert json.loads(result.stdout)["accuracy"] == pytest.approx(summary["vanilla"]["accuracy"])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"split": "valid"}, "split='valid'"),
        ({"protocol": "held-out"}, "protocol='held-out'"),
        ({"preprocessing": "pad"}, "preprocessing='pad'"),
    ],
)
def test_bad_arguments(root, options, expected):
    with pytest.raises(BadInput, match=expected):
        celeba(**({"split": "train", "root": root} | options))


def test_missing_and_broken_files_are_named(root, tmp_path):
    with pytest.raises(BadInput, match="rho=0.9 can't be set for celeba"):
        load("celeba", split="test", rho=0.9, root=root)
    with pytest.raises(BadInput, match="list_attr_celeba.txt does not exist; put CelebA's"):
        load("celeba", split="test", root=tmp_path)
    copy = write(tmp_path / "copy")
    pictures = copy / "celeba/img_align_celeba"
    data = load("celeba", split="train", root=copy)
    whole = (pictures / "000001.jpg").read_bytes()
    for content in (b"", b"no picture", whole[: len(whole) // 2]):
        (pictures / "000001.jpg").write_bytes(content)
        with pytest.raises(BadInput, match="000001.jpg can't be read as a picture"):
            data.dataset[0]
    (pictures / "000001.jpg").unlink()
    with pytest.raises(BadInput, match="000001.jpg can't be read as a picture .it does not exist"):
        data.dataset[0]
    (copy / "celeba/list_eval_partition.txt").write_text("000001.jpg 0\n999999.jpg 0\n")
    with pytest.raises(BadInput, match="999999.jpg has a partition and no attributes"):
        load("celeba", split="train", root=copy)
    (copy / "celeba/list_eval_partition.txt").write_text("000001.jpg 0\n")
    with pytest.raises(BadInput, match="no picture in the split 'test'"):
        load("celeba", split="test", root=copy)


# lists that are nearly right: a correct read, or a sentence

NAME = st.sampled_from(["000001.jpg", "000002.jpg", "a b.jpg", "../x.jpg", "", "é.jpg"])
VALUE = st.sampled_from(["1", "-1", "0", "2", "", "x", "1.0", " 1", "−1"])
QUIET = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read_or_refused(read, path):
    """What was read, or None and a sentence that names the file."""
    try:
        return read(path)
    except BadInput as error:
        message = str(error)
    assert str(path) in message
    return None


def mostly(good, bad):
    return st.one_of(good, good, good, bad)


@st.composite
def attribute_lists(draw):
    pick = draw(st.sampled_from([mostly, lambda good, bad: good]))  # half of them without a fault
    header = draw(pick(st.just(["Blond_Hair", "Male"]), st.lists(st.sampled_from(["Male", "Blond_Hair", "Hat"]))))
    n = draw(st.integers(0, 4))
    rows = []
    for i in range(n):
        values = [draw(pick(st.sampled_from(["1", "-1"]), VALUE)) for _ in header]
        values += draw(pick(st.just([]), st.lists(VALUE, max_size=2)))
        rows.append([draw(pick(st.just(f"{i:06}.jpg"), NAME)), *values])
    csv = draw(st.booleans())
    separator = "," if csv else " "
    lines = [separator.join(row) for row in rows]
    if csv:
        lines.insert(0, ",".join(["image_id", *header]))
    else:
        lines = [draw(pick(st.just(str(n)), st.sampled_from(["", "-1", "x", "99", "²"]))), " ".join(header), *lines]
    return csv, header, rows, draw(st.sampled_from(["\n", "\r\n"])).join(lines) + draw(st.sampled_from(["", "\n"]))


@QUIET
@given(attribute_lists())
def test_attribute_lists_are_read_right_or_refused(tmp_path, drawn):
    csv, header, rows, text = drawn
    path = tmp_path / f"list.{'csv' if csv else 'txt'}"
    path.write_bytes(text.encode())
    found = read_or_refused(lambda p: read_attributes(p, ("Blond_Hair", "Male")), path)
    event("refused" if found is None else "read")
    if found is None:
        return
    if not csv:  # blanks separate: without a name, the first value is one; and blank lines at the end are none
        rows = [" ".join(row).split() for row in rows]
        while rows and not rows[-1]:
            rows.pop()
    assert list(found) == [row[0].strip() for row in rows]
    for row in rows:
        for attribute, value in zip(("Blond_Hair", "Male"), found[row[0].strip()], strict=True):
            assert int(row[1 + header.index(attribute)]) == 2 * value - 1


@QUIET
@given(
    st.booleans(),
    st.lists(st.tuples(mostly(st.just(None), NAME), mostly(st.sampled_from("012"), VALUE), st.booleans()), max_size=5),
)
@example(False, [(None, "0", False), ("", "", False)])
def test_partitions_are_read_right_or_refused(tmp_path, csv, drawn):
    rows = [(f"{i:06}.jpg" if name is None else name, value) for i, (name, value, _) in enumerate(drawn)]
    path = tmp_path / f"list.{'csv' if csv else 'txt'}"
    lines = [("," if csv else " ").join(row) for row in rows]
    path.write_text("\n".join(["image_id,partition", *lines] if csv else lines), encoding="utf-8")
    found = read_or_refused(read_partition, path)
    event("refused" if found is None else "read")
    if found is None:
        return
    while not csv and rows and not "".join(rows[-1]).strip():  # a blank line at the end
        rows.pop()
    assert list(found.items()) == [(name.strip(), int(value)) for name, value in rows]


@QUIET
@given(st.binary(max_size=200), st.sampled_from(["txt", "csv"]))
def test_any_bytes_are_refused_or_read(tmp_path, content, ending):
    path = tmp_path / f"list.{ending}"
    path.write_bytes(content)
    for read in (read_partition, lambda p: read_attributes(p, ("Male",))):
        assert isinstance(read_or_refused(read, path), dict | None)


def test_the_check_opens_its_pictures_and_names_its_labels(root, tmp_path):
    def check(where):
        return CliRunner().invoke(app, ["data", "check", "celeba", "--root", str(where), "--files"])

    found = check(root)
    assert found.exit_code == 0, found.output
    assert "Blond_Hair \\ Male" in found.output
    assert f"all {sum(sum(counts) for counts in COUNTS.values())} pictures can be read" in found.output
    copy = write(tmp_path)
    (copy / "celeba/img_align_celeba/000003.jpg").write_bytes(b"cut")
    broken = check(copy)
    assert broken.exit_code == 1
    assert "000003.jpg" in broken.output
