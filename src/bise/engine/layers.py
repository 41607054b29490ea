"""What a network's layers say of each sample: their channels, averaged over places or positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput
from bise.data.core.contract import Progress
from bise.engine import processes
from bise.engine.inference import passes
from bise.engine.inputs import Inputs
from bise.network.placement import Site
from bise.network.subnetwork import Subnetwork

BOTTLENECK = "bottleneck"
"""What its features are called beside those of sites."""


def layer_features(
    model: nn.Module,
    inputs: Inputs,
    sites: Sequence[Site],
    bottleneck: str | None,
    *,
    progress: Progress | None = None,
    label: str = "reading layers",
) -> tuple[Tensor, dict[str, Tensor]]:
    """(logits [N, C], {site, or "bottleneck": features [N, units]}) of all samples, on the CPU, in one pass."""
    if processes.count() > 1:
        raise BadInput("layers are read by one process; start this without torchrun")
    sub = model if isinstance(model, Subnetwork) else Subnetwork(model, ())
    order = torch.arange(len(inputs))
    places = inputs.by_length(order)  # sentences of about the same length share a batch, so that little is padded
    order = order if places is None else order[places]
    logits: list[Tensor] = []
    found: dict[str, list[Tensor]] = {}
    with _caught(sub, sites) as caught:
        for _, out, z in passes(sub, inputs, order, bottleneck, progress=progress, label=label):
            logits.append(out.cpu())
            for name, rows in {**caught, **({} if z is None else {BOTTLENECK: z})}.items():
                found.setdefault(name, []).append(rows[: len(out)].float().cpu())
    back = torch.arange(len(order)) if places is None else places.argsort().cpu()
    return torch.cat(logits)[back], {name: torch.cat(rows)[back] for name, rows in found.items()}


@contextmanager
def _caught(sub: Subnetwork, sites: Sequence[Site]) -> Iterator[dict[str, Tensor]]:
    """While open, each forward pass leaves [n, units] of every site in the dict that is handed out."""
    caught: dict[str, Tensor] = {}
    modules = dict(sub.network.named_modules())

    def taken(site: Site, h: Any) -> None:
        if isinstance(h, Tensor):
            caught[site.name] = averaged(h, site)

    handles = []
    for site in sites:
        module = modules[site.module]
        if site.at_input:
            handles.append(module.register_forward_pre_hook(lambda _, args, site=site: taken(site, _first(args))))
        else:
            handles.append(module.register_forward_hook(lambda _, __, out, site=site: taken(site, out)))
    try:
        yield caught
    finally:
        for handle in handles:
            handle.remove()


def _first(args: Any) -> Any:
    return next((value for value in args if isinstance(value, Tensor)), None)


def averaged(h: Tensor, site: Site) -> Tensor:
    """[n, units]: the mean of each unit's values over places, positions and channels that it owns."""
    dim = site.dim % h.dim()
    rows = h.movedim(dim, 1)
    if site.spread > 1:
        rows = rows.unflatten(1, (site.units, site.spread))
    return rows.flatten(2).mean(2) if rows.dim() > 2 else rows
