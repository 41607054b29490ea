"""Small runs of each kind of data, made by the jobs themselves, with labels that try to break the page."""

from __future__ import annotations

import csv
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset
from typer.testing import CliRunner

from bise.base.errors import BiseWarning
from bise.cli.app import app
from bise.data import Labelled
from bise.data.core import tokens
from bise.data.core.coders import coder_of
from bise.data.core.naming import LabelNames
from bise.data.own.tables import read_table
from bise.jobs.demo import demo
from bise.jobs.extract import extract_job
from bise.jobs.finetune import finetune_job
from bise.jobs.shrink import shrink_job
from bise.reporting.facts import Facts
from conftest import trained
from real_models import make

HOSTILE = (
    "<script>window.pwned=1</script>",
    '"><img src=x onerror="window.pwned=1">',
    "שלום עולם",
    "👩🏽‍🔬 & 'quotes' \"too\"",
    "</script><b>bold</b>\u2028line",
)


def page_facts(summary, **parts) -> Facts:
    """A run as the page sees it, of which only these parts are there."""
    empty = {"config": {}, "metrics": [], "thresholds": {}, "samples": {}, "scores": {}, "masks": {}}
    return Facts(folder="run", place="run", summary=summary, **(empty | parts))


def nothing(label, done, total):
    pass


def quick(model, splits, out, *, changes=None, **more):
    few = {"steps": 4, "upsilon": 1, "batch_size": 48, "head_epochs": 2, "seed": 0}
    with warnings.catch_warnings():
        # no time to train it, so that it may know nothing, and its masks with it
        warnings.filterwarnings("ignore", "the model (is|gives|goes|does)|every mask that was judged", BiseWarning)
        return extract_job(
            model,
            splits,
            out,
            preset="balanced",
            changes={**few, "baseline": False, **(changes or {})},  # pages of networks with closed units
            bottleneck=None,
            sites=None,
            source={"model": "mine:net", "weights": "net.safetensors", "data": "mine:splits"},
            progress=nothing,
            **more,
        )


def labels_of(n, classes, rho, seed):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    other = (y + torch.randint(1, classes, (n,), generator=generator)) % classes
    return y, torch.where(torch.rand(n, generator=generator) < rho, y, other), generator


def pictures(split, classes=4):
    """Bright squares at y's place on a background of shade b."""
    y, b, generator = labels_of(240, classes, 0.9 if split == "train" else 1 / classes, len(split))
    x = torch.rand(240, 3, 8, 8, generator=generator) * 0.2
    x += (b / classes).view(-1, 1, 1, 1) * 0.6
    for i, place in enumerate(y.tolist()):
        x[i, :, 2 * (place // 2) : 2 * (place // 2) + 2, 4 * (place % 2) : 4 * (place % 2) + 2] = 1
    numbers = tuple(map(str, range(classes)))
    names = LabelNames(target="shape", biases=("shade",), classes=numbers, bias_classes=(numbers,))
    return Labelled(TensorDataset(x), y=y, b=b, aligned=list(range(classes)), names=names)


def small_net(classes=4):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
            nn.Linear(32, 12), nn.ReLU(), nn.Linear(12, classes),
        ).eval()  # fmt: skip


def picture_net():
    """It knows something: of a net that knows nothing the page would say that alone."""
    return trained(small_net(), pictures("train"), epochs=10)


class Sentences(Dataset):
    """Texts that a page must show and not run, as made-up token numbers."""

    def __init__(self, x, texts):
        self.x, self.texts = x, texts

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index]


def sentences(split):
    y, b, generator = labels_of(200, 2, 0.85 if split == "train" else 0.5, len(split))
    x = torch.randn(200, 8, generator=generator)
    x[:, 0] += 2 * y
    x[:, 1] += 3 * b
    texts = [f"{HOSTILE[i % len(HOSTILE)]} number {i}" for i in range(200)]
    names = LabelNames(
        target=HOSTILE[0], biases=(HOSTILE[1],), classes=HOSTILE[2:4], bias_classes=((HOSTILE[4], HOSTILE[0]),)
    )
    return Labelled(Sentences(x, texts), y=y, b=b, names=names)


def dense_net():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 2)).eval()


@pytest.fixture(scope="session")
def picture_run(tmp_path_factory):
    """Extracted, finetuned and shrunk."""
    folder = tmp_path_factory.mktemp("runs") / "pictures"
    model = picture_net()
    quick(model, pictures, folder)
    finetune_job(model, pictures, folder, changes={"epochs": 2, "lr": 0.01}, progress=nothing)
    shrink_job(model, pictures, folder, name="subnetwork", files=[], progress=nothing)
    return folder


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "<i>run"
    quick(dense_net(), sentences, folder)
    return folder


def comments(split):
    """Sentences of a few words, one of which goes with the class."""
    y, b, generator = labels_of(120, 2, 0.85 if split == "train" else 0.5, len(split))
    words = torch.randint(10, 90, (120, 6), generator=generator)
    words[:, 0], words[:, 1] = 2 + y, 4 + b
    texts = [" ".join(f"word{n}" for n in row) for row in words.tolist()]
    coder = coder_of(lambda text: [int(word.removeprefix("word")) for word in text.split()], 8)
    inner = tokens.Sentences(texts, coder)
    names = LabelNames(
        target="toxicity", biases=("identity",), classes=("fine", "toxic"), bias_classes=(("none", "some"),)
    )
    return Labelled(inner, y=y, b=b, aligned=[0, 1], names=names)


@pytest.fixture(scope="session")
def bert_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "bert"
    quick(make("small BERT")[0].eval(), comments, folder)
    return folder


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "demo"
    demo(folder)
    return folder


@pytest.fixture(scope="session")
def madlibs_run(tmp_path_factory):
    """A small BERT that has seen 600 real sentences."""
    base = tmp_path_factory.mktemp("runs")
    vanilla = ["train", "biased-madlibs-small", "--limit", "600", "--epochs", "4", "--device", "cpu"]
    found = ["extract", "--from", str(base / "vanilla"), "--steps", "4", "--upsilon", "1"]
    for words, name in ((vanilla, "vanilla"), (found, "madlibs")):
        result = CliRunner().invoke(app, [*words, "--out", str(base / name)])
        assert result.exit_code == 0, result.output
    return base / "madlibs"


@pytest.fixture(scope="session")
def table_run(tmp_path_factory):
    """A csv with names for everything, rows without a bias label, and no test split."""
    base = tmp_path_factory.mktemp("table")
    generator = torch.Generator().manual_seed(0)
    with (base / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "city", "fold", "sex", "hired"])
        for i in range(300):
            hired = i % 2
            sex = hired if torch.rand(1, generator=generator) < 0.85 else 1 - hired
            known = ["f", "m"][sex] if i % 17 else ""
            row = [
                20 + (i * 7) % 40 + 5 * sex,
                HOSTILE[i % 3],
                "val" if i % 3 == 0 else "train",
                known,
                ["no", "yes"][hired],
            ]
            writer.writerow(row)
    table = read_table(base / "rows.csv", target="hired", bias="sex", split_column="fold")
    width = len(table.split("train").feature_names)
    model = nn.Sequential(nn.Linear(width, 10), nn.ReLU(), nn.Linear(10, 2)).eval()
    with pytest.warns(UserWarning, match="lack a bias label"):
        quick(model, lambda split: table.split(split), base / "run")
    return base / "run"
