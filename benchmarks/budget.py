"""Budgets: our subnetworks within shares of the MACs, beside other ways to prune to the same MACs.

    BISE_DATA=data python benchmarks/budget.py --checkpoints FOLDER --out results/budget.json

BiasedMNIST by the recipe's vanilla model, on seeds from which no setting was chosen (10 and up). At each budget: the
mask that `bise.extract` finds within it, that mask with the last layer refitted, and finetuned. Beside it masks by the
size of weights (L2 norms of filters, over their layer's mean), at random, and by first-order Taylor expansion (the mean
of |h · ∂L/∂h| over batches of train, over its layer's norm), the least important units closed until the shrunk network
fits; each refitted and finetuned by the same settings, the learning rate chosen for each on val. Figures are those of
test, which is looked at once. `--smoke` makes everything tiny.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from last_layer import vanilla_of
from torch import nn

import bise
from bise.base.files import read_json, write_json
from bise.data.core.contract import labels
from bise.data.core.subset import subset
from bise.engine.inputs import Inputs
from bise.engine.validation import Validation
from bise.extraction.budget import Budget
from bise.extraction.scores import Scores
from bise.jobs.recipes import recipe
from bise.network.outputs import call, class_logits
from bise.network.placement import place
from bise.network.shrinking.counting import Counter
from bise.network.subnetwork import Subnetwork
from bise.studies.origin import machine

RESULT = Path(__file__).parent.parent / "results" / "budget.json"
BUDGETS = (0.5, 0.3, 0.15)
RATES = (0.01, 0.001)
"""Learning rates that are tried for each finetuning."""
BATCHES = 100
"""Of 100 samples, over which Taylor's expansion is averaged."""
WAYS = ("ours", "magnitude", "taylor", "random")
STEPS = ("mask", "refitted", "finetuned")

Importance = Callable[[nn.Module, Subnetwork, Inputs, Any, int], torch.Tensor]


def magnitude(model: nn.Module, sub: Subnetwork, inputs: Inputs, y: torch.Tensor, seed: int) -> torch.Tensor:
    """[units]: the L2 norm of each filter over the mean of its layer."""
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    norms = [layer.weight.detach().flatten(1).norm(dim=1) for layer in convolutions]
    return torch.cat([norm / norm.mean() for norm in norms])


def random(model: nn.Module, sub: Subnetwork, inputs: Inputs, y: torch.Tensor, seed: int) -> torch.Tensor:
    return torch.rand(sub.units[1], generator=torch.Generator().manual_seed(seed))


def taylor(model: nn.Module, sub: Subnetwork, inputs: Inputs, y: torch.Tensor, seed: int) -> torch.Tensor:
    """[units]: the mean of |Σ h · ∂L/∂h|, which is the gradient of the gate, over its layer's norm."""
    scores = Scores(sub, inputs.device)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))[: 100 * BATCHES]
    total, sub = torch.zeros(len(scores.flat), device=inputs.device), sub.eval()
    for x, index in inputs.batches(order, 100):
        values = scores.hold()
        loss = F.cross_entropy(class_logits(call(sub, x)), y[index].to(inputs.device))
        total += torch.autograd.grad(loss, values)[0].abs()
        scores.release()
    return torch.cat([piece / piece.norm().clamp_min(1e-12) for piece in total.split(scores.sizes)])


RIVALS: dict[str, Importance] = {"magnitude": magnitude, "taylor": taylor, "random": random}


def pruned(model: nn.Module, inputs: Inputs, importance: torch.Tensor, budget: float) -> Subnetwork:
    """The least important units closed, one after another, until the shrunk network fits."""
    sub = Subnetwork(model, place(model, inputs.example()).sites, bottleneck="fc")
    scores = Scores(sub, inputs.device)
    scores.flat.copy_(importance)
    limit = Budget(scores, {"macs": budget}, Counter(sub, inputs.example(), inputs.example(1)))
    limit.prices.fill_(1.0)  # by their order alone, as these methods are published
    limit.settle()
    scores.set_mask()
    return sub


def rows(rho: float, seed: int, budgets: tuple[float, ...], smoke: bool, checkpoints: Path | None) -> list[Any]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = recipe("biased-mnist", rho=rho, seed=seed)
    how = {"rho": rho, "seed": seed, "protocol": chosen.protocol}
    data = {split: bise.data.load("biased-mnist", split=split, **how) for split in ("train", "val", "test")}
    vanilla, short, epochs = chosen.train, {}, chosen.finetune.epochs
    if smoke:
        data = {split: subset(part, 60, seed) for split, part in data.items()}
        vanilla, epochs = bise.TrainConfig(epochs=1, lr=0.01), 1
        short = {"steps": 1, "upsilon": 1, "kappa": 0.1, "head_epochs": 1, "head_steps": 1, "batch_size": 20}
    cells, inputs = labels(data["train"]), Inputs(data["train"], device)
    judges = {split: Validation(data[split], cells, inputs, precision="fp32") for split in ("val", "test")}
    model, out = vanilla_of(chosen, seed, inputs, cells, vanilla, checkpoints), []

    def note(way: str, step: str, budget: float, network: Subnetwork, share: float, begun: float) -> None:
        about = {"rho": rho, "seed": seed, "way": way, "step": step, "budget": budget, "macs": share}
        out.append({**about, **judges["test"](network), "seconds": time.perf_counter() - begun})
        print(f"{rho}  {seed}  {budget:g}  {way:<10} {step:<10} {100 * out[-1]['unbiased']:.1f}", flush=True)

    note("vanilla", "whole", 1.0, bise.subnetwork(model, {}), 1.0, time.perf_counter())
    for budget in budgets:
        for way in WAYS:
            begun = time.perf_counter()
            if way == "ours":
                config = bise.ExtractConfig.balanced(seed=seed, max_macs=budget, **short)
                sub = bise.extract(model, data["train"], val=data["val"], config=config)
            else:
                whole = Subnetwork(model, place(model, inputs.example()).sites)
                sub = pruned(model, inputs, RIVALS[way](model, whole, inputs, cells.y, seed), budget)
            masks = [mask.cpu() for mask in sub.masks.values()]
            counter = Counter(sub, inputs.example(), inputs.example(1))
            share = counter(masks).macs / counter([torch.ones_like(mask) for mask in masks]).macs
            note(way, "mask", budget, sub, share, begun)
            begun = time.perf_counter()
            fitted = bise.refit(sub, data["train"], val=data["val"], seed=seed, bottleneck="fc")
            note(way, "refitted", budget, fitted, share, begun)
            begun = time.perf_counter()
            tuned = []
            for rate in RATES[:1] if smoke else RATES:
                settings = bise.TrainConfig.finetuning(epochs=epochs, lr=rate, schedule="cosine", seed=seed)
                tuned.append(bise.finetune(sub, data["train"], val=data["val"], config=settings))
            best = max(tuned, key=lambda network: judges["val"](network)["unbiased"])
            note(way, "finetuned", budget, best, share, begun)
    return out


def page() -> str:
    """For each ρ and budget: mean over groups and worst group on test, in %, mean ± standard deviation."""
    found = read_json(RESULT)["rows"]
    rhos, budgets = sorted({row["rho"] for row in found}), sorted({row["budget"] for row in found})[-2::-1]
    lines = ["| ρ | budget | | " + " | ".join(f"{step} | worst" for step in STEPS) + " |", "|---|---|---|" + "---|" * 6]
    for rho in rhos:
        for budget in budgets:
            for way in WAYS:
                cells = []
                for step in STEPS:
                    of = [row for row in found if (row["rho"], row["budget"], row["way"], row["step"])
                          == (rho, budget, way, step)]  # fmt: skip
                    cells += [_spread([100 * row[key] for row in of]) for key in ("unbiased", "worst_group")]
                lines.append(f"| {rho:g} | {100 * budget:g} % | {way} | {' | '.join(cells)} |")
    seeds = sorted({row["seed"] for row in found})
    return "\n".join([*lines, "", f"n = {len(seeds)} seeds: {', '.join(map(str, seeds))}."])


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rho", type=float, nargs="+", default=[0.99, 0.995, 0.997])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10, 20)))
    parser.add_argument("--budgets", type=float, nargs="+", default=BUDGETS)
    parser.add_argument("--checkpoints", type=Path, help="folder of vanilla models, read where they are, else written")
    parser.add_argument("--smoke", action="store_true", help="everything tiny")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.smoke:
        given.rho, given.seeds, given.budgets = [0.9], [10], [0.3]
    found: list[Any] = []
    for seed in given.seeds:
        for rho in given.rho:
            found += rows(rho, seed, tuple(given.budgets), given.smoke, given.checkpoints)
            write_json(given.out, {"machine": machine(), "rows": found})


if __name__ == "__main__":
    main()
