"""The recipes by name, and what they make: data, models, and the settings of extraction and finetuning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bise.base.errors import BadInput
from bise.data import load
from bise.data.core.contract import Labelled
from bise.data.core.subset import subset
from bise.engine.config import TrainConfig
from bise.jobs.paper_recipes import biased_mnist, celeba, civilcomments, corrupted_cifar10, multi_color_mnist
from bise.jobs.recipe_class import AUTHORS, Recipe, Rho
from bise.jobs.text_recipes import biased_madlibs, biased_madlibs_small
from bise.network.architectures.by_name import ARCHITECTURES
from bise.network.architectures.pretrained import BERT_BASE

__all__ = [
    "AUTHORS",
    "PAPER",
    "RECIPES",
    "Recipe",
    "Rho",
    "architecture",
    "preset_changes",
    "preset_finetuning",
    "recipe",
    "splits",
    "start",
    "student",
]

RECIPES: dict[str, Callable[..., Recipe]] = {
    "biased-mnist": biased_mnist,
    "multi-color-mnist": multi_color_mnist,
    "corrupted-cifar10": corrupted_cifar10,
    "celeba": celeba,
    "civilcomments": civilcomments,
    "biased-madlibs": biased_madlibs,
    "biased-madlibs-small": biased_madlibs_small,
}
PAPER = ("biased-mnist", "multi-color-mnist", "corrupted-cifar10", "celeba", "civilcomments")
"""The paper's own."""


def recipe(name: str, *, rho: Rho = None, protocol: str | None = None, seed: int = 0) -> Recipe:
    """A recipe by name, for one ρ and one seed; None is the recipe's own default."""
    if name not in RECIPES:
        raise BadInput(f"recipe {name!r} is unknown; use {', '.join(RECIPES)}")
    made = RECIPES[name](rho=rho, protocol=protocol)
    return replace(
        made,
        train=replace(made.train, seed=seed),
        extract=replace(made.extract, seed=seed),
        finetune=replace(made.finetune, seed=seed),
    )


# what a run's configuration refers to, so that other commands can build model and data again


def splits(
    split: str,
    *,
    recipe: str,
    rho: Any = None,
    protocol: str | None = None,
    seed: int = 0,
    root: str | Path | None = None,
    select: str = "best",
    limit: int | None = None,
    train: str = "train",
) -> Labelled | None:
    """A recipe's data; no val where the last mask is taken. `limit` draws so many samples of each split.

    `train` is the data set's split that stands for train: that of the masks, for steps after the vanilla model.
    """
    split = train if split == "train" else split
    if split == "val" and select == "last":
        return None
    rho = tuple(rho) if isinstance(rho, list) else rho  # JSON knows no tuples
    data = load(RECIPES[recipe]().data, split=split, rho=rho, seed=seed, protocol=protocol, root=root)
    return data if limit is None else subset(data, limit, seed)


def architecture(*, recipe: str, **shape: Any) -> nn.Module:
    """A recipe's architecture, without its weights; `shape` is what `start` says of it."""
    made = RECIPES[recipe]()
    return ARCHITECTURES[made.architecture](made.classes, None, **shape)[0]


def start(recipe: Recipe, weights: str | Path | None = None, *, seed: int = 0) -> tuple[nn.Module, str, dict[str, Any]]:
    """(the model to train, where its weights come from, what `architecture` needs to build it again).

    `weights` is "scratch", "imagenet", a file (for BERT a folder or a name), or None for what the recipe says.
    """
    chosen = recipe.start if weights is None else weights
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they were
        torch.manual_seed(seed)
        weights = None if str(chosen) == "scratch" else chosen
        large = weights is not None and recipe.architecture == "BERT"  # whose shape is that of its weights
        model, provenance = ARCHITECTURES[recipe.architecture](
            recipe.classes, weights, **({} if large else recipe.shape)
        )
    if recipe.architecture == "BERT":
        return model, provenance, {key: getattr(model.config, key) for key in BERT_BASE}
    return model, provenance, dict(recipe.shape)


def student(recipe: Recipe, *, seed: int = 0) -> nn.Module:
    """A fresh student of a distillation: the start, or every other layer of a BERT's, as DistilBERT began."""
    model = start(recipe, seed=seed)[0]
    if recipe.student == "every other layer":
        encoder: Any = model.get_submodule("bert.encoder")
        encoder.layer = nn.ModuleList(list(encoder.layer)[::2])
        config: Any = model.config
        config.num_hidden_layers = len(encoder.layer)
    return model


def preset_changes(chosen: Recipe, preset: str) -> dict[str, Any]:
    """What a recipe changes in a preset of extraction, whatever its own protocol; gates are in the paper's places."""
    if preset == "balanced":
        return {"gates_at": "activations", **chosen.extract_balanced}
    return _by_preset(chosen, preset).extract_changes()


def preset_finetuning(chosen: Recipe, preset: str) -> TrainConfig:
    """A recipe's finetuning by the preset `paper` or `authors`, whose code has none, so that the text stands."""
    return _by_preset(chosen, preset).finetune


def _by_preset(chosen: Recipe, preset: str) -> Recipe:
    """The recipe as the preset has it: `paper` under the protocol `authors` and the other way round too."""
    if preset == chosen.preset:
        return chosen
    protocol = AUTHORS if preset == AUTHORS else None
    return recipe(chosen.name, rho=chosen.rho, protocol=protocol, seed=chosen.extract.seed)
