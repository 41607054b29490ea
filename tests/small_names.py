"""What the tests of named models and data share: small models with their folders, small pictures and texts."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from bise.network.architectures.reference import as_if_trained
from bise.network.architectures.text import transformers
from bise.network.architectures.vision import torchvision
from small_texts import WORDS, small

QUICK = ["--steps", "3", "--upsilon", "1", "--batch-size", "20", "--head-epochs", "1", "--no-baseline"]


def pictures(folder: Path, count: int = 96, size: int = 32) -> Path:
    """labels.csv with pictures: kind tells the brightness of the left half, paper that of the right half."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["file", "kind", "paper", "fold"])
        for i in range(count):
            y = i % 2
            b = y if i % 5 else 1 - y
            pixels = random.integers(0, 60, (size, size, 3), dtype=np.uint8)
            pixels[:, : size // 2] += np.uint8(100 * y)
            pixels[:, size // 2 :] += np.uint8(150 * b)
            Image.fromarray(pixels).save(folder / f"{i}.png")
            out.writerow([f"{i}.png", ("cat", "dog")[y], ("grey", "white")[b], ("train", "val", "test")[i // 2 % 3]])
    return folder / "labels.csv"


COLUMNS = ["--target", "kind", "--bias", "paper", "--split-column", "fold", "--image", "file"]


def texts(folder: Path, count: int = 120) -> Path:
    """texts.csv: tone in one word, age in another."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "texts.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(["text", "tone", "age", "fold"])
        for i in range(count):
            y = i % 2
            b = y if i % 5 else 1 - y
            words = [("nice", "fool")[y], ("old", "young")[b], *["the"] * (i % 7)]
            out.writerow([" ".join(words), y, b, ("train", "val", "test")[i // 2 % 3]])
    return folder / "texts.csv"


SPOKEN = ["--target", "tone", "--bias", "age", "--split-column", "fold", "--text", "text"]


def bert_folder(folder: Path, kind: str = "bert") -> Path:
    """A folder as a Trainer leaves it: configuration, weights, tokenizer."""
    small(kind).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    transformers().BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def vit_folder(folder: Path, **changes) -> Path:
    """The same of a model of pictures, with its preprocessor's configuration."""
    library = transformers()
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    torch.manual_seed(0)
    config = library.ViTConfig(image_size=16, patch_size=8, num_labels=2, **shape, **changes)
    model = library.ViTForImageClassification(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    library.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder)
    return folder


def timm_weights(path: Path, name: str = "resnet10t", classes: int = 2) -> Path:
    torchvision()
    import timm

    torch.manual_seed(0)
    model = as_if_trained(timm.create_model(name, num_classes=classes), torch.randn(8, 3, 32, 32))
    save_file(model.state_dict(), path)
    return path
