"""Contact sheets: what a data set looks like, targets from top to bottom and biases from left to right."""

from __future__ import annotations

import io
from pathlib import Path

import torch
from torch import Tensor

from bise.data.cells import Cells
from bise.data.contract import Labelled, input_of, labels, stored
from bise.errors import BadInput
from bise.files import write_bytes

MOST_COLUMNS = 24
"""Where biases form more combinations than this, columns are the alignment groups."""
GAP = 4
LABEL = 14
"""Pixels between cells, and for a line of text."""


def contact_sheet(data: Labelled, path: str | Path, *, per_group: int = 2, scale: int = 1) -> None:
    """Write one PNG with the first `per_group` pictures of each target (row) and bias (column), as they are stored.

    A cell without samples stays empty; each picture is `scale` times as wide and as high.
    """
    try:
        from PIL import Image, ImageDraw
    except ModuleNotFoundError as error:
        raise BadInput("pillow is not installed; install the extra: pip install 'bise[data]'") from error
    if per_group < 1 or scale < 1:
        raise BadInput(f"per_group={per_group} and scale={scale} make no picture; give whole numbers from 1")
    cells = labels(data, need_bias=False)
    columns, names = _columns(cells, data.b is not None)
    chosen = {
        (y, c): ((cells.y == y) & (columns == c)).nonzero().flatten()[:per_group].tolist()
        for y in range(cells.classes)
        for c in range(len(names))
    }
    height, width = (side * scale for side in _bytes(data, 0).shape[:2])
    wide, high, left, top = per_group * width + GAP, height + GAP, 3 * LABEL, LABEL + 2
    sheet = Image.new("RGB", (left + wide * len(names), top + high * cells.classes), "white")
    pen = ImageDraw.Draw(sheet)
    for c, name in enumerate(names):
        pen.text((left + c * wide, 1), name, fill="black")
    for (y, c), samples in chosen.items():
        if c == 0:
            pen.text((2, top + y * high + (height - LABEL) // 2), f"y={y}", fill="black")
        for k, sample in enumerate(samples):
            picture = Image.fromarray(_bytes(data, sample).numpy()).resize((width, height), Image.Resampling.NEAREST)
            sheet.paste(picture, (left + c * wide + k * width, top + y * high))
    content = io.BytesIO()
    sheet.save(content, format="PNG")
    write_bytes(Path(path), content.getvalue())


def _columns(cells: Cells, biased: bool) -> tuple[Tensor, list[str]]:
    """[N]: the column of each sample, and the columns' names."""
    if not biased:
        return torch.zeros_like(cells.y), ["all"]
    combinations = cells.counts.numel() // cells.classes
    if combinations <= MOST_COLUMNS:
        names = [cells.name_of(c).partition(" ")[2] for c in range(combinations)]
        return cells.index % combinations, names
    words = ["".join("ac"[group >> k & 1] for k in reversed(range(cells.biases))) for group in range(2**cells.biases)]
    return cells.alignment_index, [word.replace("a", "aligned ").replace("c", "conflicting ").strip() for word in words]


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
