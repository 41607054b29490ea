"""The twin: a module tree of its own over the caller's weights, so that nothing done to it reaches the caller."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bise.errors import BadInput


def twin(model: nn.Module) -> nn.Module:
    """A deep copy of the module tree whose parameters and buffers alias the model's storage; frozen, in eval mode.

    Tied parameters stay tied. Plain tensor attributes (old-style weight norm keeps its weight in one) are
    aliased too, since a tensor with a graph behind it can't be copied.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise BadInput("TorchScript models take no hooks; hand in the Python module that was scripted or traced")
    compiled = next((path for path, module in model.named_modules() if hasattr(module, "_orig_mod")), None)
    if compiled is not None:
        raise BadInput(
            f"{compiled or type(model).__name__} is compiled by torch.compile, whose code knows no gates; hand in the"
            " module as it was before, which is kept in its attribute _orig_mod"
        )
    _check_shapes(model)
    memo: dict[int, Any] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            memo[id(parameter)] = _frozen(parameter, parameter.detach())
        for value in (*module.buffers(recurse=False), *vars(module).values()):
            if isinstance(value, Tensor) and id(value) not in memo:
                memo[id(value)] = value.detach()
    try:
        copied = copy.deepcopy(model, memo)
    except Exception as error:
        raise BadInput(
            f"{type(model).__name__} can't be copied ({type(error).__name__}: {error}); keep locks, files and"
            " generators out of the module's attributes"
        ) from error
    for module in copied.modules():
        if isinstance(module, nn.TransformerEncoder):  # its nested tensors have no channels for a gate to close
            module.enable_nested_tensor = module.use_nested_tensor = False
    return copied.eval()


def own(module: nn.Module, names: Iterable[str]) -> None:
    """Give `module` storage of its own for the named parameters and buffers, in place, ties kept."""
    wanted = set(names)
    clones: dict[int, Tensor] = {}
    for path, child in module.named_modules():
        for key, value in (*child._parameters.items(), *child._buffers.items()):
            name = f"{path}.{key}" if path else key
            if value is None or name not in wanted:
                continue
            if id(value) not in clones:
                clone = value.detach().clone()
                clones[id(value)] = _frozen(value, clone) if isinstance(value, nn.Parameter) else clone
            store: dict[str, Any] = child._parameters if key in child._parameters else child._buffers
            store[key] = clones[id(value)]


def _frozen(parameter: nn.Parameter, value: Tensor) -> nn.Parameter:
    """`value` in the place of `parameter`, without a gradient; whether the caller had it so is not forgotten."""
    new = nn.Parameter(value, requires_grad=False)
    new.held = held(parameter)  # type: ignore[attr-defined]
    return new


def held(parameter: nn.Parameter) -> bool:
    """Whether the caller had frozen a parameter of the model, or the one that it stands for in a twin."""
    return getattr(parameter, "held", not parameter.requires_grad)


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer by name, those that `state_dict` leaves out as well; tied ones under each name."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def fingerprint(model: nn.Module) -> str:
    """SHA-256 over the name, type, shape and bytes of every parameter and buffer."""
    _check_shapes(model)
    return digest_of(named_tensors(model))


def _check_shapes(model: nn.Module) -> None:
    for module in model.modules():
        if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters(recurse=False)):
            raise BadInput(f"{type(module).__name__} has weights without a shape yet; run the model once on an example")


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over the name, type, shape and bytes of every tensor."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return digest.hexdigest()
