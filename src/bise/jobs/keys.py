"""What run folders name by a key instead of by a place in this code: the models and data that bise makes itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from bise.data.sets.digits import digits_split
from bise.jobs.recipes import RECIPES, architecture, splits
from bise.network.architectures.pretrained import BERT_BASE
from bise.network.architectures.small import digit_net

NUMBER, NUMBERS, TEXT = (int, float), (int, float, list), (str,)


@dataclass(frozen=True, kw_only=True)
class Key:
    """What a key stands for. Beside the arguments that are listed here, a run folder can give it none."""

    model: Callable[..., Any]
    model_arguments: Mapping[str, tuple[type, ...]]
    """{argument: its types}; each may be None too."""
    data: Callable[..., Any]
    """From a split's name."""
    data_arguments: Mapping[str, tuple[type, ...]]


def _of_recipe(name: str) -> Key:
    return Key(
        model=partial(architecture, recipe=name),
        model_arguments={**dict.fromkeys(BERT_BASE, NUMBER), "last": TEXT},
        data=partial(splits, recipe=name),
        data_arguments={
            "rho": NUMBERS,
            "protocol": TEXT,
            "seed": NUMBER,
            "root": TEXT,
            "select": TEXT,
            "limit": NUMBER,
            "train": TEXT,
        },
    )


KEYS = {f"recipe:{name}": _of_recipe(name) for name in RECIPES} | {
    "demo:digits": Key(
        model=digit_net,
        model_arguments={"seed": NUMBER},
        data=digits_split,
        data_arguments=dict.fromkeys(("seed", "rho", "copies", "turned", "noise", "brightness"), NUMBER),
    ),
}
"""A key stays when its functions move: runs of every version name it."""
ARGUMENTS = {
    "model": {name: key.model_arguments for name, key in KEYS.items()},
    "data": {name: key.data_arguments for name, key in KEYS.items()},
}
"""{"model" or "data": {key: {argument: its types}}}, by which a stranger's folder is judged."""
