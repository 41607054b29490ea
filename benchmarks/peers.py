"""The same masks through torch-simplify and Torch-Pruning: how often each is exact, and what each leaves.

    python -m venv peers && peers/bin/pip install torch torchvision timm transformers torch-simplify torch-pruning -e .
    peers/bin/python benchmarks/peers.py

Writes results/peers.json. Neither is a dependency of ours. Both know only weights: a closed unit is a filter with its
BatchNorm set to zero. Masks are therefore drawn on the sites where that says the same as a gate (checked in float64);
gates on residual sums can't be said at all. Differences are relative to the largest logit; torch-simplify runs in
float32, so its bound is 1e-4.
"""

from __future__ import annotations

import argparse
import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.files import read_json, write_json
from bise.network.architectures.reference import REFERENCES, as_if_trained
from bise.network.architectures.vision import torchvision
from bise.network.outputs import call
from bise.network.placement import place
from bise.network.shrinking.verify import as_float64, difference
from bise.network.size import parameters
from bise.network.subnetwork import Subnetwork
from bise.studies.origin import machine

SHARES = (0.1, 0.5, 0.9)
RESULTS = Path(__file__).parent.parent / "results" / "peers.json"
LEAVES = (nn.Conv2d, nn.BatchNorm2d, nn.Linear)


def makers(model: nn.Module, sub: Subnetwork, x: Any) -> dict[str, list[str]]:
    """{site: the layer that makes its channels, and the BatchNorm behind it}, by the order of calls."""
    order: list[str] = []
    hooks = [m.register_forward_pre_hook(lambda *_, path=path: order.append(path)) for path, m in model.named_modules()]
    with torch.no_grad():
        call(model, x)
    for hook in hooks:
        hook.remove()
    modules, found = dict(model.named_modules()), {}
    for site in sub.sites:
        before = [p for p in order[: order.index(site.module)] if isinstance(modules[p], LEAVES)]
        norm = [before.pop()] if before and isinstance(modules[before[-1]], nn.BatchNorm2d) else []
        if before and modules[before[-1]].weight.shape[0] == site.units:
            found[site.name] = [before[-1], *norm]
    return found


def zeroed(model: nn.Module, layers: dict[str, list[str]], masks: dict[str, Tensor]) -> nn.Module:
    """The model with the filters, biases and BatchNorm entries of closed units set to zero."""
    out = copy.deepcopy(model)
    with torch.no_grad():
        for name, mask in masks.items():
            for path in layers[name]:
                layer = out.get_submodule(path)
                layer.weight[~mask] = 0
                if layer.bias is not None:
                    layer.bias[~mask] = 0
    return out


def expressible(model: nn.Module, sub: Subnetwork, layers: dict[str, list[str]], x: Any) -> list[str]:
    """Sites where zero weights compute what a closed gate does."""
    wide, inputs, found = copy.deepcopy(sub).double(), as_float64(x), []
    for number, site in enumerate(sub.sites):
        if site.name not in layers:
            continue
        for gate in wide.gates:
            gate.mask.fill_(True)
        wide.gates[number].mask[::2] = False
        said = zeroed(copy.deepcopy(model).double(), layers, {site.name: wide.gates[number].mask})
        if difference(wide, said, inputs) < 1e-10:
            found.append(site.name)
    return found


def by_simplify(model: nn.Module, layers: dict[str, list[str]], masks: dict[str, Tensor], x: Any) -> nn.Module:
    torchvision()  # simplify imports it
    import simplify

    one = {k: torch.zeros_like(v[:1]) for k, v in x.items()} if isinstance(x, dict) else torch.zeros_like(x[:1])
    return simplify.simplify(zeroed(model, layers, masks).eval(), one, fuse_bn=True)


def by_torch_pruning(model: nn.Module, layers: dict[str, list[str]], masks: dict[str, Tensor], x: Any) -> nn.Module:
    import torch_pruning

    small = copy.deepcopy(model)
    graph = torch_pruning.DependencyGraph().build_dependency(small, example_inputs=x)
    for name, mask in masks.items():
        layer = small.get_submodule(layers[name][0])
        if layer.weight.shape[0] != mask.numel():
            continue  # pruned already, together with a layer that it is coupled to
        convolution = isinstance(layer, nn.Conv2d)
        how = torch_pruning.prune_conv_out_channels if convolution else torch_pruning.prune_linear_out_channels
        graph.get_pruning_group(layer, how, idxs=(~mask).nonzero().flatten().tolist()).prune()
    return small


def judged(masked: nn.Module, make: Callable[[], nn.Module], x: Any, bound: float) -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            small = make()
            gap = difference(masked, small.eval(), x)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]}
    return {"difference": gap, "exact": gap <= bound, "parameters": parameters(small)}


def row(name: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model = as_if_trained(REFERENCES[name].make(), REFERENCES[name].batch(8))
    x = REFERENCES[name].batch(2)
    sub = Subnetwork(model, place(model, x).sites)
    layers = makers(model, sub, x)
    usable = expressible(model, sub, layers, x)
    out: dict[str, Any] = {"sites": len(sub.sites), "expressible": len(usable), "cases": {}}
    random = torch.Generator().manual_seed(0)
    for share in SHARES:
        masks = {}
        for site, gate in zip(sub.sites, sub.gates, strict=True):
            gate.mask.fill_(True)
            if site.name in usable:
                gate.mask.copy_(torch.rand(site.units, generator=random) >= share)
                gate.mask[0] = True
                masks[site.name] = gate.mask.clone()
        wide = copy.deepcopy(model).double()
        masked = copy.deepcopy(sub).double()
        out["cases"][str(share)] = {
            "bise": ours(sub, x),
            "torch-simplify": judged(sub, lambda m=masks: by_simplify(model, layers, m, x), x, 1e-4),
            "torch-pruning": judged(
                masked, lambda m=masks, w=wide: by_torch_pruning(w, layers, m, as_float64(x)), as_float64(x), 1e-10
            ),
        }
    return out


def ours(sub: Subnetwork, x: Any) -> dict[str, Any]:
    small = sub.shrink(x)
    gap = max(small.shrink_report.differences.values())
    folded = sub.shrink(x, fold_batchnorm=True)
    return {
        "difference": gap,
        "exact": gap <= 1e-10,
        "parameters": parameters(small),
        "parameters_folded": parameters(folded),
    }


def cell(case: dict[str, Any]) -> str:
    if "failed" in case:
        return f"fails ({case['failed'].partition(':')[0]})"
    return f"{case['difference']:.0e}, {case['parameters']:,}" + ("" if case["exact"] else " (not exact)")


def table(rows: dict[str, Any]) -> str:
    """Each entry: relative difference to the masked network, parameters left."""
    lines = ["| model | sites that weights can say | closed | BISE | BISE, folded | torch-simplify | Torch-Pruning |"]
    lines.append("|" + " --- |" * 7)
    for name, entry in rows.items():
        for share, case in entry["cases"].items():
            mine = case["bise"]
            lines.append(
                f"| {name} | {entry['expressible']} of {entry['sites']} | {float(share):.0%} | {cell(mine)} "
                f"| {mine['parameters_folded']:,} | {cell(case['torch-simplify'])} | {cell(case['torch-pruning'])} |"
            )
    cases = [case for entry in rows.values() for case in entry["cases"].values()]
    tools = ("bise", "torch-simplify", "torch-pruning")
    exact = [f"{tool} {sum(case[tool].get('exact', False) for case in cases)}" for tool in tools]
    lines += ["", f"Exact in so many of {len(cases)} cases: {', '.join(exact)}. {kept_more(cases)}"]
    return "\n".join(lines)


def page() -> str:
    return table(read_json(RESULTS)["models"])


def kept_more(cases: list[dict[str, Any]]) -> str:
    """Where another tool is exact too: how often we keep more (torch-simplify folds BatchNorm, so ours is folded)."""
    worse = 0
    for case in cases:
        for tool, key in (("torch-simplify", "parameters_folded"), ("torch-pruning", "parameters")):
            worse += case[tool].get("exact", False) and case["bise"][key] > case[tool]["parameters"]
    return f"Where another tool is exact too, ours keeps more parameters in {worse} cases."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(REFERENCES))
    rows: dict[str, Any] = read_json(RESULTS)["models"] if RESULTS.exists() else {}
    for name in parser.parse_args().only:
        rows[name] = row(name)
        write_json(RESULTS, {"machine": machine(), "seed": 0, "models": rows})
        for share, case in rows[name]["cases"].items():
            print(name, share, case, flush=True)


if __name__ == "__main__":
    main()
