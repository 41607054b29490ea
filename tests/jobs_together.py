"""Jobs that several processes do together, or one alone: `python -m jobs_together JOB FILE`, by torchrun or without."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import torch
from safetensors.torch import save_file
from torch.utils.data import TensorDataset

import bise
from bise.data import Labelled
from bise.engine.processes import rank, together
from bise.methods.rivals.listed import METHODS
from bise.methods.shared.interface import Setting
from conftest import toy, toy_model, trained

SHORT = {"steps": 20, "upsilon": 2, "head_epochs": 3, "early_stop": False, "tau_min": 0.02, "graphs": False}


def double(data: Labelled) -> Labelled:
    """In float64."""
    return Labelled(TensorDataset(data.tensors[0].double()), y=data.y, b=data.b, bias_classes=data.bias_classes)


def found(sub: bise.Subnetwork, audit: Any = None) -> dict[str, torch.Tensor]:
    """What is compared: scores, masks, and an audit's figures by group."""
    out = {f"scores.{name}": scores for name, scores in sub.scores.items()}
    out |= {f"mask.{name}": mask for name, mask in sub.masks.items()}
    if audit is not None:
        out["audit"] = torch.tensor([audit.accuracy, *audit.by_group.values()], dtype=torch.float64)
    return out


def extraction(data: Any = None, val: Any = None, **changes: Any) -> dict[str, torch.Tensor]:
    model = trained(toy_model(), toy()).double()
    val = double(toy(rho=1 / 3, seed=1) if val is None else val)
    config = bise.ExtractConfig(**SHORT | {"batch_size": 61} | changes)
    sub = bise.extract(model, double(toy() if data is None else data), val=val, config=config)
    return found(sub, bise.audit(sub, val))


def some_unknown(data: Labelled) -> Labelled:
    """Every fifth sample lacks its bias label."""
    b = data.b.clone()
    b[::5] = -1
    return Labelled(data.dataset, y=data.y, b=b, bias_classes=data.bias_classes)


def lone_group(seed: int) -> Labelled:
    """One sample alone has y = 0 and b = 1, so that one process alone has a row of its group."""
    data = toy(seed=seed)
    kept = ((data.y != 0) | (data.b != 1)).long()
    kept[((data.y == 0) & (data.b == 1)).nonzero()[0]] = 1
    index = kept.nonzero()[:, 0]
    x = TensorDataset(data.tensors[0][index])
    return Labelled(x, y=data.y[index], b=data.b[index], bias_classes=data.bias_classes)


def two_biases(seed: int) -> Labelled:
    """A second bias beside the first: whether a feature is above its median."""
    data = toy(seed=seed)
    second = (data.tensors[0][:, 7] > 0).long()
    return Labelled(data.dataset, y=data.y, b=torch.stack([data.b, second], 1), bias_classes=(3, 2))


def finetuning() -> dict[str, torch.Tensor]:
    """All weights, BatchNorm's statistics with them."""
    model = trained(toy_model(), toy()).double()
    masks = {"2": torch.arange(16) % 3 > 0}
    config = bise.TrainConfig.finetuning()
    config = dataclasses.replace(config, epochs=3, batch_size=61, graphs=False)
    tuned = bise.finetune(bise.subnetwork(model, masks), double(toy()), val=double(toy(seed=1)), config=config)
    return {name: tensor for name, tensor in tuned.network.state_dict().items() if tensor.is_floating_point()}


def refit() -> dict[str, torch.Tensor]:
    model = trained(toy_model(), toy()).double()
    fitted = bise.refit(bise.subnetwork(model, {"2": torch.arange(16) % 3 > 0}), double(toy()))
    return {name: fitted.network.state_dict()[name] for name in ("5.weight", "5.bias")}


def text() -> dict[str, torch.Tensor]:
    """A small BERT in doubles, on sentences of many lengths."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=16,
        num_labels=2,
    )
    model = BertForSequenceClassification(shape).double()
    tokens = torch.randint(1, 40, (200, 12))
    length = torch.randint(3, 13, (200,))
    mask = (torch.arange(12) < length[:, None]).long()
    y, b = tokens[:, 0] % 2, (tokens[:, 1] < 30).long()
    samples = [({"input_ids": tokens[i], "attention_mask": mask[i]}, int(y[i]), int(b[i])) for i in range(200)]
    config = bise.ExtractConfig(**SHORT | {"batch_size": 31})
    return found(bise.extract(model, samples, config=config))


def methods() -> dict[str, torch.Tensor]:
    """What methods of a comparison make of a vanilla model, or anew: those with a loss of their own, and others."""
    vanilla = trained(toy_model(), toy()).double()
    budget = bise.TrainConfig(epochs=2, batch_size=31, lr=0.05, graphs=False)
    out = {}
    for name in ALIKE:
        method = METHODS[name]
        setting = Setting(train=budget, finetune=budget, device=torch.device("cpu"))
        wide = double if name != "dfa" else lambda data: data  # its heads are of fp32
        train, val = wide(toy(200)), wide(toy(100, rho=1 / 3, seed=1))

        def anew(which: int, single: bool = name == "dfa") -> torch.nn.Module:
            return toy_model(seed=which) if single else toy_model(seed=which).double()

        start = vanilla if method.starts == "vanilla" else anew
        made = method.run(start, train, val, method.config, setting)
        if isinstance(made, bise.Subnetwork):
            out |= {f"{name}.scores.{site}": scores for site, scores in made.scores.items()}
            made = made.bare()
        out |= {f"{name}.{key}": tensor for key, tensor in made.state_dict().items() if tensor.is_floating_point()}
    return out


ALIKE = (
    "erm", "rwg", "group-dro", "jtt", "lff", "end", "bias-balance", "bcon", "di", "lnl", "dfa", "cnc", "ffw",
    "ffw-units", "dfr", "leace", "first-order",
)  # fmt: skip
JOBS = {
    "default": extraction,
    "paper": lambda: extraction(sampler="natural", weights="paper", mi="conflicting", collapse="undo"),
    "uneven": lambda: extraction(sampler="natural", steps=None, batch_size=97),
    "batch norm": lambda: extraction(bn="all"),
    "few rows": lambda: extraction(sampler="natural", steps=None, batch_size=46),  # 600 = 13 · 46 + 2
    "unknown": lambda: extraction(data=some_unknown(toy())),
    "lone group": lambda: extraction(
        data=lone_group(0), val=lone_group(1), sampler="natural", weights="paper", mi="conflicting"
    ),
    "two biases": lambda: extraction(data=two_biases(0), val=two_biases(1)),
    "finetuning": lambda: finetuning(),
    "refit": lambda: refit(),
    "text": lambda: text(),
    "methods": lambda: methods(),
}


def main() -> None:
    torch.set_num_threads(1)
    with together():
        tensors = JOBS[sys.argv[1]]()
        if rank() == 0:
            save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, sys.argv[2])


if __name__ == "__main__":
    main()
