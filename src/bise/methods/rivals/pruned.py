"""Structured pruning, then the same finetuning as ours: by magnitude, at random, or by first order.

Idea: controls for our mask: units are ranked without regard to the bias, the lowest are closed, and what is left is
trained on with cells drawn evenly.
Rank of a unit: the L2 norm of its filter; a random number; or |Σ ∂L/∂a · a| of its activation a, the first-order
change of the loss by its removal (Molchanov et al. 2017), over batches with even cells.
Labels: y, b.
Defaults: 30 % of all units go, ranked over all sites at once.
Departures: each site keeps its best unit. Our first-order rank is the mean over batches of the absolute sum in a
batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bise.base.errors import BadInput
from bise.base.options import check_options, option
from bise.data.core.contract import labels
from bise.data.core.sampling import Sampler, strata
from bise.engine.inputs import Inputs
from bise.methods.finetuning import finetune
from bise.methods.shared.interface import Setting, Start, vanilla
from bise.network.gates import Gate
from bise.network.outputs import call, class_logits
from bise.network.placement import Placement, one_bottleneck, place
from bise.network.subnetwork import Subnetwork


@dataclass(frozen=True, kw_only=True)
class PrunedConfig:
    """What units are ranked by, and how many go."""

    rank: str = option("magnitude", choices=("magnitude", "random", "first-order"))
    share: float = option(0.3, at_least=0, below=1)
    """Of all units."""
    batches: int = option(20, above=0)
    """For the first-order rank."""

    def __post_init__(self) -> None:
        check_options(self)


def masks_of(ranks: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """{site: True where the unit is kept}: without that share of all units, those of the lowest rank."""
    flat = torch.cat([rank.double() for rank in ranks.values()])
    keep = torch.ones(len(flat), dtype=torch.bool)
    keep[flat.argsort(stable=True)[: round(share * len(flat))]] = False
    out = dict(zip(ranks, keep.split([len(rank) for rank in ranks.values()]), strict=True))
    for name, mask in out.items():
        mask[ranks[name].argmax()] = True
    return out


@torch.no_grad()
def magnitudes(model: nn.Module, placement: Placement, example: Any) -> dict[str, Tensor]:
    """{site: the L2 norm of each unit's filter}, by the last layer with so many outputs that runs before the site."""
    wanted = {site.module: site for site in placement.sites}
    ranks: dict[str, Tensor] = {}
    latest: dict[int, Tensor] = {}

    def reach(name: str) -> None:
        site = wanted[name]
        if site.units not in latest:
            raise BadInput(
                f"no layer with {site.units} outputs runs before {site.name}, so its units have no magnitude"
            )
        ranks.setdefault(site.name, latest[site.units])

    handles = []
    for name, module in model.named_modules():
        if name in wanted and wanted[name].at_input:
            handles.append(module.register_forward_pre_hook(lambda *_, name=name: reach(name)))
        if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)):
            norms = module.weight.detach().flatten(1).norm(dim=1).cpu()
            handles.append(module.register_forward_hook(lambda *_, n=norms: latest.update({len(n): n})))
        if name in wanted and not wanted[name].at_input:
            handles.append(module.register_forward_hook(lambda *_, name=name: reach(name)))
    try:
        call(model, example)
    finally:
        for handle in handles:
            handle.remove()
    return {site.name: ranks[site.name] for site in placement.sites}


def first_order(sub: Subnetwork, train: Any, config: PrunedConfig, setting: Setting) -> dict[str, Tensor]:
    """{site: the mean over batches of |∂L/∂g|}, with g = 1 the factor of each unit."""
    cells = labels(train)
    inputs = Inputs(train, setting.device)
    generator = torch.Generator().manual_seed(setting.seed)
    size = setting.finetune.batch_size
    order = Sampler(len(cells), strata(cells, "cells")).draw(config.batches, size, generator)
    gates = [cast(Gate, gate) for gate in sub.gates]
    total = [torch.zeros(site.units) for site in sub.sites]
    sub.eval()
    for x, index in inputs.batches(order, size):
        for gate in gates:
            gate.live = torch.ones_like(gate.scores).requires_grad_()
        loss = F.cross_entropy(class_logits(call(sub, x)).float(), cells.y[index.cpu()].to(setting.device))
        found = torch.autograd.grad(loss, [cast(Tensor, gate.live) for gate in gates], allow_unused=True)
        total = [t if g is None else t + g.abs().cpu() for t, g in zip(total, found, strict=True)]
    for gate in gates:
        gate.live = None
    setting.tally.samples += len(order)
    return {site.name: rank / config.batches for site, rank in zip(sub.sites, total, strict=True)}


def pruned(start: Start, train: Any, val: Any, config: PrunedConfig, setting: Setting) -> Subnetwork:
    """The subnetwork that is left, finetuned."""
    model = vanilla(start)
    example = Inputs(train, setting.device).example()
    placement = place(model, example)
    dense = Subnetwork(model, placement.sites, bottleneck=one_bottleneck(placement, model, None))
    if config.rank == "magnitude":
        ranks = magnitudes(dense.bare(), placement, example)
    elif config.rank == "random":
        generator = torch.Generator().manual_seed(setting.seed)
        ranks = {site.name: torch.rand(site.units, generator=generator) for site in placement.sites}
    else:
        ranks = first_order(dense, train, config, setting)
    sub = Subnetwork(model, placement.sites, masks=masks_of(ranks, config.share), bottleneck=dense.bottleneck)
    budget = replace(setting.finetune, seed=setting.seed, selection=setting.selection)
    tuned = finetune(
        sub,
        train,
        val=setting.judge(val),
        config=budget,
        progress=setting.progress,
        checkpoint=setting.path("finetune"),
        checkpoint_every=setting.every,
    )
    each = len(train) if budget.steps is None else budget.steps * budget.batch_size
    setting.tally.samples += each * len(tuned.record["history"])
    return tuned
