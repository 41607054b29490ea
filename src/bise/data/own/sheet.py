"""Contact sheets: what a data set looks like, targets from top to bottom and biases from left to right."""

from __future__ import annotations

import io
from pathlib import Path

import torch
from torch import Tensor

from bise.base.errors import BadInput
from bise.base.files import write_bytes
from bise.data.core.cells import Cells
from bise.data.core.contract import Labelled, input_of, labels, stored
from bise.data.core.pictures import MOST_PIXELS

MOST_COLUMNS = 24
"""Where biases form more combinations than this, columns are the alignment groups."""
MOST_ROWS = 100
SMALLEST = 56
"""Pictures of fewer pixels a side are enlarged, where nothing else is asked for."""
GAP = 4
LABEL = 14
"""Pixels between cells, and for a line of text."""


def contact_sheet(data: Labelled, path: str | Path, *, per_group: int = 2, scale: int | None = None) -> None:
    """Write one PNG with `per_group` pictures of each target (row) and bias (column), as they are stored.

    They are spread evenly over a cell's samples, since some sets are sorted. A cell without samples stays empty; each
    picture is `scale` times as wide and as high, by default as many times as small ones need to be seen.
    """
    try:
        from PIL import Image, ImageDraw
    except ModuleNotFoundError as error:
        raise BadInput("pillow is not installed; install the extra: pip install 'bise[data]'") from error
    if per_group < 1 or (scale is not None and scale < 1):
        raise BadInput(f"per_group={per_group} and scale={scale} make no picture; give whole numbers from 1")
    cells = labels(data, need_bias=False)
    if cells.classes > MOST_ROWS:
        raise BadInput(f"{cells.classes} classes don't fit on a contact sheet; it takes up to {MOST_ROWS}")
    columns, heads = _columns(cells, data.b is not None)
    rows = [f"{cells.columns[0]}={cells.label(0, y)}" for y in range(cells.classes)]
    first = _bytes(data, 0)
    scale = scale or max(1, -(-SMALLEST // min(first.shape[:2])))
    height, width = (side * scale for side in first.shape[:2])
    pen = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    wide = max(per_group * width, *(int(pen.textlength(text)) + 2 for text in heads)) + GAP
    left = max(int(pen.textlength(text)) for text in rows) + 2 * GAP
    high, top = max(height, LABEL) + GAP, LABEL + 2
    if (left + wide * len(heads)) * (top + high * len(rows)) > MOST_PIXELS:
        raise BadInput(f"per_group={per_group} and scale={scale} make a sheet too large to draw; give smaller numbers")
    sheet = Image.new("RGB", (left + wide * len(heads), top + high * len(rows)), "white")
    pen = ImageDraw.Draw(sheet)
    for c, text in enumerate(heads):
        pen.text((left + c * wide, 1), text, fill="black")
    for y, text in enumerate(rows):
        pen.text((2, top + y * high + (height - LABEL) // 2), text, fill="black")
        for c in range(len(heads)):
            found = ((cells.y == y) & (columns == c)).nonzero().flatten()
            places = torch.linspace(0, len(found) - 1, min(per_group, len(found)), dtype=torch.float32).long()
            for k, sample in enumerate(found[places].tolist()):
                picture = Image.fromarray(_bytes(data, sample).numpy())
                picture = picture.resize((width, height), Image.Resampling.NEAREST)
                sheet.paste(picture, (left + c * wide + k * width, top + y * high))
    content = io.BytesIO()
    sheet.save(content, format="PNG")
    write_bytes(Path(path), content.getvalue())


def _columns(cells: Cells, biased: bool) -> tuple[Tensor, list[str]]:
    """[N]: the column of each sample (those without a bias label have one of their own), and the columns' names."""
    if not biased:
        return torch.zeros_like(cells.y), ["all"]
    combinations = cells.counts.numel() // cells.classes
    if combinations <= MOST_COLUMNS:
        first = f"{cells.columns[0]}={cells.label(0, 0)} "
        names = [cells.name_of(c).removeprefix(first) for c in range(combinations)]
        columns = cells.index % combinations
    else:
        words = [[group >> k & 1 for k in reversed(range(cells.biases))] for group in range(2**cells.biases)]
        names = [", ".join("conflicting" if bit else "aligned" for bit in bits) for bits in words]
        columns = cells.alignment_index
    if cells.unknown:
        columns = torch.where(cells.known, columns, len(names))
        names = [*names, "without a bias label"]
    return columns, names


def _bytes(data: Labelled, index: int) -> Tensor:
    """uint8 [H, W, 3] of a sample: its stored bytes, or its values stretched from their least to their greatest."""
    inner, _ = stored(data)
    x = input_of(inner[index])
    if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[0] not in (1, 3):
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise BadInput(f"sample {index} is {shape}, no picture [1 or 3, H, W]; contact sheets need pictures")
    if x.dtype != torch.uint8:
        low, high = x.min(), x.max()
        x = ((x - low) / (high - low).clamp_min(1e-6) * 255).round().to(torch.uint8)
    return x.expand(3, -1, -1).permute(1, 2, 0).contiguous()
