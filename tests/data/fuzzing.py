"""Damages good files of every kind, again and again, and reads them: `python fuzzing.py COUNT FOLDER [READER …]`.

Memory is limited and so is the time for one file. Whatever is neither read nor refused as BadInput ends the program.
Prints {reader: [files, of these read, refused]} and how much memory was taken, as JSON.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import struct
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pyarrow
import torch
from PIL import Image
from pyarrow import parquet
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import TensorDataset

import bise
from bise import BadInput
from bise.data.core.cache import _whole
from bise.data.core.coders import coder_of, word_pieces
from bise.data.own.folders import read_image_folder
from bise.data.own.hugging_face import read_hugging_face
from bise.data.own.tables import read_table
from bise.data.sets.celeba import celeba
from bise.data.sets.cifar10 import cifar10
from bise.data.sets.cifar10c_archive import archive
from bise.data.sets.civilcomments import IDENTITIES, civilcomments
from bise.data.sets.idx import read_idx
from bise.engine.checkpoints import Checkpoint
from bise.jobs.extract import extract_job
from bise.jobs.sources import described_by
from bise.jobs.verification import verify
from bise.network.architectures.pretrained import bert
from bise.network.weights import read_state
from bise.reporting.writing import write_report

ROOM = 1 << 30
"""Bytes of address space that reading may take beyond what the imported libraries have."""
SECONDS = 60
"""For one file, on a busy machine; reading takes milliseconds."""
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "some", "words", "here", "##s"]
READERS = {}


def reader(make):
    """Register a function that writes good files into a folder, and gives a function that reads them."""
    READERS[make.__name__] = make
    return make


def rows(n=12):
    return [(str(i % 2), "fm"[i % 3 % 2], ("train", "val")[i % 5 == 0], str(i * 0.5), "ab"[i % 2]) for i in range(n)]


@reader
def csv_file(folder):
    text = "y,b,s,x,c\n" + "".join(",".join(row) + "\n" for row in rows())
    (folder / "t.csv").write_text(text)
    return lambda: read_table(folder / "t.csv", target="y", bias="b", split_column="s").split("train")[0]


@reader
def parquet_file(folder):
    columns = {name: list(values) for name, values in zip("ybsxc", zip(*rows(), strict=True), strict=True)}
    columns |= {"n": list(range(12)), "f": [i / 3 for i in range(12)], "image": [picture("PNG")] * 12}
    parquet.write_table(pyarrow.table(columns), folder / "t.parquet")

    def read():
        how = {"target": "y", "bias": "b", "split_column": "s"}
        read_table(folder / "t.parquet", **how, features=["x", "n", "f", "c"]).split("train")[0]
        read_table(folder / "t.parquet", **how, image="image", size=4).split("train")[0]

    return read


@reader
def idx_file(folder):
    (folder / "a.idx").write_bytes(struct.pack(">HBBIII", 0, 8, 3, 3, 4, 5) + bytes(60))
    return lambda: read_idx(folder / "a.idx")


@reader
def packed_idx_file(folder):
    (folder / "a.gz").write_bytes(gzip.compress(struct.pack(">HBBI", 0, 8, 1, 60) + bytes(60)))
    return lambda: read_idx(folder / "a.gz")


def picture(kind, size=(9, 7)):
    out = io.BytesIO()
    Image.effect_noise(size, 70).convert("RGB").save(out, kind)
    return out.getvalue()


@reader
def picture_folder(folder):
    for i, kind in enumerate(("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")):
        path = folder / "ab"[i % 2] / f"{i}.{kind.lower()}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(picture(kind))
    (folder / "b.csv").write_text("file,shade\n0.png,1\n1.jpeg,2\n")

    def read():
        data = read_image_folder(folder, folder / "b.csv", size=4).split("train")
        return [data[i] for i in range(len(data))]

    return read


@reader
def safetensors_file(folder):
    save_file(net().state_dict(), folder / "w.safetensors")
    return lambda: read_state(folder / "w.safetensors")


@reader
def pt_file(folder):
    torch.save(net().state_dict(), folder / "w.pt")
    return lambda: read_state(folder / "w.pt")


@reader
def old_pt_file(folder):
    torch.save({"state_dict": net().state_dict()}, folder / "w.pth", _use_new_zipfile_serialization=False)
    return lambda: read_state(folder / "w.pth")


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()


def biased(split):
    y = torch.arange(40) % 2
    b = torch.where(torch.arange(40) % 5 == 0, 1 - y, y)
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    return bise.data.Labelled(TensorDataset(x), y=y, b=b)


@reader
def run_folder(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        extract_job(
            net(), biased, folder / "run", preset="balanced", bottleneck=None, sites=None,
            changes={"steps": 2, "upsilon": 1, "batch_size": 20, "head_epochs": 1},
            source={"model": "mine:net", "weights": None, "data": "mine:data"}, progress=lambda *_: None,
        )  # fmt: skip
    (folder / "run/report.html").unlink()

    def read():
        verify(folder / "run", net, lambda split: None)  # without data nothing is shrunk, which is slow
        described_by(folder / "run")
        write_report(folder / "run", folder.parent / "report.html")

    return read


@reader
def subnetwork_folder(folder):
    bise.subnetwork(net(), {"1": torch.tensor([True, False, True, True])}, example=torch.zeros(2, 3)).save(folder)
    return lambda: bise.load(folder, net())(torch.zeros(2, 3))


@reader
def checkpoint(folder):
    Checkpoint(folder / "c.safetensors", key="k").save({"a": torch.arange(5.0)}, {"history": [1]})
    return lambda: Checkpoint(folder / "c.safetensors", key="k").load()


@reader
def cache_file(folder):
    save_file({"x": torch.arange(9), "sha256": torch.zeros(32, dtype=torch.uint8)}, folder / "c.safetensors")
    return lambda: _whole(folder / "c.safetensors")


def celeba_names(base):
    """The folder of pictures, without any, and what eight of them would be called."""
    (base / "img_align_celeba").mkdir(parents=True)
    return [f"{i:06}.jpg" for i in range(8)]


@reader
def celeba_lists(folder):
    base = folder / "celeba"
    names = celeba_names(base)
    lines = [f"{name}  {(-1, 1)[i % 2]} {(1, -1)[i // 2 % 2]}" for i, name in enumerate(names)]
    (base / "list_attr_celeba.txt").write_text("\n".join(["8", "Blond_Hair Male", *lines]) + "\n")
    (base / "list_eval_partition.txt").write_text("".join(f"{name} {i % 3}\n" for i, name in enumerate(names)))
    return lambda: celeba("train", root=folder)


@reader
def celeba_csv_lists(folder):
    base = folder / "celeba"
    names = celeba_names(base)
    lines = [f"{name},{(-1, 1)[i % 2]},{(1, -1)[i // 2 % 2]}" for i, name in enumerate(names)]
    (base / "list_attr_celeba.csv").write_text("\n".join(["image_id,Blond_Hair,Male", *lines]) + "\n")
    parts = "".join(f"{name},{i % 3}\n" for i, name in enumerate(names))
    (base / "list_eval_partition.csv").write_text("image_id,partition\n" + parts)
    return lambda: celeba("train", root=folder)


@reader
def comments(folder):
    (folder / "bert").mkdir()
    (folder / "bert/vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "civilcomments").mkdir()
    head = ["id", "comment_text", "split", "toxicity", *IDENTITIES]
    lines = [
        [str(i), f'"some ""words"" {i}, here"', "train", f"0.{i}", *("1.0" if i % 3 else "",) * 8] for i in range(8)
    ]
    text = "\n".join(map(",".join, [head, *lines])) + "\n"
    (folder / "civilcomments/all_data_with_identities.csv").write_text(text)
    return lambda: civilcomments("train", root=folder)[0]


@reader
def madlibs(folder):
    (folder / "madlibs").mkdir()
    terms = ("muslim", "jewish", "sikh", "white", "asian", "indian", "gay", "old", "young", "deaf", "blind", "queer")
    words = (("kind", "NOT_BAD"), ("vile", "BAD"))
    lines = [f"N{n} is a {word} {term}.,{label},name_adj" for n in range(18) for word, label in words for term in terms]
    (folder / "madlibs/bias_madlibs_77k.csv").write_text("\n".join(["Text,Label,Template", *lines]) + "\n")
    (folder / "bert").mkdir()
    (folder / "bert/vocab.txt").write_text("\n".join(WORDS) + "\n")
    return lambda: bise.data.load("biased-madlibs", split="train", rho=0.5, root=folder)[0]


@reader
def cifar_pickled(folder):
    base = folder / "cifar-10-batches-py"
    base.mkdir()
    content = {b"labels": [1, 2, 3], b"data": bytes(3 * 3072)}
    (base / "test_batch").write_bytes(pickle.dumps(content, protocol=3))
    return lambda: whole_cifar(folder)


@reader
def cifar_binary(folder):
    (folder / "cifar-10-batches-bin").mkdir()
    (folder / "cifar-10-batches-bin/test_batch.bin").write_bytes(bytes(2 * 3073))
    return lambda: whole_cifar(folder)


@reader
def cifar_mosaic(folder):
    out = io.BytesIO()
    Image.new("RGB", (32, 16000)).save(out, "WEBP", lossless=True, method=0)
    (folder / "images_test.webp").write_bytes(out.getvalue())
    np.savez_compressed(folder / "labels.npz", y_test=np.arange(500) % 10)
    return lambda: whole_cifar(folder)


def whole_cifar(folder):
    found = cifar10("test", folder)
    return found.labels(), found.images()


@reader
def cifar10c_folder(folder):
    for i in range(4):
        path = folder / "cifar10c/5pct" / ("align", "conflict")[i % 2] / f"{i}_{i}_{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture("PNG", (32, 32)))
    os.environ["BISE_CACHE"] = str(folder.parent / "cache")

    def read():
        shutil.rmtree(folder.parent / "cache", ignore_errors=True)
        return archive("train", 0.95, folder)[0].tensors

    return read


@reader
def vocabulary(folder):
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")

    def read():
        word_pieces(folder, 8).encode(["some words here"])
        coder_of(folder / "vocab.txt", 8).encode(["some words here"])

    return read


@reader
def tokenizer_folder(folder):
    from transformers import BertTokenizer

    (folder.parent / "v.txt").write_text("\n".join(WORDS) + "\n")
    BertTokenizer(str(folder.parent / "v.txt")).save_pretrained(folder)
    return lambda: coder_of(folder, 8).encode(["some words here"])


@reader
def datasets_folder(folder):
    import datasets

    datasets.disable_progress_bars()
    names = ["y", "b", "s", "x", "c"]
    columns = {name: list(values) for name, values in zip(names, zip(*rows(), strict=True), strict=True)}
    datasets.Dataset.from_dict(columns | {"n": list(range(12))}).save_to_disk(folder / "d")
    return lambda: read_hugging_face(folder / "d", target="y", bias="b", split_column="s").split("train")[0]


@reader
def datasets_of_pictures(folder):
    import datasets

    columns = {"y": [i % 2 for i in range(6)], "image": [{"bytes": picture("PNG"), "path": None}] * 6}
    kinds = datasets.Features({"y": datasets.Value("int64"), "image": datasets.Image()})
    datasets.Dataset.from_dict(columns, features=kinds).save_to_disk(folder / "d")

    def read():
        data = read_hugging_face(folder / "d", target="y", image="image", size=4).split("train")
        return [data[i] for i in range(len(data))]

    return read


@reader
def bert_folder(folder):
    small = {
        "vocab_size": 9,
        "hidden_size": 4,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 4,
    }
    bert(2, None, **small, max_position_embeddings=8)[0].save_pretrained(folder)
    return lambda: bert(2, folder)


# damage

ODD = [None, True, -1, 0, 10**30, 1e308, "", "x", "../../etc/passwd", "\0", [], {}, [[]], {"a": 1}, "é" * 300]
PIECES = [
    b"",
    b"\0",
    b"\xff" * 4,
    b"\xff\xff\xff\x7f",
    b"-1",
    b"9" * 5000,
    b'"',
    b"\n",
    b"{",
    b"[" * 3000,
    b"../",
    b"nan",
]


def damaged(content, random, name):
    if name.endswith((".json", ".jsonl")) and random.random() < 0.7:
        return odd_json(content, random)
    if name.endswith(".gz") and random.random() < 0.5:
        return gzip.compress(damaged(gzip.decompress(content), random, ""))
    if name.endswith((".pt", ".npz")) and random.random() < 0.6:
        return rezipped(content, random)
    if name.endswith(".safetensors") and random.random() < 0.5:
        length = struct.unpack("<Q", content[:8])[0]
        head = odd_json(content[8 : 8 + length], random)
        return struct.pack("<Q", len(head)) + head + content[8 + length :]
    content = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 5, 20))):
        at, end = sorted(random.randrange(len(content) + 1) for _ in range(2))
        kind = random.randrange(6)
        if kind == 0 and content:
            content[min(at, len(content) - 1)] = random.randrange(256)
        elif kind == 1:
            del content[at:]
        elif kind == 2:
            content[at:at] = random.choice(PIECES)
        elif kind == 3:
            del content[at : min(end, at + 40)]
        elif kind == 4:
            content[at:at] = content[at : min(end, at + 40)]
        else:
            content[at : at + 4] = random.randbytes(4)
    return bytes(content)


def odd_json(content, random):
    """One value of the JSON replaced by another, or its key taken away."""
    lines = content.decode().strip().splitlines()
    single = len(lines) > 1 and lines[0].startswith("{") and lines[0].endswith("}")  # a log, one object a line
    which = random.randrange(len(lines)) if single else 0
    whole = json.loads(lines[which] if single else content.decode())
    places = list(places_in(whole))
    if not places:
        return b"{}"
    inner, key = random.choice(places)
    if random.random() < 0.3:
        del inner[key]
    else:
        inner[key] = random.choice(ODD)
    if not single:
        return json.dumps(whole).encode()
    return "\n".join([*lines[:which], json.dumps(whole), *lines[which + 1 :]]).encode()


def places_in(value):
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from places_in(inner)


def rezipped(content, random):
    """One entry of an archive damaged, with checksums that agree."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        chosen = random.choice(old.namelist())
        for name in old.namelist():
            inner = old.read(name)
            new.writestr(name, damaged(inner, random, "") if name == chosen else inner)
    return out.getvalue()


def greedy(error):
    """Whether the limit on memory stood behind a refusal: elsewhere the memory would have been taken."""
    while error is not None:
        if isinstance(error, MemoryError) or "allocate" in str(error):
            return True
        error = error.__cause__
    return False


def fuzz(name, count, base):
    """[files, read, refused] of one reader."""
    folder = base / name / "files"
    folder.mkdir(parents=True)
    read = READERS[name](folder)
    read()
    good = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    chance = random.Random(name)
    done = [0, 0, 0]
    for number in range(count):
        path = chance.choice(list(good))
        path.write_bytes(damaged(good[path], chance, path.name))
        (base / "current").write_text(f"{name}, file {number}: {path}\n")
        signal.alarm(SECONDS)
        try:
            read()
            done[1] += 1
        except BadInput as error:
            done[2] += bool(str(error))  # a refusal says why
            if greedy(error):
                raise
        done[0] += 1
        signal.alarm(0)
        path.write_bytes(good[path])
    return done


def main(count, base, *names):
    warnings.simplefilter("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    import datasets  # noqa: F401
    import transformers

    transformers.logging.set_verbosity_error()
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, resource.getrlimit(resource.RLIMIT_AS)[1]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = {name: fuzz(name, int(count), Path(base)) for name in names or READERS}
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(
        json.dumps(
            {"readers": found, "files": sum(done[0] for done in found.values()), "grown_mib": round(grown / 1024)}
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
