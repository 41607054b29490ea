"""Shrinking on twenty classifiers: exactness, coverage, size and latency; writes results/shrink_table.json.

    python benchmarks/shrink_table.py [--only resnet18 BERT]

For every model: random masks at 10, 50 and 90 % closed, checked in float64 on four kinds of input, and each site
closed wholly. Sizes and latency are those at 50 %.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.files import read_json, write_json
from bise.network.architectures.reference import REFERENCES, as_if_trained
from bise.network.placement import place
from bise.network.shrinking.capture import Captured, capture
from bise.network.shrinking.removal import dtype_of, rewritten, settle
from bise.network.shrinking.verify import as_float64, check, difference, in_float64
from bise.network.size import latency, size
from bise.network.subnetwork import Subnetwork
from bise.studies.origin import machine

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "shrink_table.json"
SHARES = (0.1, 0.5, 0.9)
aten = torch.ops.aten
LAYERS = (aten.conv1d.default, aten.conv2d.default, aten.conv3d.default, aten.linear.default)


def coverage(captured: Captured, sub: Subnetwork) -> float:
    """Gated channels over the output channels of convolutions and linear layers."""
    outputs = 0
    for node in captured.graph.nodes:
        if node.op == "call_function" and node.target in LAYERS:
            outputs += node.meta["val"].shape[-1 if node.target is aten.linear.default else 1]
    return sum(site.units for site in sub.sites) / outputs


def closed(sub: Subnetwork, share: float, random: torch.Generator) -> dict[int, Tensor]:
    """Set masks that close this share of each site's units, and return them."""
    for gate in sub.gates:
        units = gate.mask.numel()
        mask = torch.ones(units, dtype=torch.bool)
        mask[torch.randperm(units, generator=random)[: round(share * units)]] = False
        gate.mask.copy_(mask)
    return {number: gate.mask for number, gate in enumerate(sub.gates)}


def row(name: str) -> dict[str, Any]:
    """One line of the table."""
    started = time.time()
    torch.manual_seed(0)
    reference = REFERENCES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = as_if_trained(reference.make(), reference.batch(8))
    x = reference.batch(2)
    sub = Subnetwork(model, place(model, x).sites)
    captured = capture(sub, x)
    random = torch.Generator().manual_seed(0)
    out: dict[str, Any] = {"sites": len(sub.sites), "coverage": coverage(captured, sub), "closed": {}}
    for share in SHARES:
        masks = closed(sub, share, random)
        small, derived, barriers = rewritten(captured, masks)
        gaps = check(copy.deepcopy(sub).double(), in_float64(small), x, other_size=captured.dynamic_size)
        settle(small, derived, dtype_of(model))
        out["closed"][str(share)] = {
            "difference": max(gaps.values()),
            "cases": sorted(gaps),
            "float32": difference(sub, small, x),
            "barriers": [str(barrier) for barrier in barriers],
            **sizes(model, small, reference.batch, captured, timed=share == 0.5),
        }
    out["single_sites"] = single_sites(sub, captured, x)
    out["seconds"] = time.time() - started
    return out


def sizes(model: nn.Module, small: nn.Module, batch: Any, captured: Captured, *, timed: bool) -> dict[str, Any]:
    big = captured.dynamic_size and batch(1).shape[-1] == 64
    x = torch.randn(4, 3, 224, 224) if big else batch(8)
    one = {key: value[:1] for key, value in x.items()} if isinstance(x, dict) else x[:1]
    dense, shrunk = size(model, one), size(small, one)
    out: dict[str, Any] = {
        "input": list(x.shape[1:]) if isinstance(x, Tensor) else {k: list(v.shape[1:]) for k, v in x.items()},
        "parameters": [dense.parameters, shrunk.parameters],
        "macs": [dense.macs, shrunk.macs],
    }
    if timed:
        seen = latency(model, small, x, rounds=5)
        out["latency"] = {"dense_ms": seen.first_ms, "shrunk_ms": seen.second_ms, "ratio": seen.ratio}
        out["latency"] |= {"batch": seen.batch, "threads": seen.threads, "rounds": seen.rounds}
    return out


def single_sites(sub: Subnetwork, captured: Captured, x: Any) -> dict[str, float]:
    """{site: difference in float64} with that site closed wholly and all others open."""
    masked, inputs, found = copy.deepcopy(sub).double(), as_float64(x), {}
    for number, site in enumerate(sub.sites):
        for other, gate in enumerate(masked.gates):
            gate.mask.fill_(other != number)
        small, _, _ = rewritten(captured, {i: gate.mask for i, gate in enumerate(masked.gates)})
        found[site.name] = difference(masked, in_float64(small), inputs)
    return found


def table(rows: dict[str, Any]) -> str:
    """The page's table, from what was measured."""
    head = "| model | sites | coverage | closed | parameters | MACs | latency ratio | difference | barriers |"
    lines = [head, "|" + " --- |" * 9]
    for name in REFERENCES:
        if name not in rows:
            continue
        entry = rows[name]
        half = entry["closed"]["0.5"]
        worst = max(*(c["difference"] for c in entry["closed"].values()), *entry["single_sites"].values())
        before, after = half["parameters"]
        macs_before, macs_after = half["macs"]
        lines.append(
            f"| {name} | {entry['sites']} | {min(1.0, entry['coverage']):.0%} | 50 % "
            f"| {short(before)} → {short(after)} "
            f"| {short(macs_before)} → {short(macs_after)} ({macs_after / macs_before:.2f}) "
            f"| {half['latency']['ratio']:.2f} | {worst:.0e} | {named(half['barriers'])} |"
        )
    return "\n".join(lines)


def named(barriers: list[str]) -> str:
    if not barriers:
        return "none"
    return f"{len(barriers)}, for instance {barriers[0].partition(':')[0]}"


def short(number: float) -> str:
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return str(number)


def summary(rows: dict[str, Any]) -> str:
    differences = [c["difference"] for r in rows.values() for c in r["closed"].values()]
    singles = [d for r in rows.values() for d in r["single_sites"].values()]
    wide = sum(r["coverage"] >= 0.4 for r in rows.values())
    free = sum(not any(c["barriers"] for c in r["closed"].values()) for r in rows.values())
    return (
        f"{len(rows)} models; largest relative difference in float64 {max(differences):.1e} over {len(differences)} "
        f"random masks (up to four kinds of input) and {max(singles):.1e} over {len(singles)} sites closed wholly; "
        f"coverage of at least 40 % for {wide}; no barrier for {free}."
    )


def page() -> str:
    rows = read_json(RESULTS)["models"]
    return f"{summary(rows)}\n\n{table(rows)}"


def save(path: Path, rows: dict[str, Any]) -> None:
    write_json(path, {"machine": machine(), "seed": 0, "models": rows})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(REFERENCES), help="models, by the names in the table")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where to write, for runs side by side")
    parser.add_argument("--merge", nargs="*", type=Path, default=[], help="results of such runs to take in")
    options = parser.parse_args()
    rows: dict[str, Any] = read_json(options.results)["models"] if options.results.exists() else {}
    for other in options.merge:
        rows |= read_json(other)["models"]
    for name in options.only:
        rows[name] = row(name)
        save(options.results, rows)
        print(f"{name}: {rows[name]['seconds']:.0f} s, {rows[name]['closed']['0.5']}", flush=True)
    save(options.results, rows)
    print(summary(rows))


if __name__ == "__main__":
    main()
