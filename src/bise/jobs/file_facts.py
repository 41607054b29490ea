"""What a file to deploy says beside its graph: classes, what inputs are scaled by, and how large they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from bise.base.version import VERSION
from bise.data.core.contract import Labelled, stored, unloaded
from bise.data.core.pictures import Pictures
from bise.network.shrinking.sizes import is_tokens

PT2_FILE = "bise.json"
"""The extra file of a .pt2 that holds them all; ONNX has a property for each."""


def file_facts(data: Any, names: Sequence[str], inputs: Sequence[Tensor], *, any_length: bool) -> dict[str, str]:
    """{name: JSON}: `input_size` of one sample, and what `data` knows of classes and pictures; `data` may be None.

    With `any_length`, that of token sequences is null. A network takes (pixels / 255 − `mean`) / `std`, by channel or
    alike for all.
    """
    sizes: dict[str, list[int | None]] = {name: [*x.shape[1:]] for name, x in zip(names, inputs, strict=True)}
    if any_length:
        sizes |= {name: [None] for name, value in zip(names, inputs, strict=True) if is_tokens(value)}
    facts: dict[str, Any] = {"bise": VERSION, "input_size": sizes if len(sizes) > 1 else next(iter(sizes.values()))}
    data = unloaded(data)
    if isinstance(data, Labelled):
        if data.names is not None:
            facts |= {"target": data.names.target, "class_names": list(data.names.classes)}
        inner, transform = stored(data)
        if transform is not None:
            facts |= {"mean": list(transform.mean), "std": list(transform.std)}
        if isinstance(inner, Pictures):
            facts["fit"] = inner.fit
    return {name: json.dumps(value, ensure_ascii=False) for name, value in facts.items()}


def in_one(facts: Mapping[str, str]) -> str:
    """All of them as one JSON object."""
    return json.dumps({name: json.loads(text) for name, text in facts.items()}, ensure_ascii=False)
