"""Dense against shrunk, side by side: ResNet-18 at 224 × 224 and SimpleConvNet, half of the units closed.

    python benchmarks/latency.py --threads 2 --rounds 5
    python benchmarks/latency.py --device cuda

Writes results/latency_cpu.json or results/latency_cuda.json: MACs, latency of dense, shrunk, and shrunk with BatchNorm
folded, in both memory formats, networks taking turns in one run. Closed is exactly half of each site, which leaves even
widths such as 32 and 256, or each unit with a chance of one half, which leaves odd ones as masks do. On a CPU there is
also a table by layer (each convolution and linear layer alone, at the shapes that it has in the network): it shows
where the latency ratio leaves the MAC ratio.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from bise.base.files import read_json, write_json
from bise.network.architectures.reference import REFERENCES, as_if_trained
from bise.network.placement import place
from bise.network.size import latency, size
from bise.network.subnetwork import Subnetwork
from bise.studies.origin import machine

ROOT = Path(__file__).parent.parent
SIDES = {"resnet18": 224, "SimpleConvNet": 28}
HALF, CHANCE = "half of each site", "each unit by chance"
aten = torch.ops.aten
LAYERS = (aten.conv2d.default, aten.linear.default)


def half_closed(name: str, closed: str = HALF) -> tuple[nn.Module, Subnetwork]:
    """A model and its subnetwork, with exactly half of each site closed, or about half, by a coin for each unit."""
    torch.manual_seed(0)
    model = as_if_trained(REFERENCES[name].make(), REFERENCES[name].batch(8))
    sub = Subnetwork(model, place(model, REFERENCES[name].batch(2)).sites)
    random = torch.Generator().manual_seed(0)
    for gate in sub.gates:
        if closed == HALF:
            gate.mask[torch.randperm(gate.mask.numel(), generator=random)[: gate.mask.numel() // 2]] = False
        else:
            gate.mask.copy_(torch.rand(gate.mask.shape, generator=random) < 0.5)
    return model, sub


def rows(name: str, closed: str, device: torch.device, batches: list[int], rounds: int) -> list[dict[str, Any]]:
    """An entry for each batch and each way to run the network: as it is, BatchNorm folded, both in channels-last."""
    model, sub = half_closed(name, closed)
    side = SIDES[name]
    small, folded = (sub.shrink(torch.randn(2, 3, side, side), fold_batchnorm=fold) for fold in (False, True))
    one = torch.randn(1, 3, side, side)
    ratio = size(small, one).macs / size(model, one).macs
    out = []
    for batch, form in itertools.product(batches, (torch.contiguous_format, torch.channels_last)):
        x = torch.randn(batch, 3, side, side, device=device).contiguous(memory_format=form)
        dense = copy.deepcopy(model).to(device).to(memory_format=form)
        for kind, network in (("shrunk", small), ("shrunk, BatchNorm folded", folded)):
            other = copy.deepcopy(network).to(device).to(memory_format=form)
            seen = latency(dense, other, x, rounds=rounds)
            entry = {"model": name, "closed": closed, "batch": batch, "what": kind}
            entry |= {"format": str(form).removeprefix("torch."), "mac_ratio": ratio}
            entry |= {"dense_ms": seen.first_ms, "shrunk_ms": seen.second_ms, "ratio": seen.ratio}
            entry |= {"rounds": rounds, "precision": "fp32", "threads": seen.threads, "device": seen.device}
            print(entry, flush=True)
            out.append(entry)
    return out


class Recorder(fx.Interpreter):
    """Runs a shrunk graph and times each operation, by kind and by layer."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.layers: dict[str, tuple[Any, tuple[Any, ...]]] = {}

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target in LAYERS:
            names = {id(t): name for name, t in self.module.named_parameters()}
            self.layers[names.get(id(args[1]), "?").removesuffix(".weight")] = (target, args)
        return super().call_function(target, args, kwargs)


def by_layer(name: str, batch: int, rounds: int) -> list[dict[str, Any]]:
    """Each layer of the dense and of the shrunk network alone: MACs and milliseconds."""
    _, sub = half_closed(name)
    side = SIDES[name]
    small = sub.shrink(torch.randn(2, 3, side, side))
    for gate in sub.gates:
        gate.mask.fill_(True)
    dense = sub.shrink(torch.randn(2, 3, side, side))
    recorders = [Recorder(network) for network in (dense, small)]  # type: ignore[arg-type]
    with torch.inference_mode():
        for recorder in recorders:
            recorder.run(torch.randn(batch, 3, side, side))
        found = []
        for layer, call in recorders[0].layers.items():
            pair = [_alone(*c, rounds) for c in (call, recorders[1].layers[layer])]
            entry = {"layer": layer, "dense": pair[0], "shrunk": pair[1]}
            entry["mac_ratio"] = pair[1]["macs"] / pair[0]["macs"]
            entry["latency_ratio"] = pair[1]["ms"] / pair[0]["ms"]
            found.append(entry)
    return found


def _alone(target: Any, args: tuple[Any, ...], rounds: int) -> dict[str, Any]:
    import time

    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        out: Tensor = target(*args)
        times.append(1000 * (time.perf_counter() - start))
    weight: Tensor = args[1]
    macs = out.numel() * weight[0].numel()
    return {"shape": list(weight.shape), "macs": macs, "ms": statistics.median(times[1:])}


def page() -> str:
    """The tables of every device that results/ holds."""
    parts = []
    for kind in ("cpu", "cuda"):
        path = ROOT / "results" / f"latency_{kind}.json"
        if path.exists():
            content = read_json(path)
            first = content["networks"][0]
            where = f"CPU, {first['threads']} threads" if kind == "cpu" else first["device"]
            parts.append(
                f"{where}, median of {first['rounds']} rounds:\n\n{tables(content['networks'], content['layers'])}"
            )
    return "\n\n".join(parts)


def tables(found: list[dict[str, Any]], layers: dict[str, Any]) -> str:
    lines = [
        "| model | closed | batch | format | what | dense, ms | shrunk, ms | latency ratio | MAC ratio |",
        "|" + " --- |" * 9,
    ]
    for e in found:
        lines.append(
            f"| {e['model']} | {e.get('closed', HALF)} | {e['batch']} | {e['format']} | {e['what']} "
            f"| {e['dense_ms']:.1f} | {e['shrunk_ms']:.1f} | {e['ratio']:.2f} | {e['mac_ratio']:.2f} |"
        )
    for name, entries in layers.items():
        lines += ["", f"{name} by layer, batch 64, each layer alone:", ""]
        lines += ["| layer | weight | MAC ratio | dense, ms | shrunk, ms | latency ratio |", "|" + " --- |" * 6]
        for e in entries:
            shapes = " → ".join("×".join(map(str, e[side]["shape"])) for side in ("dense", "shrunk"))
            lines.append(
                f"| {e['layer']} | {shapes} | {e['mac_ratio']:.2f} | {e['dense']['ms']:.1f} | {e['shrunk']['ms']:.1f} "
                f"| {e['latency_ratio']:.2f} |"
            )
        total = [sum(e[side]["ms"] for e in entries) for side in ("dense", "shrunk")]
        lines.append(f"| all | | | {total[0]:.1f} | {total[1]:.1f} | {total[1] / total[0]:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 64, 256])
    parser.add_argument("--models", nargs="*", default=list(SIDES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--closed", nargs="*", default=[HALF, CHANCE], choices=(HALF, CHANCE))
    parser.add_argument("--out", type=Path, default=None, help="default: results/latency_DEVICE.json")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 leaves torch's own number")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    path = options.out or ROOT / "results" / f"latency_{device.type}.json"
    cases = list(itertools.product(options.models, options.closed))
    found = [e for model, closed in cases for e in rows(model, closed, device, options.batches, options.rounds)]
    layers = {m: by_layer(m, 64, 3) for m in options.models} if device.type == "cpu" else {}
    write_json(path, {"machine": machine(), "seed": 0, "networks": found, "layers": layers})


if __name__ == "__main__":
    main()
