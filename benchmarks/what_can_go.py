"""How much of a transformer can go: parameters that are left when a gate is open, one in all or one at each site.

    python benchmarks/what_can_go.py [--only BERT-base]

Real architectures at random weights, with gates in the paper's places and with all of them. Tables of embeddings are
left out, since a mask never closes their rows. Where one gate at each site is open, the shrunk network is compared in
float64 with the masked one, as it was captured. Writes results/what_can_go.json.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bise.base.files import read_json, write_json
from bise.network.architectures.vision import torchvision
from bise.network.placement import place
from bise.network.shrinking.capture import as_module, capture
from bise.network.shrinking.removal import rewritten
from bise.network.shrinking.verify import as_float64, difference, in_float64
from bise.network.subnetwork import Subnetwork
from bise.studies.origin import machine

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "what_can_go.json"
LLAMA = {
    "vocab_size": 32_000,
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 1376,
    "pad_token_id": 0,
}
PLACES = ("paper", "all")


def _vit() -> nn.Module:
    torchvision()
    from torchvision.models import vit_b_16

    return vit_b_16(weights=None)


def _deit() -> nn.Module:
    torchvision()
    import timm

    return timm.create_model("deit_base_patch16_224", pretrained=False)


def _text(name: str, **shape: Any) -> nn.Module:
    torchvision()
    import transformers

    return getattr(transformers, f"{name}ForSequenceClassification")(getattr(transformers, f"{name}Config")(**shape))


def pictures() -> Any:
    return torch.randn(2, 3, 224, 224)


def tokens() -> Any:
    ids = torch.randint(5, 30_000, (2, 16))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "ViT-B/16 (torchvision)": (_vit, pictures),
    "DeiT-B/16 (timm)": (_deit, pictures),
    "BERT-base": (lambda: _text("Bert"), tokens),
    "DistilBERT": (lambda: _text("DistilBert"), tokens),
    "LLaMA-style, 8 layers": (lambda: _text("Llama", **LLAMA), tokens),
}


def tables(model: nn.Module) -> set[str]:
    """The parameters that are embeddings: of words and of positions."""
    found = {f"{path}.weight" for path, module in model.named_modules() if isinstance(module, nn.Embedding)}
    return found | {name for name, _ in model.named_parameters() if name.endswith(("pos_embed", "pos_embedding"))}


def counted(module: nn.Module, without: set[str]) -> int:
    return sum(p.numel() for name, p in module.named_parameters() if name not in without)


def row(name: str) -> dict[str, Any]:
    """One line of the table."""
    started = time.time()
    torch.manual_seed(0)
    make, example = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, x = make().eval(), example()
    without = tables(model)
    out: dict[str, Any] = {"parameters": counted(model, set()), "beside_embeddings": counted(model, without)}
    for places in PLACES:
        sites = place(model, x, gates_at="activations" if places == "paper" else "all").sites
        sub = Subnetwork(model, sites)
        captured = capture(sub, x)
        entry: dict[str, Any] = {"sites": len(sites), "units": sum(site.units for site in sites)}
        for case in ("one", "one_each"):
            for number, gate in enumerate(sub.gates):
                gate.mask.fill_(False)
                gate.mask[0] = case == "one_each" or number == 0
            small, _, barriers = rewritten(captured, {number: gate.mask for number, gate in enumerate(sub.gates)})
            left = counted(small, without)
            entry[case] = {"left": left, "gone": 1 - left / out["beside_embeddings"], "barriers": len(barriers)}
        for number, place_of_mask in captured.gates.items():
            captured.tensors[place_of_mask] = sub.gates[number].mask
        entry["difference"] = difference(in_float64(as_module(captured)), in_float64(small), as_float64(x))
        out[places] = entry
    return out | {"seconds": time.time() - started}


def page() -> str:
    """The page's table, from what was measured."""
    rows = read_json(RESULTS)["models"]
    lines = [
        "| model | parameters beside embeddings | gates | units | gone, one gate open | gone, one at each site |",
        "|" + " --- |" * 6,
    ]
    for name, entry in rows.items():
        for places in PLACES:
            part = entry[places]
            lines.append(
                f"| {name} | {entry['beside_embeddings'] / 1e6:.1f} M "
                f"| {'the paper’s places' if places == 'paper' else 'all'} | {part['units']:,} "
                f"| {part['one']['gone']:.1%} | {part['one_each']['gone']:.1%} |"
            )
    worst = max(entry[places]["difference"] for entry in rows.values() for places in PLACES)
    return "\n".join(lines) + f"\n\nLargest relative difference between masked and shrunk in float64: {worst:.0e}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(MODELS), help="models, by the names in the table")
    options = parser.parse_args()
    rows: dict[str, Any] = read_json(RESULTS)["models"] if RESULTS.exists() else {}
    for name in options.only:
        rows[name] = row(name)
        write_json(RESULTS, {"machine": machine(), "seed": 0, "llama": LLAMA, "models": rows})
        print(f"{name}: {rows[name]}", flush=True)


if __name__ == "__main__":
    main()
