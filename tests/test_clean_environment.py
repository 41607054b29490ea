"""Models by name where there is no source tree: the wheel, what it needs, and what its results need without it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from huggingface_hub import metadata_load
from safetensors.torch import load_file

import bise
from bise.data import Transform
from bise.data.own.one_table import table
from bise.network.architectures.text import transformers
from bise.network.architectures.vision import torchvision
from bise.network.outputs import call, logits_tensor
from small_names import COLUMNS, QUICK, SPOKEN, bert_folder, pictures, texts, timm_weights
from test_install import ROOT, core

pytestmark = pytest.mark.long
CORE = {"torch", "numpy", "safetensors", "typer", "rich"}

FROM_PRETRAINED = """
import sys, torch
from transformers import AutoModelForSequenceClassification
folder, inputs, out = sys.argv[1:]
with torch.no_grad():
    torch.save(AutoModelForSequenceClassification.from_pretrained(folder).eval()(**torch.load(inputs)).logits, out)
import importlib.util
assert importlib.util.find_spec("bise") is None
"""
LOAD_PRETRAINED = """
import importlib.util, sys, torch, bise
folder, inputs, out = sys.argv[1:]
with torch.no_grad():
    torch.save(bise.load_pretrained(folder)(torch.load(inputs)["x"]), out)
assert not any(map(importlib.util.find_spec, ("transformers", "timm", "torchvision")))
"""
TORCH_ALONE = """
import importlib.util, sys, torch
file, inputs, out = sys.argv[1:]
with torch.no_grad():
    torch.save(torch.export.load(file).module()(torch.load(inputs)["x"]), out)
assert not any(map(importlib.util.find_spec, ("bise", "safetensors", "timm", "torchvision")))
"""


class Place:
    """Environments made of links to what is installed here, each with its own distributions alone."""

    def __init__(self, base: Path) -> None:
        self.base = base
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(base), str(ROOT)]
        subprocess.run(command, check=True, capture_output=True)
        (wheel,) = base.glob("*.whl")
        zipfile.ZipFile(wheel).extractall(base / "of-wheel")
        core(base / "of-torch", {"torch", "numpy"})
        core(base / "of-core", set(CORE))
        core(
            base / "of-full", CORE | {"timm", "torchvision", "transformers", "tokenizers", "huggingface_hub", "pillow"}
        )
        core(base / "of-transformers", {"torch", "numpy", "transformers", "tokenizers"})

    def run(self, *arguments, of, without_bise=False):
        path = [self.base / f"of-{of}"] if without_bise else [self.base / "of-wheel", self.base / f"of-{of}"]
        unset = ("HF_HOME", "HF_HUB_CACHE", "PYTHONPATH")
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        environment |= {
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "HOME": str(self.base / "home"),
            "BISE_HOME": str(self.base / "home/bise"),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-S", *map(str, arguments)]
        done = subprocess.run(command, cwd=self.base, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    def bise(self, *arguments):
        return self.run("-m", "bise", *arguments, of="full")

    def logits(self, program, what, x, *, of, without_bise=False):
        """What another environment computes of `x` with a network in a file or folder."""
        torch.save(x, self.base / "x.pt")
        self.run("-c", program, what, self.base / "x.pt", self.base / "y.pt", of=of, without_bise=without_bise)
        return torch.load(self.base / "y.pt", weights_only=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place(tmp_path_factory.mktemp("clean"))


def gap(mine, theirs):
    return float((mine - theirs).abs().max() / mine.abs().max().clamp_min(1))


def masked(run, model, x):
    kept, total = bise.load(run / "subnetwork", model).units
    assert kept < total
    with torch.no_grad():
        return logits_tensor(call(bise.load(run / "subnetwork", model), x))


def test_a_model_of_transformers_comes_back_where_there_is_no_bise(place):
    base = place.base
    data = ["--data", texts(base / "texts"), *SPOKEN]
    bert_folder(base / "bert")
    assert "worst group" in place.bise("audit", "hf:bert", *data).stdout
    place.bise("extract", "hf:bert", *data, *QUICK, "--out", "run-bert")
    shown = place.bise("shrink", "run-bert", "--folder", "small-bert").stdout
    assert "small-bert: transformers" in shown
    assert "model-index" in metadata_load(base / "small-bert/README.md")
    x = {
        "input_ids": torch.tensor([[2, 5, 7, 9, 3], [2, 6, 8, 3, 0]]),
        "attention_mask": torch.tensor([[1] * 5, [1] * 4 + [0]]),
    }
    found = place.logits(FROM_PRETRAINED, base / "small-bert", x, of="transformers", without_bise=True)
    model = transformers().BertForSequenceClassification.from_pretrained(base / "bert").eval()
    assert gap(masked(base / "run-bert", model, x), found) < 1e-6


def test_a_model_of_timm_comes_back_with_torch_and_safetensors_and_with_torch_alone(place):
    base = place.base
    timm_weights(base / "timm.safetensors")
    labels = pictures(base / "pictures")
    how = ["timm:resnet10t", "--weights", "timm.safetensors", "--data", labels, *COLUMNS, "--size", "32"]
    audited = place.bise("audit", *how)
    assert "by the configuration of timm:resnet10t" in audited.stderr
    assert "worst group" in audited.stdout
    place.bise("extract", *how, *QUICK, "--out", "run-timm")
    shown = place.bise("shrink", "run-timm", "--folder", "small-timm", "--out", "timm.pt2").stdout
    assert "small-timm: operations" in shown
    torchvision()
    import timm

    model = timm.create_model("resnet10t", num_classes=2)
    model.load_state_dict(load_file(base / "timm.safetensors"))
    imagenet = Transform(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    columns = {"target": "kind", "bias": "paper", "split_column": "fold", "image": "file", "size": 32}
    test = table(labels, split="test", transform=imagenet, **columns)
    x = imagenet(torch.stack([test.dataset[i] for i in range(5)]))
    mine = masked(base / "run-timm", model.eval(), x)
    assert gap(mine, place.logits(LOAD_PRETRAINED, base / "small-timm", {"x": x}, of="core")) < 1e-6
    assert gap(mine, place.logits(TORCH_ALONE, base / "timm.pt2", {"x": x}, of="torch", without_bise=True)) < 1e-6
