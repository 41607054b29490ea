"""The tables of docs/speed.md, from results/; `python benchmarks/tables.py` writes them there."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from bise.base.files import read_json

RESULTS = Path(__file__).parent.parent / "results"
PHASES = ("mask steps", "head", "evaluation", "set-up")


def spread(values: list[float], digits: int = 1) -> str:
    """Mean ± standard deviation where there are several."""
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def extraction(name: str) -> str:
    found = read_json(RESULTS / name)
    machine = found["machine"]
    where = machine["gpu"] or f"{machine['threads']} CPU threads"
    literal = found["literal"]
    lines = [
        f"{where}, torch {machine['torch']}, ρ = {found['rho']}; vanilla "
        + spread([100 * row["accuracy"] for row in found["vanilla"]])
        + " %. Seconds are mean ± standard deviation over n seeds.",
        "",
        "| | n | seconds | "
        + " | ".join(PHASES)
        + " | times faster | accuracy (%) | last (%) | units closed by the last (%) |",
        "|---|---|---|" + "---|" * len(PHASES) + "---|---|---|---|",
        "| literal, scaled | 1 | "
        + " | ".join(f"{v:.0f}" for v in (literal["seconds"], *(literal["phases"][p] for p in PHASES[:3])))
        + " | – | 1 | | | |",
    ]
    for job in dict.fromkeys(row["job"] for row in found["runs"]):
        rows = [row for row in found["runs"] if row["job"] == job]
        cells = [
            job + (", scaled" if rows[0]["scaled"] else ""),
            str(len(rows)),
            spread([row["seconds"] for row in rows]),
            *(spread([row["phases"][phase] for row in rows]) for phase in PHASES),
            spread([row["ratio"] for row in rows], 0),
        ]
        for key in ("accuracy", "accuracy_last", "sparsity_last"):
            cells.append("" if rows[0]["scaled"] else spread([100 * row[key] for row in rows]))
        lines.append("| " + " | ".join(cells) + " |")
    floor = found["floor"]
    lines += [
        "",
        f"The default preset multiplies {floor['macs'] / 1e12:.0f} T times; at the rate of a large matrix product on"
        f" the same device ({floor['macs_per_second'] / 1e12:.3g} T/s) that takes {floor['seconds']:.1f} s.",
    ]
    return "\n".join(lines)


def agreement(name: str) -> str:
    content = read_json(RESULTS / name)
    found: dict[str, Any] = content["agreement"]
    same = {k: v for k, v in found.items() if {p.split()[0] for p in k.split(", ")} == {"default", "plain"}}
    seeds = {k: v for k, v in found.items() if {p.split()[0] for p in k.split(", ")} == {"default"}}
    pairs = {k: v for k, v in same.items() if len({p.split()[1] for p in k.split(", ")}) == 1}
    one = ", ".join(f"{100 * v:.1f} %" for v in pairs.values())
    two = ", ".join(f"{100 * v:.1f} %" for v in seeds.values())
    by_job = {job: [row for row in content["runs"] if row["job"] == job] for job in ("default", "plain")}
    accuracies = {
        key: " and ".join(spread([100 * row[key] for row in rows]) for rows in by_job.values())
        for key in ("accuracy", "accuracy_last")
    }
    return (
        f"Units whose last gates agree: fast and plain path, same seed: {one}; two seeds of the fast path: {two}."
        f" Accuracy on the unbiased test set, fast and plain: {accuracies['accuracy']} %;"
        f" of the last masks: {accuracies['accuracy_last']} %."
    )


def vanilla() -> str:
    found = read_json(RESULTS / "vanilla_biased_mnist.json")
    lines = ["| seed | seconds | accuracy (%) |", "|---|---|---|"]
    lines += [f"| {r['seed']} | {r['seconds']:.1f} | {100 * r['accuracy']:.1f} |" for r in found["runs"]]
    share = found["operations_per_second"] / found["bf16_ceiling"]
    lines += [
        "",
        f"{found['machine']['gpu']}, {found['epochs']} epochs of 60,000 digits, ρ = {found['rho']}; the last run does"
        f" {found['operations_per_second'] / 1e12:.0f} TFLOP/s, {100 * share:.0f} % of what a large bf16 product"
        f" reaches ({found['bf16_ceiling'] / 1e12:.0f} TFLOP/s). torch.compile: {'yes' if found['compiled'] else 'no'};"
        " the first run pays for it.",
        "",
        "Where the GPU's time goes, in one epoch:",
        "",
        "| kernel | ms | % |",
        "|---|---|---|",
    ]
    whole = found["profile"]["milliseconds"]
    for kernel, spent in found["profile"]["kernels"].items():
        lines.append(f"| `{kernel[:64]}` | {spent:.0f} | {100 * spent / whole:.0f} |")
    return "\n".join(lines)


def throughput() -> str:
    found = read_json(RESULTS / "throughput.json")
    lines = ["| | images a second | times plain |", "|---|---|---|"]
    for model, jobs in found["models"].items():
        for job, ratio in jobs["ratio"].items():
            lines.append(f"| {model}: {job} | {jobs[job]['images_per_second']:,.0f} | {ratio:.1f} |")
    return "\n".join(lines)
