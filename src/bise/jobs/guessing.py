"""`--bias-by`: the labels b̃ that a run guessed for its training split, kept in its folder for later commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bise.base.errors import BadInput, caution
from bise.base.files import read_tensors, write_tensors
from bise.base.plain import check_plain
from bise.data.core.contract import Labelled, Progress, PseudoLabelled, labels, unloaded
from bise.jobs.keys import KEYS
from bise.jobs.python_sources import model_of
from bise.jobs.recipes import start
from bise.jobs.train import recipe_of
from bise.methods.pseudo_labels import pseudo_bias, with_guesses
from bise.network.architectures.named import is_named
from bise.runs.trust import is_key

FILE = "guessed_bias.safetensors"


def fresh_of(source: dict[str, Any], device: torch.device) -> Callable[[], nn.Module]:
    """A function that gives a fresh model of a run's architecture, on the device."""
    name = str(source["model"])
    chosen = recipe_of(source)
    if chosen is not None:
        return lambda: start(chosen)[0].to(device)
    if is_key(source, "model"):
        return lambda: KEYS[name].model(**source["model_arguments"]).to(device)
    if is_named(name):
        raise BadInput(
            f"--bias-by trains a fresh model of the same architecture, and {name} is a trained one; name a function by"
            " --model, or guess b by bise.pseudo_bias in Python"
        )
    return lambda: model_of(name, None).to(device)


def guessed(
    make: Callable[[], nn.Module], train: Any, by: str, out: Path, *, seed: int, resume: bool, progress: Progress
) -> PseudoLabelled:
    """train with b̃; those that a run in `out` has noted already where it is gone on with."""
    if resume and (out / FILE).is_file():
        return noted(out, train)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return pseudo_bias(make, train, by=by, progress=progress)


def has_bias(data: Any) -> bool:
    """Whether a split has bias labels."""
    if isinstance(data, Labelled):
        return data.b is not None
    sample = data[0]
    return isinstance(sample, (tuple, list)) and len(sample) == 3


def with_bias(data: Any, name: str, say: bool = True) -> Any:
    """val or test where they have bias labels, on which a network could be judged; else nothing."""
    if data is None or has_bias(data):
        return data
    if say:
        caution(f"{name} has no bias labels, so nothing is judged by it; those of train alone are guessed")
    return None


def note(folder: Path, train: Any) -> None:
    """Keep b̃ where they are guessed."""
    if isinstance(train, PseudoLabelled) and train.b is not None:
        write_tensors(folder / FILE, {"b": train.b})


def noted(folder: Path, train: Any) -> PseudoLabelled:
    """train with the b̃ that the folder keeps."""
    check_plain(folder)
    b, train = read_tensors(folder / FILE)["b"], unloaded(train)
    if len(b) != len(train):
        raise BadInput(
            f"{folder / FILE} has labels of {len(b):,} samples, and train has {len(train):,}; bring the data back that"
            " the run was made from, or extract anew"
        )
    return with_guesses(train, labels(train, need_bias=False), b)


def with_noted(folder: Path, splits: Callable[..., Any]) -> Any:
    """The run's splits: train with the b̃ that its folder keeps, where it keeps some."""
    return partial(_noted_split, splits, folder) if (folder / FILE).is_file() else splits


def _noted_split(splits: Callable[..., Any], folder: Path, split: str, **more: Any) -> Any:
    data = splits(split, **more)
    if split == "train" and data is not None:
        return noted(folder, data)
    return with_bias(data, split, say=False)
