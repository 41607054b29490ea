"""One input for a reader to look at: a picture as a small PNG, a sentence, or the values of a table's row."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Subset

from bise.data.core.contract import Labelled, input_of
from bise.data.own.features import Encoder, NumberColumn
from bise.engine.inputs import Inputs

LONGEST_SIDE = 96
MOST_TEXT = 600
MOST_VALUES = 16


class Shower:
    """Calls with a sample's number give {"image": data URI}, {"text": …} or {"values": {name: text}}."""

    def __init__(self, data: Any, inputs: Inputs) -> None:
        self.inputs = inputs
        self.encoder: Encoder | None = getattr(data, "encoder", None)
        self.data = data

    def __call__(self, number: int) -> dict[str, Any]:
        inner, place = unwrapped(self.data, number)
        texts = getattr(inner, "texts", None)
        if texts is not None:
            return {"text": shortened(str(texts[place]))}
        x = input_of(self.inputs.dataset[number])
        if isinstance(x, Mapping):
            return {"text": self._decoded(inner, x)}
        if not isinstance(x, Tensor):
            return {"text": shortened(str(x))}
        if is_picture(x):
            return {"image": png_uri(pixels(x))}
        return {"values": self._values(x)}

    def _decoded(self, inner: Any, x: Mapping[str, Any]) -> str:
        """Token numbers as text, where the data set has a tokenizer that can."""
        numbers = x.get("input_ids")
        if numbers is None:
            return ", ".join(f"{key} {list(torch.as_tensor(value).shape)}" for key, value in x.items())
        listed = torch.as_tensor(numbers).tolist()
        decode = getattr(getattr(inner, "tokenizer", None), "decode", None)
        if callable(decode):
            return shortened(str(decode(listed)))
        return shortened("tokens " + " ".join(str(n) for n in listed if n))

    def _values(self, x: Tensor) -> dict[str, str]:
        flat = x.flatten()
        if self.encoder is not None and len(flat) == len(self.encoder.names):
            named = decoded_row(self.encoder, flat)
        else:
            named = {f"x[{i}]": f"{float(value):.4g}" for i, value in enumerate(flat[: MOST_VALUES + 1].tolist())}
        return dict(list(named.items())[:MOST_VALUES])


def unwrapped(data: Any, number: int) -> tuple[Any, int]:
    """The data set under labels and subsets that holds the inputs, and the sample's number there."""
    while True:
        if isinstance(data, Labelled):
            data = data.dataset
        elif isinstance(data, Subset):
            number, data = int(data.indices[number]), data.dataset
        else:
            return data, number


def decoded_row(encoder: Encoder, flat: Tensor) -> dict[str, str]:
    """A row of features as the file had it: numbers scaled back, categories by name."""
    out: dict[str, str] = {}
    at = 0
    for column in encoder.columns:
        width = len(column.names)
        part = flat[at : at + width]
        at += width
        if isinstance(column, NumberColumn):
            missing = column.marked and bool(part[1])
            out[column.name] = "missing" if missing else restored(column, float(part[0]))
        else:
            out[column.name] = column.categories[int(part.argmax())] if bool(part.any()) else "not seen in training"
    return out


def restored(column: NumberColumn, value: float) -> str:
    """The shortest number that gives this feature: rounding to float32 left an error, which isn't in the file."""
    number = value * column.scale + column.mean
    error = float(np.spacing(np.float32(abs(value)))) / 2 * column.scale + 1e-12 * abs(column.mean)
    digits = next((d for d in range(-30, 30) if abs(round(number, d) - number) <= error), 30)
    near = round(number, digits) + 0.0  # no −0
    return f"{near:.{max(0, digits)}f}" if near == 0 or 1e-6 <= abs(near) < 1e16 else f"{near:.6g}"


def is_picture(x: Tensor) -> bool:
    return x.dim() in (2, 3) and min(x.shape[-2:]) >= 4 and (x.dim() == 2 or x.shape[0] in (1, 3))


def pixels(x: Tensor) -> Tensor:
    """uint8 [C, H, W], at most 96 pixels long; values outside [0, 1] and [−1, 1] are stretched to the whole range."""
    x = x.detach().cpu()
    x = x.unsqueeze(0) if x.dim() == 2 else x
    if x.dtype == torch.uint8:
        shade = x.float() / 255
    else:
        shade = x.float()
        low, high = float(shade.min()), float(shade.max())
        if low < 0 and low >= -1 and high <= 1:
            shade = (shade + 1) / 2
        elif low < 0 or high > 1:
            shade = (shade - low) / max(high - low, 1e-12)
    longest = max(shade.shape[1:])
    if longest > LONGEST_SIDE:
        size = [max(1, round(side * LONGEST_SIDE / longest)) for side in shade.shape[1:]]
        shade = F.interpolate(shade.unsqueeze(0), size=size, mode="bilinear", antialias=True)[0]
    return (shade.clamp(0, 1) * 255).round().to(torch.uint8)


def png_uri(image: Tensor) -> str:
    """uint8 [1 or 3, H, W] as a data URI."""
    channels, height, width = image.shape
    rows = np.zeros((height, 1 + width * channels), dtype=np.uint8)  # a leading 0: no filter
    rows[:, 1:] = image.permute(1, 2, 0).reshape(height, -1).numpy()
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    body = zlib.compress(rows.tobytes(), 9)
    content = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(content).decode()


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def shortened(text: str) -> str:
    return text if len(text) <= MOST_TEXT else text[:MOST_TEXT].rstrip() + " …"
