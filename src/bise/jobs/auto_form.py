"""A subnetwork of transformers in the library's own form: one width for the feed-forward layers, zeros elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput
from bise.network.outputs import call
from bise.network.placement import Site
from bise.network.shrinking.verify import as_float64, difference, runs
from bise.network.subnetwork import Subnetwork
from bise.network.twin import duplicate

WIDTHS = ("intermediate_size", "hidden_dim", "ffn_dim", "d_ff", "n_inner")
"""What configurations call the width of all feed-forward layers."""
TOLERANCE = 1e-10
"""The largest relative difference in float64 between the masked network and this form of it."""


class NoForm(BadInput):
    """A subnetwork that the library's own classes have no form for."""


@dataclass(frozen=True, kw_only=True)
class AutoForm:
    """A model of the same class, narrower, and what of its configuration changed."""

    model: Any
    field: str
    before: int
    after: int
    difference: float
    """To the masked network, relative, in float64."""


def is_transformers(model: nn.Module) -> bool:
    """Whether a class of transformers made this model, and so can save and load it."""
    return hasattr(model, "save_pretrained") and any(
        kind.__name__ == "PreTrainedModel" and kind.__module__.startswith("transformers.")
        for kind in type(model).__mro__
    )


def auto_form(sub: Subnetwork, example: Any) -> AutoForm:
    """The subnetwork as a model that `from_pretrained` loads, compared with the masked one in float64.

    A layer that keeps fewer units than the widest is filled up with zeros, and a closed unit that no width of the
    configuration speaks of is a row or a column of zeros. Raises NoForm where that can't be done.
    """
    model: Any = sub.bare()
    if not is_transformers(model):
        raise NoForm(f"{type(model).__name__} is no model of transformers")
    width = _width(model)
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    masks, order = sub.masks, _order(sub, model, example, {_owner(name) for name in width.cuts})
    inner: dict[str, Tensor] = {}
    for site in sub.sites:
        producer, consumer = _around(site, order, model)
        open_units = masks[site.name].cpu().repeat_interleave(site.spread)  # a head owns several channels
        reads = _reads(model, consumer)
        if consumer is not None and width.cuts.get(f"{consumer}.weight") == (reads, 1) and site.units == width.before:
            inner[consumer] = open_units & inner.get(consumer, open_units)
        elif producer == site.module and site.spread == 1:
            _zero(state, f"{producer}.weight", 1 - _reads(model, producer), open_units)
            _zero(state, f"{producer}.bias", 0, open_units)
        elif consumer is not None and state[f"{consumer}.weight"].shape[reads] == len(open_units):
            _zero(state, f"{consumer}.weight", reads, open_units)
        else:
            raise NoForm(f"the units of {site.name} lie beside no linear layer")
    of = {name: _consumer(name, inner, order) for name in width.cuts}
    if inner.keys() != _readers(model, width) or None in of.values():
        raise NoForm("not every feed-forward layer of it has gates")
    after = max(1, *(int(open_units.sum()) for open_units in inner.values()))
    for name, (dim, parts) in width.cuts.items():
        pieces = state[name].chunk(parts, dim)
        state[name] = torch.cat([_narrowed(piece, dim, inner[str(of[name])], after) for piece in pieces], dim)
    made = _made(model, width.field, after)
    made.load_state_dict(state)
    found = _checked(sub, made, example)
    return AutoForm(model=made, field=width.field, before=width.before, after=after, difference=found)


def _made(model: Any, field: str, width: int) -> Any:
    """A model of the same class with another width, in the precision that it has."""
    config = copy.deepcopy(model.config)
    try:
        setattr(config, field, width)
        with torch.random.fork_rng(devices=[]):
            return type(model)(config).to(next(model.parameters()).dtype).eval()
    except Exception as error:  # of a class with conditions of its own
        raise NoForm(f"{type(model).__name__} takes no {field} of {width}") from error


@dataclass(frozen=True)
class _Width:
    field: str
    """The configuration's, for the width of feed-forward layers."""
    before: int
    cuts: dict[str, tuple[int, int]]
    """{parameter: (its dimension of that width, how many times the width lies along it)}."""


def _width(model: Any) -> _Width:
    """Which field says the width, and which parameters it shapes: a model is made with two widths to see it."""
    shapes = _shapes(model)
    for field in WIDTHS:
        said = getattr(model.config, field, "none")
        if not (said is None or type(said) is int):
            continue
        tried = said or 1  # None stands for a multiple of another width
        ours = shapes if said else _shapes(_made(model, field, tried))
        wider = _shapes(_made(model, field, tried + 1))
        if not shapes.keys() == ours.keys() == wider.keys():
            continue
        cuts = {}
        for name, shape in ours.items():
            if shape != wider[name]:
                dim = next(dim for dim, (one, other) in enumerate(zip(shape, wider[name], strict=True)) if one != other)
                cuts[name] = dim, wider[name][dim] - shape[dim]
        found = {shapes[name][dim] / parts for name, (dim, parts) in cuts.items()}
        alone = all(ours[name][dim] == parts * tried for name, (dim, parts) in cuts.items())
        if len(found) == 1 and alone:
            return _Width(field, int(found.pop()), cuts)
    raise NoForm(f"the configuration of {type(model).__name__} has no width of its feed-forward layers")


def _shapes(model: nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _reads(model: nn.Module, layer: str | None) -> int:
    """The dimension of a linear layer's weight that its input meets; the Conv1D of GPT-2 has it first."""
    return 1 if layer is None or isinstance(model.get_submodule(layer), nn.Linear) else 0


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or (
        type(module).__name__ == "Conv1D" and type(module).__module__ == "transformers.pytorch_utils"
    )


def _readers(model: nn.Module, width: _Width) -> set[str]:
    """The linear layers that take what is so wide: the last of each feed-forward layer."""
    owners = {_owner(name): dim for name, (dim, _) in width.cuts.items() if name.endswith(".weight")}
    return {
        layer for layer, dim in owners.items() if _is_linear(model.get_submodule(layer)) and dim == _reads(model, layer)
    }


def _consumer(name: str, inner: Mapping[str, Tensor], order: list[str]) -> str | None:
    """The last linear layer of the feed-forward layer that a parameter belongs to: the next one with gates."""
    owner = _owner(name)
    later = order[order.index(owner) :] if owner in order else []
    return next((layer for layer in later if layer in inner), None)


def _order(sub: Subnetwork, model: nn.Module, example: Any, also: set[str]) -> list[str]:
    """The linear layers, the modules with gates and `also`, as they run one after another."""
    wanted = {site.module for site in sub.sites} | also
    seen: list[str] = []
    handles = [
        module.register_forward_hook(lambda *_, name=name: seen.append(name))
        for name, module in model.named_modules()
        if name in wanted or _is_linear(module)
    ]
    try:
        with torch.no_grad():
            call(model, example)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _around(site: Site, order: list[str], model: nn.Module) -> tuple[str | None, str | None]:
    """The linear layers right before and right after a site."""
    place = order.index(site.module) if site.module in order else len(order)
    linear = [_is_linear(model.get_submodule(name)) for name in order]
    last = place if not site.at_input else place - 1
    first = place + 1 if not site.at_input else place
    before = next((order[i] for i in range(min(last, len(order) - 1), -1, -1) if linear[i]), None)
    after = next((order[i] for i in range(first, len(order)) if linear[i]), None)
    return before, after


def _zero(state: dict[str, Tensor], name: str, dim: int, kept: Tensor) -> None:
    if name in state:
        state[name].index_fill_(dim, (~kept).nonzero().flatten().to(state[name].device), 0)


def _narrowed(tensor: Tensor, dim: int, kept: Tensor, width: int) -> Tensor:
    """The open units alone, and zeros up to `width`."""
    part = tensor.index_select(dim, kept.nonzero().flatten().to(tensor.device))
    shape = [*tensor.shape]
    shape[dim] = width - part.shape[dim]
    return torch.cat([part, part.new_zeros(shape)], dim)


def _checked(sub: Subnetwork, made: nn.Module, example: Any) -> float:
    """The largest difference to the masked network on the example and on one sample of it."""
    masked, precise = duplicate(sub).double().eval(), duplicate(made).double().eval()
    worst = 0.0
    for x in _batches(as_float64(example)):
        if runs(masked, x):
            worst = max(worst, difference(masked, precise, x))
    if not worst <= TOLERANCE:
        raise NoForm(f"it would differ from the masked network by {worst:.1e} (relative)")
    return worst


def _batches(example: Any) -> Iterator[Any]:
    parts: Any = example if isinstance(example, dict) else {"x": example}
    for rows in (slice(None), slice(0, 1)):
        changed = {key: value[rows] for key, value in parts.items()}
        yield changed if isinstance(example, dict) else changed["x"]
