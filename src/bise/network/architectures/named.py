"""Classifiers of timm and torchvision by the libraries' own names for them: timm:resnet18, torchvision:resnet18."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput
from bise.network.architectures.hub import first_line, hub_file
from bise.network.architectures.vision import torchvision
from bise.network.weights import read_state

LIBRARIES = ("timm", "torchvision", "hf")
"""What may stand before the colon of a name."""


def is_named(name: Any) -> bool:
    """Whether `name` says which library's model or data it is, and so names no function."""
    library, _, rest = str(name or "").partition(":")
    return library in LIBRARIES and bool(rest)


def published(name: str, *, local: bool) -> nn.Module:
    """A model of timm or torchvision with the weights that its makers published; no hub is asked where `local`."""
    library, _, own = name.partition(":")
    model = made(name)
    state = _timm_weights(model, own, local) if library == "timm" else _torchvision_weights(own, local)
    model.load_state_dict(state)
    return model


def published_classes(name: str, model: Any) -> int | None:
    """How many classes the published weights of timm or torchvision tell; None for transformers, whose names say it."""
    library, _, own = name.partition(":")
    if library == "timm":
        return int(model.num_classes)
    if library == "torchvision":
        return len(torchvision().models.get_model_weights(own).DEFAULT.meta["categories"])
    return None


def made(name: str, classes: int | None = None) -> nn.Module:
    """A model of timm or torchvision without trained weights, with so many classes or its library's usual number."""
    library, _, own = name.partition(":")
    return (_timm if library == "timm" else _torchvision)(own, classes)


def classes_of(model: nn.Module, state: Mapping[str, Tensor]) -> int | None:
    """The classes of a state dict by its last layer, the only one that may be of another size than the model's."""
    own = model.state_dict()
    pairs = [(own[name].shape, tensor.shape) for name, tensor in state.items() if name in own]
    odd = [(mine, theirs) for mine, theirs in pairs if mine != theirs]
    counts = {(mine[:1], theirs[:1]) for mine, theirs in odd}
    if len(counts) != 1 or any(len(theirs) == 0 or mine[1:] != theirs[1:] for mine, theirs in odd):
        return None  # loading says what doesn't fit
    return int(odd[0][1][0])


def _timm(name: str, classes: int | None) -> nn.Module:
    library = timm_library()
    if not library.is_model(name):
        raise BadInput(f"timm:{name} is no model of timm{_like(name, library.list_models())}")
    return library.create_model(name, pretrained=False, **({} if classes is None else {"num_classes": classes}))


def timm_library() -> Any:
    """Import timm, with torchvision, which it needs."""
    torchvision()
    try:
        import timm
    except ModuleNotFoundError as error:
        raise BadInput("timm is not installed; install the extra: pip install 'bise[vision]'") from error
    return timm


def _timm_weights(model: Any, name: str, local: bool) -> dict[str, Tensor]:
    where = (model.pretrained_cfg or {}).get("hf_hub_id")
    if not where:
        raise BadInput(f"timm has no published weights of {name}; give your own with --weights FILE")
    return read_state(hub_file(where, "model.safetensors", local=local, remedy="and give the file with --weights"))


def _torchvision(name: str, classes: int | None) -> nn.Module:
    library: Any = torchvision()
    known = library.models.list_models(module=library.models)
    if name not in known:
        raise BadInput(f"torchvision:{name} is no classifier of torchvision{_like(name, known)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # on how two of them are initialised
        return library.models.get_model(name, weights=None, **({} if classes is None else {"num_classes": classes}))


def _torchvision_weights(name: str, local: bool) -> dict[str, Tensor]:
    library: Any = torchvision()
    chosen = library.models.get_model_weights(name).DEFAULT
    kept = Path(torch.hub.get_dir()) / "checkpoints" / chosen.url.rpartition("/")[2]
    if kept.is_file():
        return read_state(kept)
    reason = "a run's weights are looked for on this machine only"
    if not local:
        try:
            return dict(chosen.get_state_dict(progress=False, check_hash=True, weights_only=True))
        except Exception as error:  # of the network, the disk or the file
            reason = first_line(error)
    raise BadInput(
        f"torchvision:{name} needs {kept}, which isn't there and can't be fetched ({reason}); download {chosen.url} on"
        " a machine with a network and put it there, or give your own weights with --weights FILE"
    )


def _like(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=3)
    return f"; did you mean {' or '.join(close)}?" if close else "; its documentation lists their names"
