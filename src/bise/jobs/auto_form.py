"""A subnetwork of transformers in the library's own form: one width for the feed-forward layers, zeros elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Iterator
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
    field, dims = _width(model)
    before = int(getattr(model.config, field))
    state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    masks, order = sub.masks, _order(sub, model, example)
    inner: dict[tuple[str, str], Tensor] = {}
    for site in sub.sites:
        producer, consumer = _around(site, order, model)
        open_units = masks[site.name].cpu().repeat_interleave(site.spread)  # a head owns several channels
        if _feeds(producer, consumer, dims) and site.units == before:
            inner[str(producer), str(consumer)] = open_units
        elif producer == site.module and site.spread == 1:
            _zero(state, f"{producer}.weight", 0, open_units)
            _zero(state, f"{producer}.bias", 0, open_units)
        elif consumer is not None and state[f"{consumer}.weight"].shape[1] == len(open_units):
            _zero(state, f"{consumer}.weight", 1, open_units)
        else:
            raise NoForm(f"the units of {site.name} lie beside no linear layer")
    layers = {name for name, dim in dims.items() if dim == 0 and name.endswith(".weight")}
    if not inner or {f"{producer}.weight" for producer, _ in inner} != layers:
        raise NoForm("not every feed-forward layer of it has gates")
    after = max(1, *(int(open_units.sum()) for open_units in inner.values()))
    for (producer, consumer), open_units in inner.items():
        for name, dim in ((f"{producer}.weight", 0), (f"{producer}.bias", 0), (f"{consumer}.weight", 1)):
            if name in state:
                state[name] = _narrowed(state[name], dim, open_units, after)
    made = _made(model, field, after)
    made.load_state_dict(state)
    return AutoForm(model=made, field=field, before=before, after=after, difference=_checked(sub, made, example))


def _made(model: Any, field: str, width: int) -> Any:
    """A model of the same class with another width, in the precision that it has."""
    config = copy.deepcopy(model.config)
    setattr(config, field, width)
    with torch.random.fork_rng(devices=[]):
        return type(model)(config).to(next(model.parameters()).dtype).eval()


def _width(model: Any) -> tuple[str, dict[str, int]]:
    """(the configuration's field for the width of feed-forward layers, {parameter: its dimension of that width})."""
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    for field in WIDTHS:
        width = getattr(model.config, field, None)
        if not isinstance(width, int) or isinstance(width, bool):
            continue
        wider = _made(model, field, width + 1).state_dict()
        if wider.keys() != shapes.keys():
            continue
        dims = {
            name: next(
                dim for dim, (one, other) in enumerate(zip(shape, wider[name].shape, strict=True)) if one != other
            )
            for name, shape in shapes.items()
            if shape != wider[name].shape
        }
        if dims:
            return field, dims
    raise NoForm(f"the configuration of {type(model).__name__} has no width of its feed-forward layers")


def _order(sub: Subnetwork, model: nn.Module, example: Any) -> list[str]:
    """The linear layers and the modules with gates, as they run one after another."""
    wanted = {site.module for site in sub.sites}
    seen: list[str] = []
    handles = [
        module.register_forward_hook(lambda *_, name=name: seen.append(name))
        for name, module in model.named_modules()
        if name in wanted or isinstance(module, nn.Linear)
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
    modules = dict(model.named_modules())
    place = order.index(site.module) if site.module in order else len(order)
    linear = [isinstance(modules[name], nn.Linear) for name in order]
    last = place if not site.at_input else place - 1
    first = place + 1 if not site.at_input else place
    before = next((order[i] for i in range(min(last, len(order) - 1), -1, -1) if linear[i]), None)
    after = next((order[i] for i in range(first, len(order)) if linear[i]), None)
    return before, after


def _feeds(producer: str | None, consumer: str | None, dims: dict[str, int]) -> bool:
    return dims.get(f"{producer}.weight") == 0 and dims.get(f"{consumer}.weight") == 1


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
