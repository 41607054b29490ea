"""The twin: a module tree of its own over the caller's weights, so that nothing done to it reaches the caller."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import CellType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput
from bise.network.heads import PLAIN, Projection


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
    _check_weights(model)
    memo: dict[int, Any] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            memo[id(parameter)] = _frozen(parameter, parameter.detach())
        for value in (*module.buffers(recurse=False), *vars(module).values()):
            if isinstance(value, Tensor) and id(value) not in memo:
                memo[id(value)] = value.detach()
    try:
        copied = duplicate(model, memo)
    except Exception as error:
        raise BadInput(
            f"{type(model).__name__} can't be copied ({type(error).__name__}: {error}); keep locks, files and"
            " generators out of the module's attributes"
        ) from error
    for module in copied.modules():
        if isinstance(module, nn.TransformerEncoder):  # its nested tensors have no channels for a gate to close
            module.enable_nested_tensor = module.use_nested_tensor = False
        if isinstance(module, nn.MultiheadAttention) and type(module.out_proj) is PLAIN:
            module.out_proj.__class__ = Projection
    copied.eval()  # whose result isn't used: a model may have a train() of its own that returns nothing
    return copied


def duplicate(module: nn.Module, memo: dict[int, Any] | None = None) -> Any:
    """A deep copy whose lambdas and hooks speak of the copy, and without the graphs behind tensors that it noted."""
    memo = {} if memo is None else memo
    for part in module.modules():
        noted = (value for value in vars(part).values() if isinstance(value, Tensor) and not value.is_leaf)
        memo |= {id(value): value.detach() for value in noted if id(value) not in memo}
    copied = copy.deepcopy(module, memo)
    for part in copied.modules():
        for store in (vars(part), *(s for s in vars(part).values() if isinstance(s, dict))):
            store.update({k: _rebound(v, memo) for k, v in store.items() if isinstance(v, (FunctionType, list))})
    return copied


def _rebound(value: Any, memo: dict[int, Any]) -> Any:
    """A function of a copied module with the copies in place of what it spoke of; deepcopy leaves functions alone."""
    if isinstance(value, list):
        value[:] = [_rebound(item, memo) for item in value]
        return value
    if not isinstance(value, FunctionType) or not (value.__closure__ or value.__defaults__):
        return memo.get(id(value), value)
    if id(value) not in memo:
        cells = tuple(CellType() for _ in value.__closure__ or ())
        memo[id(value)] = made = FunctionType(value.__code__, value.__globals__, value.__name__, None, cells)
        made.__defaults__ = tuple(_rebound(item, memo) for item in value.__defaults__ or ()) or None
        made.__kwdefaults__ = value.__kwdefaults__
        for new, old in zip(cells, value.__closure__ or (), strict=True):
            with suppress(ValueError):  # one that has nothing in it yet
                new.cell_contents = _rebound(old.cell_contents, memo)
    return memo[id(value)]


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
    new.was_frozen = was_frozen(parameter)  # type: ignore[attr-defined]
    return new


def was_frozen(parameter: nn.Parameter) -> bool:
    """Whether the caller had frozen a parameter of the model, or the one that it stands for in a twin."""
    return getattr(parameter, "was_frozen", not parameter.requires_grad)


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer by name, those that `state_dict` leaves out as well; tied ones under each name."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def fingerprint(model: nn.Module) -> str:
    """SHA-256 over the name, type, shape and bytes of every parameter and buffer.

    Args:
        model: Any module whose weights have values.

    Returns:
        64 hexadecimal digits.

    Raises:
        BadInput: Weights have no shape or no value yet, or are quantised.

    Example:
        >>> before = bise.fingerprint(model)
        >>> found = bise.audit(model, test)
        >>> bise.fingerprint(model) == before
        True
    """
    _check_weights(model)
    return digest_of(named_tensors(model))


def _check_weights(model: nn.Module) -> None:
    for module in model.modules():
        name, own = type(module).__name__, [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        if any(nn.parameter.is_lazy(tensor) for tensor in own):
            raise BadInput(f"{name} has weights without a shape yet; run the model once on an example")
        if any(tensor.is_meta for tensor in own):
            raise BadInput(f"{name} has weights without values, on the device meta; load them first")
        if hasattr(module, "_packed_params"):
            raise BadInput(f"{name} is quantised, so that its weights are no parameters; hand in the model before that")


def check_finite_weights(model: nn.Module) -> None:
    """Refuse NaN and infinity in a parameter or in BatchNorm's statistics, before there is work behind it.

    Other buffers may hold infinity for good reason, as the masks of attention do.
    """
    _check_weights(model)
    for path, module in model.named_modules():
        tensors: dict[str, Tensor | None] = dict(module._parameters)
        if isinstance(module, nn.modules.batchnorm._NormBase):
            tensors |= module._buffers
        for key, tensor in tensors.items():
            if tensor is None or not tensor.is_floating_point() or tensor.layout != torch.strided:
                continue
            good = tensor.detach().float().isfinite() if tensor.element_size() == 1 else tensor.detach().isfinite()
            if not good.all():
                place = (~good).nonzero()[0]
                name, where = f"{path}.{key}".lstrip("."), f" at {place.tolist()}" * bool(len(place))
                raise BadInput(
                    f"{type(model).__name__}: {name} holds {float(tensor.detach()[tuple(place)])}{where}; load weights"
                    " that are numbers, as of a checkpoint before they stopped being such"
                )


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over the name, type, shape and bytes of every tensor."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return digest.hexdigest()
