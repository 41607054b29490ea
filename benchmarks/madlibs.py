"""Biased madlibs by their recipe: vanilla, subnetwork, finetuned and the dense control, over seeds and ρ, as JSON.

    python benchmarks/madlibs.py --rho 0.95 --seeds 0 1 2 --out results/madlibs.json
    python benchmarks/madlibs.py --small --seeds 0 --out results/madlibs_small.json  # two cores, minutes a seed

The mask and the finetuned epoch are chosen on val; the test set is looked at once for each result.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

import bise
from bise.base.files import write_json
from bise.data.core.cells import Cells
from bise.engine.inputs import Inputs
from bise.engine.training import fit
from bise.jobs.recipes import Recipe, recipe, splits, start
from bise.methods.finetuning import owning
from bise.network.size import size, sparsity
from bise.studies.measures import extracted
from bise.studies.origin import machine

ROOT = Path(__file__).parent.parent
MODELS = ("vanilla", "subnetwork", "last", "finetuned", "dense_finetuned")


LABELS = dict(zip(MODELS, ("vanilla", "subnetwork", "its last mask", "finetuned", "dense, finetuned"), strict=True))


def figures(model: torch.nn.Module, test: Any, train: Cells) -> dict[str, Any]:
    """Accuracies on test, shares of 1."""
    found = bise.audit(model, test, aligned=train, probe=False)
    return {
        "accuracy": found.accuracy,
        "unbiased": found.unbiased,
        "worst_group": found.worst_group,
        "best_group": max(found.by_group.values()),
        "by_group": found.by_group,
    }


def units(sub: bise.Subnetwork) -> dict[str, Any]:
    """Open units of all, and closed ones in percent: over feed-forwards and pooler as the paper counts, and by kind."""
    kinds: dict[str, list[torch.Tensor]] = {"intermediate": [], "output": [], "pooler": []}
    for name, mask in sub.masks.items():
        kinds["pooler" if "pooler" in name else "output" if ".output." in name else "intermediate"].append(mask)
    closed = {kind: 100 * float((~torch.cat(masks)).float().mean()) for kind, masks in kinds.items()}
    return {"open": sub.units[0], "all": sub.units[1], "closed_percent_by_kind": closed}


def shrunk(sub: bise.Subnetwork, test: Any, device: torch.device) -> dict[str, Any]:
    """What is left physically; MACs for one sentence."""
    inputs = Inputs(test, device)
    small = sub.shrink(inputs.example(8))
    before, after = (size(net, inputs.example(1)) for net in (sub.bare(), small))
    report: Any = small.shrink_report
    encoder = {"dense": _without_words(sub.bare()), "shrunk": _without_words(small)}
    return {
        "parameters": {"dense": before.parameters, "shrunk": after.parameters},
        "parameters_beside_embeddings": encoder,
        "macs": {"dense": before.macs, "shrunk": after.macs},
        "sparsity_percent": asdict(sparsity(sub.masks, before, after)),
        "difference_float64": max(report.differences.values()),
        "barriers": [str(barrier) for barrier in report.barriers],
    }


def _without_words(net: torch.nn.Module) -> int:
    return sum(p.numel() for name, p in net.named_parameters() if "embeddings" not in name)


def data(chosen: Recipe, split: str, seed: int, limit: int | None) -> Any:
    return splits(
        split, recipe=chosen.name, rho=chosen.rho, protocol=chosen.protocol, seed=seed, limit=limit, select="best"
    )


def vanilla(
    chosen: Recipe, seed: int, device: torch.device, graphs: bool, limit: int | None
) -> tuple[torch.nn.Module, list[dict[str, Any]]]:
    """The vanilla model and its losses: at ρ = 0.95, 0.199 while it knows the term alone, 0.173 with the word too."""
    train = data(chosen, "train", seed, limit)
    network = owning(start(chosen, seed=seed)[0].to(device))
    config = replace(chosen.train, graphs=graphs)
    history = fit(network, Inputs(train, device), bise.data.labels(train), config)
    return network.bare(), history


def one(
    chosen: Recipe, seed: int, device: torch.device, *, graphs: bool, limit: int | None, changes: dict[str, Any]
) -> dict[str, Any]:
    """One seed at one ρ, from data to figures."""
    train, val, test = (data(chosen, split, seed, limit) for split in ("train", "val", "test"))
    cells = bise.data.labels(train)
    seconds: dict[str, float] = {}
    clock = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        seconds[name], clock = now - clock, now

    model, history = vanilla(chosen, seed, device, graphs, limit)
    lap("vanilla")
    before = bise.fingerprint(model)
    settings = {**chosen.extract_balanced, "seed": seed, "graphs": graphs, **changes}
    config = bise.ExtractConfig.balanced(**settings)
    sub = bise.extract(model, train, val=val, config=config)
    lap("extraction")
    tuning = bise.TrainConfig.finetuning(**{**chosen.finetune_balanced, "seed": seed, "graphs": graphs})
    tuned = bise.finetune(sub, train, val=val, config=tuning)
    lap("finetuning")
    dense = bise.finetune(model, train, val=val, config=tuning)
    lap("dense finetuning")
    networks = dict(zip(MODELS, (model, sub, sub.last, tuned, dense), strict=True))
    found = {name: figures(net, test, cells) for name, net in networks.items()}
    for name in ("subnetwork", "last"):
        found[name]["units"] = units(networks[name])
    found["subnetwork"]["shrunk"] = shrunk(sub, test, device)
    lap("audit and shrinking")
    return {
        "seed": seed,
        "rho": chosen.rho,
        "samples": {"train": len(train), "val": len(val), "test": len(test)},
        "vanilla_loss": [row["loss"] for row in history],
        "weights_unchanged": bise.fingerprint(model) == before,
        "selection": sub.record["selection"],
        "phases": sub.record["phases"],
        **extracted(sub),
        "extract": asdict(config),
        "finetune": asdict(tuning),
        "seconds": seconds,
        **found,
    }


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """{ρ: {model: {figure: [mean, standard deviation] in percent}}} over seeds."""
    out: dict[str, Any] = {}
    for rho in sorted({run["rho"] for run in runs}):
        same = [run for run in runs if run["rho"] == rho]
        out[str(rho)] = {"seeds": len(same)} | {
            name: {
                key: _spread([100 * run[name][key] for run in same])
                for key in ("accuracy", "unbiased", "worst_group", "best_group")
            }
            for name in MODELS
        }
        for name in ("subnetwork", "last"):
            closed = [100 * (1 - run[name]["units"]["open"] / run[name]["units"]["all"]) for run in same]
            out[str(rho)][name]["units_closed"] = _spread(closed)
        for key in ("paper", "physical"):
            gone = [run["subnetwork"]["shrunk"]["sparsity_percent"][key] for run in same]
            out[str(rho)]["subnetwork"][f"parameters_gone_{key}"] = _spread(gone)
        sizes = [run["subnetwork"]["shrunk"]["parameters_beside_embeddings"] for run in same]
        gone = [100 * (1 - size["shrunk"] / size["dense"]) for size in sizes]
        out[str(rho)]["subnetwork"]["parameters_gone_beside_embeddings"] = _spread(gone)
        macs = [run["subnetwork"]["shrunk"]["macs"] for run in same]
        out[str(rho)]["subnetwork"]["macs_gone"] = _spread([100 * (1 - m["shrunk"] / m["dense"]) for m in macs])
    return out


def _spread(values: list[float]) -> list[float | None]:
    """Mean and standard deviation, which one value hasn't."""
    return [statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None]


def page() -> str:
    """What was written into results/, a row for each file, ρ and model."""
    lines = [
        "| BERT, MI over | ρ, seeds, machine | model | worst group | best group | unbiased | units closed |"
        " parameters gone | beside embeddings | MACs gone |",
        f"|{'---|' * 10}",
    ]
    keys = ("worst_group", "best_group", "unbiased", "units_closed")
    keys += ("parameters_gone_physical", "parameters_gone_beside_embeddings", "macs_gone")
    for path in sorted((ROOT / "results").glob("madlibs*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        shape = content["shape"]
        where = content["machine"]["gpu"] or "CPU"
        for rho, found in content["summary"].items():
            for name in MODELS:
                row = found[name]
                cells = [_shown(row.get(key)) for key in keys]
                size = f"{shape['num_hidden_layers']} × {shape['hidden_size']}, {content['mi']}"
                what = LABELS[name]
                lines.append(f"| {size} | {rho}, {found['seeds']}, {where} | {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(value: list[float | None] | None) -> str:
    return "" if value is None else f"{value[0]:.1f}" + ("" if value[1] is None else f" ± {value[1]:.1f}")


def value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rho", type=float, nargs="+", default=[0.95])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--small", action="store_true", help="two layers, 64 wide, for two cores")
    parser.add_argument("--epochs", type=int, default=None, help="of the vanilla model; default the recipe's")
    parser.add_argument("--lr", type=float, default=None, help="of the vanilla model; default the recipe's")
    parser.add_argument("--set", nargs="*", default=[], help="changes to extraction, as mi=none gamma=0.3")
    parser.add_argument("--batch-size", type=int, default=None, help="of the vanilla model; default the recipe's")
    parser.add_argument("--vanilla-only", action="store_true", help="train, print the losses, write nothing")
    parser.add_argument("--limit", type=int, default=None, help="so many sentences of each split, for a trial")
    parser.add_argument("--no-graphs", action="store_true", help="on a GPU, every step by the host")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.out is None and not args.vanilla_only:
        parser.error("--out is missing")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    changed = {key: value(text) for key, _, text in (change.partition("=") for change in args.set)}
    name = "biased-madlibs-small" if args.small else "biased-madlibs"
    runs: list[dict[str, Any]] = []
    for rho in args.rho:
        for seed in args.seeds:
            chosen = recipe(name, rho=rho, seed=seed)
            changes = {"epochs": args.epochs, "lr": args.lr, "batch_size": args.batch_size}
            train = replace(chosen.train, **{key: given for key, given in changes.items() if given is not None})
            if args.vanilla_only:
                began = time.perf_counter()
                _, history = vanilla(replace(chosen, train=train), seed, device, not args.no_graphs, args.limit)
                print(rho, seed, train.lr, [round(row["loss"], 4) for row in history], time.perf_counter() - began)
                continue
            how = {"graphs": not args.no_graphs, "limit": args.limit, "changes": changed}
            runs.append(one(replace(chosen, train=train), seed, device, **how))
            shown = {model: f"{100 * runs[-1][model]['worst_group']:.1f}" for model in MODELS}
            seconds = {phase: round(value, 1) for phase, value in runs[-1]["seconds"].items()}
            print(rho, seed, "worst group", json.dumps(shown), json.dumps(seconds), flush=True)
            content = {
                "study": "madlibs",
                "recipe": name,
                "shape": dict(chosen.shape),
                "train": asdict(train),
                "mi": runs[-1]["extract"]["mi"],
                "changes": changed,
                "limit": args.limit,
                "machine": machine(),
                "summary": summary(runs),
                "runs": runs,
            }
            write_json(args.out, content)
    if runs:
        print(json.dumps(summary(runs), indent=1))


if __name__ == "__main__":
    main()
