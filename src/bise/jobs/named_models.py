"""Models by a library's name: with their weights, and with what their own configuration says of inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from bise.base.errors import BadInput
from bise.data.own.hub_files import is_hugging_face
from bise.jobs.python_sources import filled
from bise.network.architectures.auto import transformers_model
from bise.network.architectures.intake import longest_text, pictures_of
from bise.network.architectures.named import classes_of, is_named, made, published, published_classes
from bise.network.weights import fitting, read_state

LENGTH = 128
"""Tokens that a sentence has where nobody says otherwise."""


def named_model(name: str, weights: Path | None, *, local: bool = False) -> nn.Module:
    """The model of a library by its name, with the weights of a file or with those that the name stands for.

    A model of timm or torchvision has as many classes as the last layer in the file. No hub is asked where `local`.
    """
    library, _, own = name.partition(":")
    if library == "hf":
        if weights is not None:
            raise BadInput(f"{name} brings its own weights; leave --weights out, or put that file into its folder")
        return transformers_model(own, local=local)
    if weights is None:
        return published(name, local=local)
    state = read_state(weights)
    model = made(name)
    classes = classes_of(model, fitting(state, model))
    return filled(model if classes is None else made(name, classes), state, name, weights)


def completed(
    name: str,
    model: nn.Module,
    data: str,
    own: dict[str, Any],
    *,
    own_weights: bool,
    local: bool = False,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """The options of one's data, with what a named model's configuration says in place of those that aren't given."""
    if not is_named(name):
        return own
    if _has_pictures(data, own):
        return own | _pictures(name, model, own, own_weights, local, say)
    if "text" in own:
        return own | _texts(name, model, own, say)
    return own


def _has_pictures(data: str, own: dict[str, Any]) -> bool:
    return "image" in own or (Path(data).is_dir() and not is_hugging_face(Path(data)))


def telling_of_pixels(
    name: str, data: str, own: dict[str, Any], splits: Callable[[str], Any], say: Callable[[str], None]
) -> Callable[[str], Any]:
    """`splits`, and a word on pixels that nobody scales, once there are some: what is refused is one sentence alone."""
    if is_named(name) or "mean" in own or "std" in own or not _has_pictures(data, own):
        return splits
    told = False

    def split(which: str) -> Any:
        nonlocal told
        found = splits(which)
        if not told:
            say(
                "pictures: pixels go from 0 to 1, since no --mean and --std are given; a model that was trained on"
                " other pixels needs its own"
            )
        told = True
        return found

    return split


def _pictures(
    name: str, model: nn.Module, own: dict[str, Any], own_weights: bool, local: bool, say: Callable[[str], None]
) -> dict[str, Any]:
    """Size, mean and standard deviation; one of the user's own mean and deviation leaves the other as it is, too."""
    wanted = [key for key in ("size", "mean", "std") if key not in own]
    if "mean" in own or "std" in own:
        wanted = [key for key in wanted if key == "size"]
    found = pictures_of(name, model, own_weights=own_weights, local=local) if wanted else {}
    shown = {key: _typed(key, found[key]) for key in wanted if found.get(key)}
    if shown:
        said = ", ".join(f"{key} {value}" for key, value in shown.items())
        left = f"; left out: {', '.join(found['left'])}" if found["left"] else ""
        say(f"pictures: {said}, by the configuration of {name}{left}")
    elif wanted:
        say(f"pictures: {name} says nothing of {', '.join(wanted)}, so --size has to, and pixels go from 0 to 1")
    return shown


def _typed(key: str, value: Any) -> str:
    """As the option takes it."""
    if key == "size":
        return "x".join(str(side) for side in value)
    return ",".join(f"{number:.9g}" for number in value)


def _texts(name: str, model: nn.Module, own: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """The tokenizer that lies with the model, and no more tokens than it has positions for."""
    found: dict[str, Any] = {}
    library, _, where = name.partition(":")
    if "tokenizer" not in own and library == "hf":
        found["tokenizer"] = where
    most = longest_text(model)
    if "length" not in own and most is not None and most < LENGTH:
        found["length"] = most
    if found:
        said = ", ".join(f"{key} {value}" for key, value in found.items())
        say(f"texts: {said}, by the configuration of {name}")
    return found


def agreeing(name: str, model: nn.Module, splits: Callable[[str], Any], *, own_weights: bool) -> Callable[[str], Any]:
    """`splits`, refused where a named model can't mean the classes that they have: in another order, or other ones."""
    if not is_named(name):
        return splits
    names = getattr(getattr(model, "config", None), "id2label", None)
    own = [str(names[number]) for number in sorted(names)] if isinstance(names, dict) else []
    count = None if own_weights else published_classes(name, model)

    def split(which: str) -> Any:
        data = splits(which)
        theirs = [str(one) for one in getattr(data, "class_names", ())]
        if len(own) > 1 and theirs != own and sorted(theirs) == sorted(own):
            raise BadInput(
                f"the model numbers its classes {', '.join(own[:10])}, and the data {', '.join(theirs[:10])}; write"
                " numbers instead of names into the target's column, 0 for the model's first class and so on"
            )
        if theirs and count is not None and len(theirs) != count:
            raise BadInput(
                f"the published weights of {name} tell {count:,} classes, and the data have {len(theirs)}; name a file"
                " of weights that were trained on these with --weights"
            )
        return data

    return split
