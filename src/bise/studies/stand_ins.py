"""For trials: CelebA, CivilComments and the archive of Corrupted-CIFAR10 in their own layouts, with a few pictures and
comments made up here."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import torch

from bise.base.errors import BadInput
from bise.base.files import write_bytes
from bise.data.sets.civilcomments import IDENTITIES

COUNTS = {(0, 0): (10, 4), (0, 1): (10, 4), (1, 0): (6, 3), (1, 1): (5, 2)}
"""(y, b): how many in train, and in each of val and test."""
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "nice", "fool", "old", "young", "the")


def stand_in(name: str, root: Path) -> Path:
    """A data folder with a small set in the layout of `name`."""
    {"celeba": _celeba, "civilcomments": _civilcomments, "corrupted-cifar10": _corrupted}[name](root)
    return root


def _samples() -> Iterator[tuple[int, int, int, int]]:
    """(number, part, y, b)"""
    number = 0
    for part in range(3):
        for (y, b), (train, other) in COUNTS.items():
            for _ in range(other if part else train):
                number += 1
                yield number, part, y, b


def _celeba(root: Path) -> None:
    """Pictures of noise whose upper half is light for y = 1, the lower for b = 1."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise BadInput("Pillow is not installed; install the extra: pip install 'bise[data]'") from error
    folder = root / "celeba"
    generator = torch.Generator().manual_seed(0)
    rows, parts = [], []
    for number, part, y, b in _samples():
        name = f"{number:06}.jpg"
        pixels = torch.randint(0, 100, (218, 178, 3), generator=generator, dtype=torch.uint8)
        pixels[:109] += 100 * y
        pixels[109:] += 150 * b
        file = io.BytesIO()
        Image.fromarray(pixels.numpy()).save(file, format="JPEG")
        write_bytes(folder / "img_align_celeba" / name, file.getvalue())
        rows.append(f"{name} {2 * y - 1:2d} {2 * b - 1:2d}\n")
        parts.append(f"{name} {part}\n")
    write_bytes(folder / "list_attr_celeba.txt", f"{len(rows)}\nBlond_Hair Male \n{''.join(rows)}".encode())
    write_bytes(folder / "list_eval_partition.txt", "".join(parts).encode())


def _corrupted(root: Path) -> None:
    """Small pictures of noise, lighter for a higher class, at the shares of both ends."""
    generator = torch.Generator().manual_seed(0)
    for share in ("0.5pct", "5pct"):
        for y in range(10):
            for number in range(6):
                _noise(root / "cifar10c" / share / "align" / str(y) / f"{number}_{y}_{y}.png", y, generator)
            other = (y + 1) % 10
            _noise(root / "cifar10c" / share / "conflict" / str(y) / f"0_{y}_{other}.png", y, generator)
    for y in range(10):
        for b in range(10):
            _noise(root / "cifar10c" / "test" / str(y) / f"{b}_{y}_{b}.png", y, generator)


def _noise(path: Path, y: int, generator: torch.Generator) -> None:
    from PIL import Image

    pixels = torch.randint(0, 60, (32, 32, 3), generator=generator, dtype=torch.uint8) + 15 * y
    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, format="PNG")
    write_bytes(path, file.getvalue())


def _civilcomments(root: Path) -> None:
    """Comments of one word for y, one for b, and some more."""
    write_bytes(root / "bert" / "vocab.txt", ("\n".join(WORDS) + "\n").encode())
    file = io.StringIO()
    out = csv.writer(file)
    out.writerow(["", "id", "comment_text", "split", "toxicity", *IDENTITIES])
    for number, part, y, b in _samples():
        words = [("nice", "fool")[y], *["old"] * b, *["the"] * (number % 9)]
        scores = [float(b), *[0.0] * (len(IDENTITIES) - 1)]
        out.writerow([number, number, " ".join(words), ("train", "val", "test")[part], float(y), *scores])
    write_bytes(root / "civilcomments" / "all_data_with_identities.csv", file.getvalue().encode())
