"""What a named model takes, by its own configuration: size and scale of pictures, length of texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from bise.base.errors import BadInput
from bise.base.files import read_bytes
from bise.network.architectures.hub import first_line, hub_file
from bise.network.architectures.named import timm_library
from bise.network.architectures.vision import torchvision

LARGEST = 2**20
"""Bytes that a preprocessor's configuration may have."""


def pictures_of(name: str, model: nn.Module, *, own_weights: bool, local: bool) -> dict[str, Any]:
    """{"size": (height, width), "mean", "std", "left": what else it does} that a model's configuration says, or {}."""
    library, _, own = name.partition(":")
    if library == "timm":
        found = timm_library().data.resolve_model_data_config(model)
        left = [] if found["crop_pct"] == 1 else [f"a crop to {found['crop_pct']:g} of the side"]
        left += [] if found["interpolation"] == "bilinear" else [f"{found['interpolation']} resampling"]
        return {"size": found["input_size"][1:], "mean": found["mean"], "std": found["std"], "left": left}
    if library == "torchvision":
        if own_weights:  # its architectures say nothing of pictures, only published weights do
            return {}
        how = torchvision().models.get_model_weights(own).DEFAULT.transforms()
        left = [f"a crop from {how.resize_size[0]} pixels"] if how.resize_size != how.crop_size else []
        return {"size": how.crop_size * 2, "mean": how.mean, "std": how.std, "left": left}
    return _preprocessor(own, local)


def _preprocessor(where: str, local: bool) -> dict[str, Any]:
    """Of transformers' preprocessor_config.json, in a folder or in the hub."""
    path = Path(where) / "preprocessor_config.json"
    if not Path(where).is_dir():
        try:
            path = hub_file(where, path.name, local=local, remedy="")
        except BadInput:  # it may have none
            return {}
    if not path.is_file():
        return {}
    try:
        return _as_ours(json.loads(read_bytes(path.resolve(), LARGEST)))  # a hub's files are links
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, ZeroDivisionError) as error:
        raise BadInput(f"{path} can't be read ({first_line(error)}); put it right, or take it away") from error


def _as_ours(content: Mapping[str, Any]) -> dict[str, Any]:
    """(x·f − m) / s of transformers, x from 0 to 255, as (x/255 − mean) / std."""
    factor = 255 * float(content.get("rescale_factor", 1 / 255)) if content.get("do_rescale", True) else 255.0
    plain = not content.get("do_normalize", True)
    mean, std = ([0.0], [1.0]) if plain else (content["image_mean"], content["image_std"])
    size, cut = _size(content.get("size")), _size(content.get("crop_size"))
    left = ["a crop in the middle"] if content.get("do_center_crop") or "crop_pct" in content else []
    left += [] if content.get("resample", 2) == 2 else ["another resampling"]
    left += ["an offset of the pixels"] if content.get("rescale_offset") else []
    return {
        "size": cut if content.get("do_center_crop") and cut else size,
        "mean": tuple(float(value) / factor for value in mean),
        "std": tuple(float(value) / factor for value in std),
        "left": left,
    }


def _size(value: Any) -> tuple[int, int] | None:
    if isinstance(value, int):
        return value, value
    if isinstance(value, Mapping):
        side = value.get("shortest_edge")
        height, width = value.get("height", side), value.get("width", side)
        return (int(height), int(width)) if height and width else None
    return None


def longest_text(model: nn.Module) -> int | None:
    """Tokens that a text model has positions for, None where that isn't said."""
    config = getattr(model, "config", None)
    most = getattr(config, "max_position_embeddings", None)
    if not isinstance(most, int) or most < 1:
        return None
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return most - module.padding_idx - 1  # RoBERTa counts positions from there
    return most
