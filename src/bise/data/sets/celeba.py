"""CelebA (Liu et al. 2015): faces streamed from disk; by default hair colour is the target and gender the bias."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bise.base.checking import check_choice
from bise.base.errors import BadInput
from bise.data.core.arguments import SPLITS
from bise.data.core.cells import Cells
from bise.data.core.contract import Labelled
from bise.data.core.naming import yes_or_no
from bise.data.core.pictures import PictureFiles
from bise.data.core.transforms import Transform
from bise.data.sets.idx import data_root

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
SIZE = 224
CROP = 178
"""The width of the aligned pictures (178 × 218)."""
EQUAL_SEED = 42


def celeba(
    split: str,
    *,
    target: str = "Blond_Hair",
    bias: str = "Male",
    protocol: str = "paper",
    preprocessing: str = "squash",
    seed: int = 0,
    root: str | Path | None = None,
) -> Labelled:
    """The official train, val or test split, uint8 [3, 224, 224] a picture, normalised as for ImageNet, train mirrored.

    y and b are 1 where the attribute is. For blond hair and gender, blond women and men of other hair are aligned, as
    in the works before; blond men and the many women of other hair conflict. For other attributes alignment is
    measured on train. `protocol="paper"` takes all of val and test, to be judged by the mean over cells;
    `"equal"` as many of each cell as the smallest has (4 × 182 and 4 × 180), drawn once and for all. These splits are
    official, so `seed` changes nothing. `"authors"` takes val out of the official train, a fifth of the smallest cell
    from each, and for test as many of each cell of the official val as its smallest has; both are drawn by `seed`.
    `preprocessing="squash"` resizes the whole picture to a square; `"crop"` takes its middle square first.
    """
    check_choice("split", split, SPLITS)
    check_choice("protocol", protocol, ("paper", "equal", "authors"))
    check_choice("preprocessing", preprocessing, ("squash", "crop"))
    folder = data_root(root) / "celeba"
    values = read_attributes(_either(folder, "list_attr_celeba"), (target, bias))
    parts = read_partition(_either(folder, "list_eval_partition"))
    missing = next((name for name in parts if name not in values), None)
    if missing is not None:
        raise BadInput(f"{missing} has a partition and no attributes in {folder}; fetch both lists again")
    official = {"val": "train", "test": "val"}.get(split, split) if protocol == "authors" else split
    names = [name for name, part in parts.items() if part == SPLITS.index(official)]
    if not names:
        raise BadInput(f"{folder} has no picture in the split {official!r}; fetch list_eval_partition again")
    aligned: Any = {0: 1, 1: 0}
    if (target, bias) != ("Blond_Hair", "Male"):
        train = torch.tensor([values[name] for name, part in parts.items() if part == 0]).reshape(-1, 2)
        aligned = Cells.of(train[:, 0], train[:, 1], classes=2, bias_classes=[2]).aligned_bias[0].clamp_min(0).tolist()
    labels = torch.tensor([values[name] for name in names])
    kept = None
    if protocol == "authors":
        kept = by_authors(split, labels[:, 0] * 2 + labels[:, 1], seed)
    elif protocol == "equal" and split != "train":
        kept = equal(labels[:, 0] * 2 + labels[:, 1])
    if kept is not None:
        labels, names = labels[kept], [names[i] for i in kept.tolist()]
    crop = CROP if preprocessing == "crop" else None
    return Labelled(
        PictureFiles(names, size=SIZE, crop=crop, root=_pictures(folder)),
        y=labels[:, 0],
        b=labels[:, 1],
        classes=2,
        bias_classes=2,
        aligned=aligned,
        transform=Transform(mean=IMAGENET_MEAN, std=IMAGENET_STD, flip=split == "train"),
        names=yes_or_no(target, bias),
    )


def equal(cell: Tensor) -> Tensor:
    """Sorted indices of as many samples of each of the four cells as the smallest has."""
    counts = torch.bincount(cell, minlength=4)
    if int(counts.min()) == 0:
        raise BadInput('protocol="equal" needs samples in all four cells, and one is empty; use protocol="paper"')
    generator = torch.Generator().manual_seed(EQUAL_SEED)
    drawn = []
    for value in range(4):
        index = (cell == value).nonzero().flatten()
        drawn.append(index[torch.randperm(len(index), generator=generator)[: int(counts.min())]])
    return torch.cat(drawn).sort().values


def by_authors(split: str, cell: Tensor, seed: int) -> Tensor:
    """Sorted indices of a split in the official partition that the authors' code takes it from.

    Train: all but a fifth of the smallest cell from each. val: these. test: as many of each as the smallest has.
    """
    smallest = int(torch.bincount(cell, minlength=4).min())
    size = smallest if split == "test" else int(0.2 * smallest)
    if size == 0:
        raise BadInput(
            f'protocol="authors" draws evenly from the four cells, of which the smallest has {smallest} here, too few;'
            ' use protocol="paper"'
        )
    drawn = []
    for value in range(4):  # each from the same state of the generator, as pandas draws from groups
        index = (cell == value).nonzero().flatten()
        chosen = np.random.RandomState(seed).choice(len(index), size, replace=False)
        drawn.append(index[torch.from_numpy(chosen)])
    held = torch.cat(drawn).sort().values
    if split != "train":
        return held
    left = torch.ones(len(cell), dtype=torch.bool)
    left[held] = False
    return left.nonzero().flatten()


def read_attributes(path: Path, wanted: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """{picture: (0 or 1 for each attribute wanted)} of list_attr_celeba, as text or as csv."""
    lines = _lines(path)
    if path.suffix == ".csv":
        header, rows, first = lines[0].split(",")[1:], [line.split(",") for line in lines[1:]], 2
    else:
        count = lines[0].strip()
        header, rows, first = lines[1].split() if len(lines) > 1 else [], [line.split() for line in lines[2:]], 3
        if count.lstrip("0") != str(len(rows)):
            raise BadInput(
                f"{path} says {count[:20]!r} pictures and lists {len(rows)}; it was cut short, fetch it again"
            )
    header = [name.strip() for name in header]
    if len(set(header)) != len(header):
        raise BadInput(f"{path} names an attribute twice; fetch it again")
    missing = [name for name in wanted if name not in header]
    if missing:
        raise BadInput(f"{path} has no attribute {missing[0]!r}; it has {', '.join(header)[:200] or 'none'}")
    columns = [header.index(name) + 1 for name in wanted]
    out: dict[str, tuple[int, ...]] = {}
    for number, row in enumerate(rows, first):
        if len(row) != len(header) + 1:
            raise BadInput(f"{path}, line {number}: {len(row) - 1} values for {len(header)} attributes; fetch it again")
        chosen = tuple(_SIGNS.get(row[column].strip(), -1) for column in columns)
        if -1 in chosen:
            bad = row[columns[chosen.index(-1)]]
            raise BadInput(f"{path}, line {number}: {bad[:20]!r} is no attribute's value; it takes 1 or -1")
        _add(out, row[0], chosen, path, number)
    return out


def read_partition(path: Path) -> dict[str, int]:
    """{picture: 0 train, 1 val or 2 test} of list_eval_partition, as text or as csv, in its order."""
    lines = _lines(path)
    first = 2 if path.suffix == ".csv" else 1
    out: dict[str, int] = {}
    for number, line in enumerate(lines[first - 1 :], first):
        row = line.split(",") if path.suffix == ".csv" else line.split()
        if len(row) != 2 or row[1].strip() not in ("0", "1", "2"):
            raise BadInput(
                f"{path}, line {number}: {line[:40]!r} is no picture and its part (0, 1 or 2); fetch it again"
            )
        _add(out, row[0], int(row[1]), path, number)
    return out


_SIGNS = {"1": 1, "-1": 0}


def _add(out: dict[str, Any], name: str, value: Any, path: Path, number: int) -> None:
    name = name.strip()
    # a name that leads out of the folder is no picture's
    if not name or name in out or "/" in name or "\\" in name or name in (".", ".."):
        what = "is listed twice" if name in out else "is no picture's name"
        raise BadInput(f"{path}, line {number}: {name[:40]!r} {what}; fetch it again")
    out[name] = value


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} can't be read ({error}); fetch it again") from error
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise BadInput(f"{path} is empty; fetch it again")
    return lines


def _either(folder: Path, stem: str) -> Path:
    """The list as the authors ship it (.txt), or as csv."""
    for ending in (".txt", ".csv"):
        if (folder / f"{stem}{ending}").is_file():
            return folder / f"{stem}{ending}"
    raise BadInput(
        f"{folder}/{stem}.txt does not exist; put CelebA's img_align_celeba/, list_attr_celeba.txt and"
        f" list_eval_partition.txt into {folder}"
    )


def _pictures(folder: Path) -> Path:
    """The folder of pictures; some archives unpack it into one of the same name."""
    pictures = folder / "img_align_celeba"
    nested = pictures / "img_align_celeba"
    if nested.is_dir():
        return nested
    if not pictures.is_dir():
        raise BadInput(f"{pictures} does not exist; unpack CelebA's aligned and cropped pictures there")
    return pictures
