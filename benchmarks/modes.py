"""Dense, shrunk with the fastest widths, and a native network of these widths, in the modes in which people run them.

    python benchmarks/modes.py --device cuda
    python benchmarks/modes.py --smoke

Writes results/modes_cuda.json, or with --smoke, which takes a minute on a CPU and tries each part once, a file that is
named. Masks close each unit with a chance of 50 or 30 %, which leaves widths as learned masks do. All three networks
take turns in one run: eager, in a CUDA graph, and compiled; in bf16 and fp32; channels-last for pictures. `floor_ms` is
what the shrunk network's operations and bytes take at the GPU's peak, if --tflops and --gbs say what that is.
"""

from __future__ import annotations

import argparse
import copy
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from native import native
from torch import nn

from bise.base.files import write_json
from bise.network.architectures.reference import REFERENCES, as_if_trained
from bise.network.placement import place
from bise.network.size import size
from bise.network.subnetwork import Subnetwork
from bise.network.timing import MODES, timed
from bise.studies.origin import machine

ROOT = Path(__file__).parent.parent
NAMES = ("resnet18", "resnet50", "SimpleConvNet", "vit_b_16", "bert_base")
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def model_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "bert_base":
        from transformers import BertConfig, BertForSequenceClassification

        return BertForSequenceClassification(BertConfig()).eval()
    if name == "vit_b_16":
        from torchvision.models import vit_b_16

        return vit_b_16(num_classes=10).eval()
    return as_if_trained(REFERENCES[name].make(), REFERENCES[name].batch(8))


def batch_of(name: str, samples: int) -> Any:
    random = torch.Generator().manual_seed(0)
    if name == "bert_base":
        return {"input_ids": torch.randint(0, 30522, (samples, 128), generator=random)}
    side = 28 if name == "SimpleConvNet" else 224
    return torch.randn(samples, 3, side, side, generator=random)


def there(x: Any, device: torch.device, kind: torch.dtype) -> Any:
    """A batch on its device, in its precision, pictures channels-last."""
    if isinstance(x, Mapping):
        return {key: value.to(device) for key, value in x.items()}
    return x.to(device, kind).contiguous(memory_format=torch.channels_last)


def subnetwork_of(name: str, closed: float) -> Subnetwork:
    model = model_of(name)
    sub = Subnetwork(model, place(model, batch_of(name, 2)).sites)
    random = torch.Generator().manual_seed(0)
    for gate in sub.gates:
        gate.mask.copy_(torch.rand(gate.mask.shape, generator=random) >= closed)  # type: ignore[operator,union-attr]
    return sub


def rows(name: str, closed: float, options: argparse.Namespace) -> list[dict[str, Any]]:
    """An entry for each precision, batch and mode; widths are chosen for each precision and batch, on the device."""
    device, out = torch.device(options.device), []
    sub = subnetwork_of(name, closed)
    one = batch_of(name, 1)
    macs = size(sub.bare(), one).macs
    for precision, batch in itertools.product(options.precisions, options.batches):
        kind = PRECISIONS[precision]
        x = there(batch_of(name, batch), device, kind)
        placed = copy.deepcopy(sub).to(device, kind)
        example = there(batch_of(name, max(2, batch)), device, kind)
        small = placed.shrink(example, align=options.align, streams=options.streams)
        report: Any = small.shrink_report
        dense, own = placed.bare(), native(name, small, sub.bare()).to(device, kind).eval()
        for network in (dense, small, own):
            network.to(memory_format=torch.channels_last)
        counted = size(small, there(one, device, kind))
        entry: dict[str, Any] = {"model": name, "closed": closed, "batch": batch, "precision": precision}
        entry |= {"mac_ratio": counted.macs / macs, "native_mac_ratio": size(own, there(one, device, kind)).macs / macs}
        entry |= {"align": report.align, "streams": report.streams, "parameters": counted.parameters}
        entry |= {"tried": [vars(tried) for tried in report.tried], "floor_ms": floor(counted, batch, kind, options)}
        for mode in options.modes:
            torch.compiler.reset()
            seen = timed(dense, small, x, (mode,), rounds=options.rounds)
            beside = timed(own, small, x, (mode,), rounds=options.rounds)
            for first, second in zip(seen, beside, strict=True):
                cell = {"mode": mode, "dense_ms": first.dense_ms, "shrunk_ms": first.shrunk_ms, "ratio": first.ratio}
                cell |= {"native_ms": second.dense_ms, "over_native": second.ratio, "device": first.device}
                print({**entry, **cell, "tried": len(report.tried)}, flush=True)
                out.append(entry | cell)
    return out


def floor(counted: Any, batch: int, kind: torch.dtype, options: argparse.Namespace) -> float | None:
    """Milliseconds for the operations or the weights' bytes at the peak of the device, whichever is more."""
    if not options.tflops or not options.gbs:
        return None
    operations = 2 * counted.macs * batch / (options.tflops * 1e9)
    return max(operations, counted.parameters * kind.itemsize / (options.gbs * 1e6))


def page(found: list[dict[str, Any]]) -> str:
    """The table: one line a network, batch and precision, one column a mode, each as of dense and as of native."""
    modes = list(dict.fromkeys(e["mode"] for e in found))
    heads = [f"{mode}, of {what}" for mode in modes for what in ("dense", "native")]
    lines = ["| model | closed | batch | precision | widths | MACs | " + " | ".join(heads) + " |"]
    lines.append("|" + " --- |" * (6 + len(heads)))
    keys = ("model", "closed", "batch", "precision")
    for key, group in itertools.groupby(found, key=lambda e: tuple(e[k] for k in keys)):
        cells = {e["mode"]: e for e in group}
        first = next(iter(cells.values()))
        start = [key[0], f"{100 * key[1]:.0f} %", str(key[2]), key[3], f"{first['align']}, {first['streams']}"]
        start.append(f"{first['mac_ratio']:.2f}")
        ends = [f"{cells[m][k]:.2f}" if m in cells else "–" for m in modes for k in ("ratio", "over_native")]
        lines.append("| " + " | ".join(start + ends) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", nargs="*", default=list(NAMES))
    parser.add_argument("--closed", nargs="*", type=float, default=[0.5, 0.3])
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 64, 256])
    parser.add_argument("--precisions", nargs="*", default=["bf16", "fp32"], choices=list(PRECISIONS))
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=list(MODES))
    parser.add_argument("--align", default="auto", type=lambda text: text if text == "auto" else int(text))
    parser.add_argument("--streams", default=None)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--tflops", type=float, default=0, help="the device's peak, for floor_ms")
    parser.add_argument("--gbs", type=float, default=0, help="gigabytes a second of its memory, for floor_ms")
    parser.add_argument("--smoke", action="store_true", help="each part once, on a CPU, in a minute")
    parser.add_argument("--out", type=Path, default=None, help="default: results/modes_DEVICE.json; none with --smoke")
    options = parser.parse_args()
    if options.smoke:
        options.device, options.models, options.closed, options.batches = "cpu", ["SimpleConvNet"], [0.5], [2]
        options.precisions, options.modes, options.rounds = ["fp32"], ["eager", "CUDA graph"], 2
    found = [e for m, c in itertools.product(options.models, options.closed) for e in rows(m, c, options)]
    path = options.out or (None if options.smoke else ROOT / "results" / f"modes_{options.device}.json")
    if path is not None:
        write_json(path, {"machine": machine(), "seed": 0, "networks": found})
    print(page(found))


if __name__ == "__main__":
    main()
