"""Models and data by functions of Python: what is imported, and what a model's function gives."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput
from bise.network.weights import fitting, misfit, read_state


def function(name: str, option: str) -> Any:
    """What package.module:function names, the working folder included in the search."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise BadInput(f"{option} {name!r} names no function; write package.module:function")
    if module.endswith(".py"):
        raise BadInput(f"{option} {name!r} names a file; {_as_module(Path(module))}:{attribute}")
    if module.partition(".")[0] != "bise" and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), attribute)
    except SystemExit as error:  # as of argparse, which reads bise's own arguments there
        raise BadInput(
            f"{option} {name!r} can't be imported, since its module {module} ended the program; put the part of it that"
            ' is a script under if __name__ == "__main__":'
        ) from error
    except Exception as error:  # the user's module may raise anything while it is imported
        what = f"{type(error).__name__}: {error}"
        raise BadInput(f"{option} {name!r} can't be imported ({what}); run from the folder that holds it") from error


def _as_module(file: Path) -> str:
    """How to name the module in a file: from the working folder where it is below, else from the file's own."""
    if file.is_relative_to(Path.cwd()):
        file = file.relative_to(Path.cwd())
    if file.is_absolute() or ".." in file.parts:
        return f"run from its folder {file.parent} and write {file.stem}"
    return f"write {'.'.join(file.with_suffix('').parts)}"


def model_of(name: str, weights: Path | None) -> Any:
    """The model that the user's function gives, with its weights."""
    make = function(name, "--model")
    try:
        inspect.signature(make).bind()
    except TypeError as error:
        raise BadInput(f"--model {name} can't be called without arguments ({error}); name a function") from error
    except ValueError:  # some of those written in C don't say what they take
        pass
    return made_by(make, name, weights)


def made_by(make: Callable[..., Any], name: str, weights: Path | None) -> nn.Module:
    """What `make` gives, with its weights; a .pt file is read with weights_only, so that it can't run code."""
    try:
        model = make()
    except BadInput:
        raise
    except (Exception, SystemExit) as error:  # the user's function may raise anything
        raise BadInput(f"--model {name} raised {type(error).__name__}: {error}; it should return a model") from error
    if not isinstance(model, nn.Module):
        raise BadInput(f"--model {name} returned {type(model).__name__}; it should return a torch module")
    return model if weights is None else filled(model, read_state(weights), name, weights)


def filled(model: nn.Module, state: dict[str, Tensor], name: str, weights: Path) -> nn.Module:
    """The model with the tensors of its weights' file."""
    state = fitting(state, model)
    try:
        model.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        why = misfit(state, model) or str(error).splitlines()[-1].strip()
        raise BadInput(
            f"--weights {weights} doesn't fit {name} ({why}); give a file that this very architecture was saved to"
        ) from error
    return model


def device_named(name: str) -> Any:
    """The device that is called cpu, cuda or cuda:1; auto is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadInput(f"--device {name!r} is unknown; use auto, cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise BadInput(f"--device {name!r} is unknown; use auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"--device {name} finds no GPU; use cpu")
    return device
