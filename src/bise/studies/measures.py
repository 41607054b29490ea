"""What a study reads off a network: accuracies by group, sizes, curves over thresholds and levels, a bias probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bise.data.core.cells import Cells
from bise.data.core.contract import Progress, labels
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.engine.validation import Validation
from bise.extraction.bias_head import BiasHeads, with_one
from bise.extraction.config import ExtractConfig
from bise.extraction.head_training import Refinement
from bise.extraction.problem import Problem
from bise.measure.audits import audit
from bise.network.outputs import to_device
from bise.network.placement import Site, place
from bise.network.shrinking.capture import capture
from bise.network.shrinking.removal import rewritten
from bise.network.size import size, sparsity
from bise.network.subnetwork import Subnetwork
from bise.network.twin import duplicate

PROBE = ExtractConfig.paper(head_epochs=100)
"""The supplement's auxiliary classifier: 100 epochs of SGD, 0.1, 0.9, 1e-4."""


class Sizes:
    """Parameters and MACs of the networks that masks leave of one model; the model is captured once, on the CPU."""

    def __init__(self, model: nn.Module, sites: tuple[Site, ...], inputs: Inputs) -> None:
        dense = duplicate(model).cpu()
        self.sites = sites
        sub = Subnetwork(dense, sites)
        self.captured = capture(sub, to_device(inputs.example(8), torch.device("cpu")))
        self.one = to_device(inputs.example(1), torch.device("cpu"))
        self.dense = size(dense, self.one)

    def __call__(self, masks: Mapping[str, Tensor]) -> dict[str, Any]:
        """What is left under `masks`; none leave the dense network."""
        kept = {site.name: masks.get(site.name, torch.ones(site.units, dtype=torch.bool)).cpu() for site in self.sites}
        after = self.dense
        if not all(mask.all() for mask in kept.values()):
            small, _, _ = rewritten(self.captured, {number: kept[site.name] for number, site in enumerate(self.sites)})
            after = size(small, self.one)
        gone = sparsity(kept, self.dense, after)
        return {
            "parameters": after.parameters,
            "macs": after.macs,
            "macs_paper": after.paper,
            "sparsity": {"units": gone.units, "paper": gone.paper, "physical": gone.physical},
        }


def extracted(network: nn.Module | None) -> dict[str, Any]:
    """For a row that rests on an extraction: the precision, margin and smoothing that it really had; else nothing."""
    if not isinstance(network, Subnetwork) or "targets" not in network.record:
        return {}
    targets = network.record["targets"]
    used = {"precision": network.record["precision"], "margin": targets["margin"], "smoothing": targets["smoothing"]}
    return {"extracted": used}


def figures(
    network: nn.Module, test: Any, cells: Cells, sizes: Sizes, masks: Mapping[str, Tensor], progress: Progress | None
) -> dict[str, Any]:
    """Accuracies of a network on the test set, which is looked at here and nowhere else, and its size."""
    found = audit(network, test, aligned=cells, probe=False, progress=progress)
    return {
        "accuracy": found.accuracy,
        "unbiased": found.unbiased,
        "worst_group": found.worst_group,
        "aligned": found.aligned.accuracy,
        "conflicting": found.conflicting.accuracy,
        "information": [bias.information_predicted for bias in found.biases],
        "by_group": {name: round(value, 4) for name, value in found.by_group.items()},
        **sizes(masks),
    }


def points(
    network: Subnetwork, masks: Mapping[float, Mapping[str, Tensor]], test: Any, cells: Cells, sizes: Sizes
) -> list[dict[str, Any]]:
    """Accuracies and size under each of several masks of the same network; nothing is selected by them."""
    inputs = Inputs(test, next(network.network.parameters()).device)
    judge = Validation(test, cells, inputs)
    out = []
    for at, chosen in masks.items():
        out.append({"at": at, **judge(_under(network, chosen)), **sizes(chosen)})
    return out


def threshold_masks(sub: Subnetwork, zetas: tuple[float, ...]) -> dict[float, dict[str, Tensor]]:
    """{ζ: the mask σ(m) ≥ ζ}, for `zetas` and, since most σ(m) lie close together, for every twentieth of the units."""
    opened = torch.cat(list(sub.scores.values())).double().sigmoid().cpu()
    between = opened.quantile(torch.linspace(0.05, 0.95, 19, dtype=torch.float64)).tolist()
    return {zeta: sub.at(zeta).masks for zeta in sorted({*zetas, *between})}


def ranked_masks(ranks: Mapping[str, Tensor], levels: tuple[float, ...]) -> dict[float, dict[str, Tensor]]:
    """{level: the mask without that share of all units, those of the lowest rank}."""
    flat = torch.cat([rank.double().cpu() for rank in ranks.values()])
    order = flat.argsort(stable=True)
    out = {}
    for level in levels:
        keep = torch.ones(len(flat), dtype=torch.bool)
        keep[order[: round(level * len(flat))]] = False
        out[level] = dict(zip(ranks, keep.split([len(rank) for rank in ranks.values()]), strict=True))
    return out


def magnitudes(model: nn.Module, sites: tuple[Site, ...]) -> dict[str, Tensor]:
    """{site: the L2 norm of each filter}, all sites on one scale, as scores are; for a chain of convolutions."""
    filters = [module.weight.detach() for module in model.modules() if isinstance(module, nn.Conv2d)]
    return {site.name: w.flatten(1).norm(dim=1).cpu() for site, w in zip(sites, filters, strict=True)}


def random_ranks(sites: tuple[Site, ...], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {site.name: torch.rand(site.units, generator=generator) for site in sites}


def bias_probe(
    network: Subnetwork, unbiased: Any, test: Any, *, seed: int, config: ExtractConfig = PROBE
) -> dict[str, float]:
    """How well a linear classifier reads b off the bottleneck: trained on `unbiased`, measured on test."""
    device = next(network.network.parameters()).device
    cells, judged = labels(unbiased), labels(test)
    inputs = Inputs(unbiased, device)
    generator = torch.Generator().manual_seed(seed)
    z = infer(network, Inputs(test, device), features=network.bottleneck).z
    assert z is not None
    heads = BiasHeads(
        z.shape[1],
        cells.bias_classes,
        lr=config.head_lr,
        momentum=config.head_momentum,
        weight_decay=config.head_weight_decay,
        generator=generator,
        device=device,
    )
    config = replace(config, balance="cells")
    problem = Problem(
        sub=network,
        inputs=inputs,
        cells=cells,
        validation=None,
        config=config,
        precision="fp32",
        memory=config.memory,
    )
    Refinement(problem, heads)(generator)
    hits = heads.probabilities(with_one(z))[0].argmax(1).cpu() == judged.b[:, 0]
    chance = torch.bincount(judged.b[:, 0]).max() / len(judged)
    return {"probe": float(hits.double().mean()), "chance": float(chance)}


def gated(model: nn.Module, inputs: Inputs, config: ExtractConfig) -> tuple[Site, ...]:
    """The sites that an extraction gates in a model, in the order of the forward pass."""
    return place(model, inputs.example(), gates_at=config.gates_at, norms=config.norms).sites


def _under(network: Subnetwork, masks: Mapping[str, Tensor]) -> Subnetwork:
    return Subnetwork(network.bare(), network.sites, masks=masks, bottleneck=network.bottleneck, owned=network.owned)
