"""What the demo's table holds, on seeds that nothing was chosen on.

    python benchmarks/demo.py --out results/demo.json

The networks of `bise demo`, by its data and settings, without its files to deploy. A row is one network of one seed:
the mean accuracy over groups on test, the worst group, and the share of units that are open. A minute or two a seed on
two cores. `--smoke` makes everything tiny.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import torch

import bise
from bise.base.files import read_json, write_json
from bise.data.core.contract import labels
from bise.data.sets.digits import coloured_digits
from bise.jobs.demo import RHO, look, settings
from bise.jobs.pipeline import Work, extract_from, train_vanilla, tune
from bise.network.architectures.small import digit_net
from bise.studies.origin import machine

RESULT = Path(__file__).parent.parent / "results" / "demo.json"
SEEDS = (10, 11, 12, 13, 14)
CALLED = {
    "vanilla": "the vanilla model",
    "subnetwork": "its subnetwork",
    "refitted": "… with the last layer fitted again",
    "finetuned": "… finetuned instead",
    "dense_finetuned": "the vanilla model, finetuned alike",
}


def rows(seed: int, *, smoke: bool, finetuning: bool) -> list[dict[str, Any]]:
    data: dict[str, Any] = coloured_digits(**look(seed, RHO) | ({"copies": 1} if smoke else {}))
    cells = labels(data["train"])
    chosen = settings(seed, **({"epochs": (1, 1), "upsilon": 1} if smoke else {}))
    work, out = Work(**data, cells=cells), []
    begun = time.perf_counter()

    def note(name: str, network: Any) -> None:
        nonlocal begun
        seconds = time.perf_counter() - begun
        found = bise.audit(network, data["test"], aligned=cells, probe=False)
        opened = network.units if isinstance(network, bise.Subnetwork) and network.sites else (1, 1)
        out.append({
            "seed": seed, "network": name, "unbiased": found.unbiased, "worst_group": found.worst_group,
            "open": opened[0] / opened[1], "seconds": seconds,
        })  # fmt: skip
        print(f"{seed}  {name:<16} {100 * found.unbiased:.1f}  {100 * found.worst_group:.1f}", flush=True)
        begun = time.perf_counter()

    model = train_vanilla(work, digit_net(seed), chosen.train, torch.device("cpu"))
    note("vanilla", model)
    sub = extract_from(work, model, chosen.extract)
    note("subnetwork", sub)
    note("refitted", bise.refit(sub, data["train"], val=data["val"], seed=seed))
    if finetuning:
        note("finetuned", tune(work, sub, chosen.finetune, "finetuned"))
        note("dense_finetuned", tune(work, model, chosen.finetune, "dense_finetuned"))
    return out


def page() -> str:
    """Means ± standard deviations over seeds, in %."""
    found = read_json(RESULT)["rows"]
    lines = ["|  | mean over groups | worst group | units open |", "|---|---|---|---|"]
    for name, title in CALLED.items():
        of = [row for row in found if row["network"] == name]
        if of:
            cells = [_spread([100 * row[key] for row in of]) for key in ("unbiased", "worst_group", "open")]
            lines.append(f"| {title} | {' | '.join(cells)} |")
    seeds = sorted({row["seed"] for row in found})
    return "\n".join([*lines, "", f"n = {len(seeds)} seeds: {', '.join(map(str, seeds))}."])


def _spread(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.1f}"
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--smoke", action="store_true", help="everything tiny")
    parser.add_argument("--no-finetuning", action="store_true", help="leave out the two networks that are finetuned")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    found: list[dict[str, Any]] = []
    for seed in given.seeds[:1] if given.smoke else given.seeds:
        found += rows(seed, smoke=given.smoke, finetuning=not given.no_finetuning)
        write_json(given.out, {"machine": machine(), "rows": found})


if __name__ == "__main__":
    main()
