"""CIFAR-10 in its three forms, the corrupted sets made from it, their cache, the shared archive and contact sheets."""

from __future__ import annotations

import importlib
import pickle
import struct
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from bise import BadInput
from bise.base.errors import BiseWarning
from bise.cli.app import app
from bise.data import labels, load
from bise.data.core.contract import stored
from bise.data.sets.cifar10 import cifar10
from bise.data.sets.corrupted_cifar10 import LISTS, corrupted_cifar10, milestones
from bise.data.sets.corruptions import CORRUPTIONS, corrupt

MODULE = importlib.import_module("bise.data.sets.corrupted_cifar10")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def batch(number, count=40):
    """Pictures [count, 3, 32, 32] and labels of a made-up batch, every class equally often."""
    generator = torch.Generator().manual_seed(number)
    x = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return x, torch.arange(count)[torch.randperm(count, generator=generator)] % 10


def python2_pickle(x, y, note):
    """What Python 2 wrote in protocol 2 for {"data": array, "labels": list, "batch_label": str, "filenames": list}."""

    def short(text):
        return b"U" + bytes([len(text)]) + text

    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87R(K\x01"
    array += b"M" + struct.pack("<H", len(x)) + b"M" + struct.pack("<H", 3072) + b"\x86"
    array += b"cnumpy\ndtype\nq\x05U\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
    array += b"T" + struct.pack("<I", x.numel()) + x.numpy().tobytes() + b"tb"
    targets = b"]q\x07(" + b"".join(b"K" + bytes([v]) for v in y.tolist()) + b"e"
    names = b"]q\x08(" + b"".join(short(b"a_s_%06d.png" % i) for i in range(len(x))) + b"e"
    fields = [(b"data", array), (b"labels", targets), (b"batch_label", short(note)), (b"filenames", names)]
    return b"\x80\x02}q\x01(" + b"".join(short(key) + value for key, value in fields) + b"u."


def write_batches(root, form="py"):
    """Five batches of 40 and a test batch of 20, in the layout of the official archives; returns both splits."""
    folder = root / f"cifar-10-batches-{form}"
    folder.mkdir(parents=True)
    splits = {"train": [batch(i) for i in range(1, 6)], "test": [batch(9, 20)]}
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    for name, (x, y) in zip(names, splits["train"] + splits["test"], strict=True):
        if form == "py":
            (folder / name).write_bytes(python2_pickle(x.flatten(1), y, b"training batch 1 of 5"))
        else:
            records = torch.cat([y.to(torch.uint8)[:, None], x.flatten(1)], 1)
            (folder / f"{name}.bin").write_bytes(records.numpy().tobytes())
    return {split: tuple(torch.cat(part) for part in zip(*parts, strict=True)) for split, parts in splits.items()}


def test_our_hand_written_pickle_is_one():
    x, y = batch(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy has moved what the official files name
        content = pickle.loads(python2_pickle(x.flatten(1), y, b"training batch 1 of 5"), encoding="bytes")
    assert np.array_equal(content[b"data"], x.flatten(1))
    assert content[b"labels"] == y.tolist()


@pytest.mark.parametrize("form", ["py", "bin"])
@pytest.mark.parametrize("inner", ["", "cifar10"])
def test_official_files(tmp_path, form, inner):
    written = write_batches(tmp_path / inner, form)
    for split, (x, y) in written.items():
        source = cifar10(split, tmp_path)
        assert torch.equal(source.images(), x)
        assert torch.equal(source.labels(), y)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_files_that_python_3_pickled_again(tmp_path, protocol):
    write_batches(tmp_path)
    x, y = batch(3, 20)
    content = {"batch_label": "testing", "labels": y.tolist(), "data": x.flatten(1).numpy(), "filenames": ["labels_0"]}
    (tmp_path / "cifar-10-batches-py/test_batch").write_bytes(pickle.dumps(content, protocol=protocol))
    assert torch.equal(cifar10("test", tmp_path).images(), x)
    assert torch.equal(cifar10("test", tmp_path).labels(), y)


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("the pickle was carried out",))


def test_no_pickle_is_ever_carried_out(tmp_path):
    write_batches(tmp_path)
    x, y = batch(3, 20)
    content = {"labels": y.tolist(), "data": x.flatten(1).numpy(), "filenames": Evil()}
    (tmp_path / "cifar-10-batches-py/test_batch").write_bytes(pickle.dumps(content, protocol=4))
    assert torch.equal(cifar10("test", tmp_path).labels(), y)


@pytest.mark.parametrize("form", ["py", "bin"])
def test_broken_files_are_named(tmp_path, form):
    with pytest.raises(BadInput, match="no CIFAR-10 test split"):
        cifar10("test", tmp_path)
    write_batches(tmp_path, form)
    path = tmp_path / f"cifar-10-batches-{form}" / ("test_batch" + (".bin" if form == "bin" else ""))
    whole = path.read_bytes()
    for content in (b"", b"nonsense", whole[:-100], whole[: len(whole) // 2 + 7], pickle.dumps({"labels": [1, 2]})):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="test_batch"):
            cifar10("test", tmp_path).images()
    x, y = batch(1, 20)
    path.write_bytes(python2_pickle(x.flatten(1), y + 5, b"") if form == "py" else b"\x0f" + b"\0" * 3072)
    with pytest.raises(BadInput, match="holds the label"):
        cifar10("test", tmp_path).labels()


def test_mosaics(tmp_path):
    folder = tmp_path / "cifar10"
    folder.mkdir()
    x, y = batch(4, 1000)
    mosaic = np.zeros((16000, 64, 3), np.uint8)
    for i, picture in enumerate(x.permute(0, 2, 3, 1).numpy()):
        row, column = i % 500, i // 500
        mosaic[32 * row : 32 * row + 32, 32 * column : 32 * column + 32] = picture
    Image.fromarray(mosaic).save(folder / "images_test.webp", lossless=True)
    np.savez(folder / "labels.npz", y_test=y.numpy().astype(np.uint8))
    source = cifar10("test", tmp_path)
    assert torch.equal(source.images(), x)
    assert torch.equal(source.labels(), y)
    np.savez(folder / "labels.npz", other=y.numpy())
    with pytest.raises(BadInput, match="y_test"):
        source.labels()
    Image.fromarray(mosaic[:640]).save(folder / "images_test.webp", lossless=True)
    with pytest.raises(BadInput, match="images_test.webp is 64 × 640 pixels"):
        source.images()


def test_milestones_by_hand():
    y = torch.arange(10).repeat(5000)  # CIFAR-10's 5,000 of each class
    for rho, conflicting in ((0.95, 2500), (0.98, 1000), (0.99, 500), (0.995, 250)):
        b = milestones(y, rho)
        assert int((b != y).sum()) == conflicting
    b = milestones(y, 0.95)
    # 5,000 · 0.05 / 9 = 27.8, so that class 3 changes after 28, 56, 83, then after 4,750 more, …
    assert b[y == 3].unique_consecutive(return_counts=True)[1].tolist() == [28, 28, 27, 4750, 28, 28, 28, 27, 28, 28]
    assert b[y == 3].unique_consecutive().tolist() == list(range(10))
    even = milestones(torch.arange(10).repeat(1000), 0.1)
    assert torch.bincount(torch.arange(10).repeat(1000) * 10 + even).tolist() == [100] * 100
    assert torch.equal(milestones(y, 1.0), y)
    assert not (milestones(y, 0.0) == y).any()


def test_lists_name_corruptions_and_classes_go_with_their_own():
    for names in LISTS.values():
        assert len(names) == 10
        assert set(names) <= set(CORRUPTIONS)
    assert set(LISTS["lff-0"] + LISTS["lff-1"]) == set(CORRUPTIONS)
    assert len(set(LISTS["dfa"]) & set(LISTS["lff-0"])) == 6


def test_a_tenth_is_held_out_and_pictures_carry_their_corruption(tmp_path):
    x, y = write_batches(tmp_path)["train"]
    train, val = (load("corrupted-cifar10", split=s, rho=0.5, seed=3, root=tmp_path) for s in ("train", "val"))
    assert (len(train), len(val)) == (180, 20)
    assert torch.bincount(val.y).tolist() == [2] * 10
    assert int((train.y == train.b).sum()) == 90
    # find each picture again: with its own number, its corruption gives the bytes that were handed out
    found = set()
    for data in (train, val):
        pictures = stored(data)[0].tensors[0]
        assert pictures.dtype == torch.uint8
        for b, name in enumerate(LISTS["dfa"]):
            whole = corrupt(x, name, seed=3)
            for i in (data.b == b).nonzero().flatten().tolist():
                same = (whole == pictures[i]).flatten(1).all(1).nonzero().flatten().tolist()
                assert len(same) == 1
                assert y[same[0]] == data.y[i]
                found.add(same[0])
    assert len(found) == 200


def test_lff_keeps_the_sources_order(tmp_path):
    x, y = write_batches(tmp_path)["test"]
    data = load("corrupted-cifar10", split="test", protocol="lff-1", seed=2, root=tmp_path)
    assert torch.equal(data.y, y)
    assert torch.equal(data.b, milestones(y, 0.1))
    untouched = data.b == 9
    assert torch.equal(stored(data)[0].tensors[0][untouched], x[untouched])
    with pytest.raises(BadInput, match="has no val"):
        load("corrupted-cifar10", split="val", protocol="lff-0", root=tmp_path)


def test_pictures_are_normalised_and_labels_come_without_them(tmp_path, own_cache):
    write_batches(tmp_path)
    data = corrupted_cifar10("test", root=tmp_path)
    assert labels(data).classes == 10
    assert not own_cache.exists()
    raw = stored(data)[0].tensors[0][0].double() / 255
    mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2023, 0.1994, 0.2010])
    assert torch.allclose(data[0][0].double(), (raw - mean.view(3, 1, 1)) / std.view(3, 1, 1), atol=1e-6)
    assert data.transform.crop == 4
    assert data.transform.flip


def test_names_for_the_default_protocol(tmp_path):
    write_batches(tmp_path)
    sets = [corrupted_cifar10("val", protocol=p, root=tmp_path) for p in ("dfa", "held-out", "paper")]
    assert all(torch.equal(d.tensors[0], sets[0].tensors[0]) for d in sets)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"split": "valid"}, "split='valid'"),
        ({"protocol": "lff"}, "protocol='lff'"),
        ({"rho": 1.5}, "rho=1.5"),
        ({"severity": 0}, "severity=0"),
        ({"protocol": "archive", "severity": 3}, "not in the archive"),
    ],
)
def test_what_there_isnt_is_named(tmp_path, change, message):
    arguments = {"split": "test", **change}
    with pytest.raises(BadInput, match=message):
        corrupted_cifar10(arguments.pop("split"), root=tmp_path, **arguments)


def test_the_cache_is_used_and_knows_what_it_was_made_from(tmp_path, own_cache, monkeypatch):
    write_batches(tmp_path)

    def pictures(**change):
        return stored(corrupted_cifar10("train", root=tmp_path, **{"rho": 0.9, **change}))[0].tensors[0]

    first = pictures()
    (file,) = own_cache.iterdir()
    monkeypatch.setattr(MODULE, "corrupt", lambda *a, **k: pytest.fail("made again"))
    assert torch.equal(pictures(), first)
    monkeypatch.undo()
    monkeypatch.setenv("BISE_CACHE", str(own_cache))
    for change in ({"rho": 0.8}, {"seed": 1}, {"severity": 4}, {"protocol": "lff-0"}):
        count = len(list(own_cache.iterdir()))
        assert pictures(**change).shape != first.shape or not torch.equal(pictures(**change), first)
        assert len(list(own_cache.iterdir())) == count + 1
    # other pictures under the same names
    batch_file = tmp_path / "cifar-10-batches-py/data_batch_2"
    batch_file.write_bytes(python2_pickle(255 - batch(2)[0].flatten(1), batch(2)[1], b"training batch 2 of 5"))
    assert not torch.equal(pictures(), first)
    monkeypatch.setattr(MODULE, "VERSION", 99)
    count = len(list(own_cache.iterdir()))
    pictures()
    assert len(list(own_cache.iterdir())) == count + 1
    assert file.exists()


def test_a_damaged_cache_is_made_again(tmp_path, own_cache):
    write_batches(tmp_path)
    first = corrupted_cifar10("test", root=tmp_path).tensors[0]
    (file,) = own_cache.iterdir()
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[-100] ^= 1
    for damaged in (b"", b"nonsense", whole[:-1], whole[:200], bytes(flipped)):
        file.write_bytes(damaged)
        assert torch.equal(corrupted_cifar10("test", root=tmp_path).tensors[0], first)
        assert file.read_bytes() == whole


def test_a_cache_that_cant_be_written_only_warns(tmp_path, monkeypatch):
    write_batches(tmp_path)
    (tmp_path / "a_file").touch()
    monkeypatch.setenv("BISE_CACHE", str(tmp_path / "a_file"))
    with pytest.warns(BiseWarning, match="can't be written"):
        assert corrupted_cifar10("test", root=tmp_path).tensors[0].shape == (20, 3, 32, 32)


def test_the_shared_archive(tmp_path):
    generator = torch.Generator().manual_seed(0)
    written = {}
    for folder in ("5pct/align", "5pct/conflict", "5pct/valid", "test"):
        for i in range(6):
            y = i % 3
            b = y if folder.endswith("align") else (y + 1 + i) % 10
            picture = torch.randint(0, 256, (32, 32, 3), dtype=torch.uint8, generator=generator)
            path = tmp_path / "cifar10c" / folder / str(y) / f"{i}_{y}_{b}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture.numpy()).save(path)
            written.setdefault(folder, {})[y, b, i] = picture.permute(2, 0, 1)
    for split, folders in (("train", ["5pct/align", "5pct/conflict"]), ("val", ["5pct/valid"]), ("test", ["test"])):
        data = load("corrupted-cifar10", split=split, rho=0.95, protocol="archive", root=tmp_path)
        expected = [(y, b, x) for f in folders for (y, b, _), x in written[f].items()]
        pictures = stored(data)[0].tensors[0]
        got = [(int(y), int(b), x) for y, b, x in zip(data.y, data.b, pictures, strict=True)]
        assert len(got) == len(expected)
        key = lambda entry: (entry[0], entry[1], entry[2].numpy().tobytes())  # noqa: E731
        assert sorted(map(key, got)) == sorted(map(key, expected))
    with pytest.raises(BadInput, match="2pct/align does not exist.*has 5pct"):
        load("corrupted-cifar10", split="train", rho=0.98, protocol="archive", root=tmp_path)
    (tmp_path / "cifar10c/test/0/odd.png").touch()
    with pytest.raises(BadInput, match="carries no labels"):
        load("corrupted-cifar10", split="test", rho=0.98, protocol="archive", root=tmp_path)


def test_a_list_without_val_is_checked_without_it(tmp_path):
    write_batches(tmp_path)
    how = ["data", "check", "corrupted-cifar10", "--root", str(tmp_path), "--protocol", "lff-1", "--rho", "0.5"]
    result = CliRunner().invoke(app, how)
    assert result.exit_code == 0, result.output
    assert "there is no val split" in result.output
    assert "glass_blur" in result.output
