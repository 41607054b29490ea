"""The last layer fitted anew, with our mask and without one, on train and on few samples of val.

    BISE_DATA=data python benchmarks/last_layer.py --rho 0.99 0.997 --checkpoints FOLDER --out results/last_layer.json

BiasedMNIST by the recipe's vanilla model, on seeds from which no setting was chosen (10 and up): mask by the default,
then the last layer by `bise.refit`, of the masked network and of the vanilla one, on the training cells evenly and on
100 to 10,000 unbiased samples of val. The L2 weight is chosen on val for fits on train, and by cross-validation for
fits on val. Test is looked at once. Figures are the mean over groups on test.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch

import bise
from bise.base.files import read_json, read_tensors, write_json, write_tensors
from bise.data.core.cells import Cells
from bise.data.core.contract import labels
from bise.data.core.subset import subset
from bise.engine.inputs import Inputs
from bise.engine.training import fit
from bise.engine.validation import Validation
from bise.jobs.recipes import Recipe, recipe, start
from bise.methods.finetuning import owning
from bise.studies.origin import machine

RESULT = Path(__file__).parent.parent / "results" / "last_layer.json"
SIZES = (100, 300, 1000, 10_000)
"""Samples of val that a last layer is fitted on."""
ON = ("train", *(f"{size:,} of val" for size in SIZES))
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""{n: the factor of a 95 % interval by Student's t with n - 1 degrees of freedom}."""


def vanilla_of(
    chosen: Recipe, seed: int, inputs: Inputs, cells: Cells, config: bise.TrainConfig, checkpoints: Path | None
) -> torch.nn.Module:
    """The vanilla model, from the checkpoint that `benchmarks/vanilla.py` or this script left, or trained now."""
    network = owning(start(chosen, seed=seed)[0].to(inputs.device))
    path = None if checkpoints is None else checkpoints / f"vanilla-{chosen.rho}-{seed}.safetensors"
    if path is not None and path.exists():
        network.bare().load_state_dict(read_tensors(path))
        return network.bare().to(inputs.device).eval()
    fit(network, inputs, cells, config)
    if path is not None:
        write_tensors(path, network.bare().state_dict())
    return network.bare()


def rows(
    rho: float, seed: int, limit: int | None, epochs: int | None, checkpoints: Path | None
) -> list[dict[str, Any]]:
    """One row for each network: what it has on test, and the seconds that its last step took."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = recipe("biased-mnist", rho=rho, seed=seed)
    how = {"rho": rho, "seed": seed, "protocol": chosen.protocol}  # what the recipe's vanilla model was trained on
    data = {split: bise.data.load("biased-mnist", split=split, **how) for split in ("train", "val", "test")}
    if limit is not None:
        data = {split: subset(part, limit, seed) for split, part in data.items()}
    cells, config = labels(data["train"]), chosen.train
    short: dict[str, Any] = {}
    if epochs is not None:
        config, short = bise.TrainConfig(epochs=epochs, lr=0.01), {"steps": 1, "upsilon": 1, "early_stop": False}
    out: list[dict[str, Any]] = []
    inputs = Inputs(data["train"], device)
    judge = Validation(data["test"], cells, inputs, precision="fp32")

    def note(name: str, network: Any, begun: float, **more: Any) -> None:
        seconds = time.perf_counter() - begun
        out.append({"rho": rho, "seed": seed, "network": name, "seconds": seconds, **judge(network), **more})

    begun = time.perf_counter()
    model = vanilla_of(chosen, seed, inputs, cells, config, checkpoints)
    note("vanilla", bise.subnetwork(model, {}), begun)
    begun = time.perf_counter()
    sub = bise.extract(model, data["train"], val=data["val"], config=bise.ExtractConfig.balanced(seed=seed, **short))
    note("mask", sub, begun, open=sub.units[0], units=sub.units[1], targets=sub.record["targets"])
    some = {count: subset(data["val"], min(count, len(data["val"])), seed) for count in SIZES}
    for name, network in (("vanilla", model), ("mask", sub)):
        for on, val in (("train", data["val"]), *(("val", part) for part in some.values())):
            begun = time.perf_counter()
            found = bise.refit(network, data["train"], val=val, on=on, keep_worse=True, seed=seed)
            what = "train" if on == "train" else f"{len(val):,} of val"
            note(f"{name}, last layer on {what}", found, begun, l2=found.record["l2"]["chosen"])
    return out


def page() -> str:
    """Accuracies in %, mean ± standard deviation over seeds, and what the mask adds, paired by seed."""
    found = read_json(RESULT)["rows"]
    values = {(row["rho"], row["network"], row["seed"]): 100 * row["unbiased"] for row in found}
    rhos, seeds = sorted({row["rho"] for row in found}), sorted({row["seed"] for row in found})
    lines = [
        "| last layer | " + " | ".join(f"ρ = {rho}, no mask | with the mask | the mask adds" for rho in rhos) + " |",
        "|" + "---|" * (1 + 3 * len(rhos)),
    ]
    for title, suffix in (("the model's own", ""), *((f"refitted on {on}", f", last layer on {on}") for on in ON)):
        cells = [title]
        for rho in rhos:
            pairs = [(values[rho, f"vanilla{suffix}", s], values[rho, f"mask{suffix}", s]) for s in seeds]
            cells += [_spread([pair[which] for pair in pairs]) for which in (0, 1)]
            cells.append(_interval([masked - plain for plain, masked in pairs]))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"n = {len(seeds)} seeds: {', '.join(map(str, seeds))}."])


def _spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def _interval(differences: list[float]) -> str:
    """The mean difference and its 95 % interval."""
    mean = statistics.mean(differences)
    half = T_95[len(differences)] * statistics.stdev(differences) / len(differences) ** 0.5
    return f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rho", type=float, nargs="+", default=[0.99, 0.995, 0.997])
    parser.add_argument("--seeds", type=int, nargs="+", default=[10, 11, 12])
    parser.add_argument("--limit", type=int, help="samples of each split, for a trial")
    parser.add_argument("--epochs", type=int, help="of the vanilla model, for a trial")
    parser.add_argument("--checkpoints", type=Path, help="folder of vanilla models, read where they are, else written")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    found: list[dict[str, Any]] = []
    for seed in given.seeds:
        for rho in given.rho:
            found += rows(rho, seed, given.limit, given.epochs, given.checkpoints)
            write_json(given.out, {"machine": machine(), "rows": found})
            for row in found[-12:]:
                print(
                    f"{rho}  {seed}  {row['network']:<36} {100 * row['unbiased']:.1f}  {row['seconds']:.1f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
