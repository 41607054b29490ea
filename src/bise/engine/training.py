"""The loop in which weights are trained: vanilla models, finetuned subnetworks, models for pseudo labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from bise.config import TrainConfig
from bise.data.cells import Cells
from bise.data.contract import Log, Progress
from bise.data.sampling import Sampler, sample_weights, strata
from bise.engine.checkpoints import (
    Checkpoint,
    global_random_state,
    named,
    optimizer_tensors,
    restore_global_random_state,
    restore_optimizer,
)
from bise.engine.convolutions import large_kernels
from bise.engine.inputs import Inputs
from bise.engine.precision import autocast, resolved
from bise.engine.steps import Steps
from bise.engine.validation import Validation
from bise.errors import BadInput
from bise.gates import Subnetwork
from bise.models.outputs import call, class_logits
from bise.objective import weighted_cross_entropy
from bise.twin import named_tensors


def fit(
    sub: Subnetwork,
    inputs: Inputs,
    cells: Cells,
    config: TrainConfig,
    *,
    validation: Validation | None = None,
    progress: Progress | None = None,
    log: Log | None = None,
    label: str = "training",
    checkpoint: Checkpoint | None = None,
) -> list[dict[str, Any]]:
    """Train what `sub` owns, in place, and end with its best epoch on `validation`, or its last; gives the history.

    With `checkpoint` it goes on from there where one exists, and ends as it would have without the stop.
    """
    parameters = [p.requires_grad_() for name, p in sub.network.named_parameters() if name in sub.owned]
    if not parameters:
        raise BadInput("there is nothing to train: the network owns no parameter")
    inputs.prefer_channels_last(lambda x: call(sub.eval(), x))
    rate = torch.tensor(config.lr, device=inputs.device) if inputs.device.type == "cuda" else None
    optimizer = _optimizer(parameters, config, rate)
    precision = resolved(config.precision, sub.network)
    generator = torch.Generator().manual_seed(config.seed)
    sampler = Sampler(len(cells), strata(cells, config.balance) if config.sampler == "balanced" else None)
    weights = sample_weights(cells, config.weights, config.balance)
    weights = None if weights is None else weights.float().to(inputs.device)
    y = cells.y.to(inputs.device)
    network: Any = torch.compile(sub.network) if config.compile and inputs.device.type == "cuda" else sub

    def update(x: Any, index: Tensor) -> Tensor:
        with autocast(precision, inputs.device):
            logits = class_logits(call(network, x))
        loss = weighted_cross_entropy(logits, y[index], None if weights is None else weights[index])
        # not backward(): what accumulates gradients remembers a stream, and a recording has its own
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            same = gradient is None or gradient.stride() == parameter.stride()
            parameter.grad = gradient if same else torch.empty_like(parameter).copy_(gradient)
        optimizer.step()
        return loss.detach().unsqueeze(0)

    def changing() -> Iterator[Tensor]:
        everything = named_tensors(sub.network)
        yield from (everything[name] for name in sub.owned)
        for state in optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, Tensor))

    steps = Steps(update, inputs, config.batch_size, state=changing, graphs=config.graphs)
    history: list[dict[str, Any]] = []
    best: tuple[float, dict[str, Tensor]] | None = None
    cuda = [inputs.device] if inputs.device.type == "cuda" else []
    # dropout draws from the global generators, which stay the caller's
    with torch.random.fork_rng(devices=cuda), large_kernels(sub.network):
        torch.manual_seed(config.seed)
        if checkpoint is not None and (found := checkpoint.load()) is not None:
            tensors, state = found
            _put(sub, named(tensors, "own."))
            restore_optimizer(optimizer, tensors)
            generator.set_state(tensors["random.own"])
            restore_global_random_state(tensors, inputs.device)
            history = state["history"]
            best = None if state["best"] is None else (state["best"], named(tensors, "best."))
            if log is not None:
                for row in history:
                    log(row)
        for epoch in range(len(history) + 1, config.epochs + 1):
            _set_rate(optimizer, config.lr * _factor(config, epoch - 1))
            order = sampler.draw(config.steps, config.batch_size, generator)
            sub.train()
            row = {"epoch": epoch, "loss": float(steps.run(order, generator).mean())}
            if not math.isfinite(row["loss"]):
                raise BadInput(f"the loss became non-finite in epoch {epoch}; lower lr (now {config.lr:g})")
            if validation is not None:
                row["val"] = validation(sub, progress)
                if best is None or row["val"][config.selection] > best[0]:
                    best = (row["val"][config.selection], _owned(sub))
            history.append(row)
            if log is not None:
                log(row)
            if progress is not None:
                progress(label, epoch, config.epochs)
            if checkpoint is not None and (checkpoint.due or epoch == config.epochs):
                tensors = {f"own.{name}": tensor for name, tensor in _owned(sub).items()}
                tensors |= optimizer_tensors(optimizer) | global_random_state(inputs.device)
                tensors |= {f"best.{name}": tensor for name, tensor in (best[1] if best else {}).items()}
                tensors["random.own"] = generator.get_state()
                checkpoint.save(tensors, {"history": history, "best": best[0] if best else None})
    if best is not None:
        _put(sub, best[1])
    for parameter in parameters:
        parameter.requires_grad_(False)
        parameter.grad = None
    sub.eval()
    return history


def _put(sub: Subnetwork, tensors: dict[str, Tensor]) -> None:
    everything = named_tensors(sub.network)
    for name, tensor in tensors.items():
        everything[name].detach().copy_(tensor)


def _owned(sub: Subnetwork) -> dict[str, Tensor]:
    everything = named_tensors(sub.network)
    return {name: everything[name].detach().clone() for name in sub.owned}


def _optimizer(parameters: list[Any], config: TrainConfig, rate: Tensor | None) -> torch.optim.Optimizer:
    """With `rate`, a tensor on the GPU, the learning rate can change under a recorded step."""
    lr: float | Tensor = config.lr if rate is None else rate
    fused = None if rate is None else True
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, lr=lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=fused
        )
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(parameters, lr=lr, weight_decay=config.weight_decay, fused=fused, capturable=rate is not None)


def _set_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value


def _factor(config: TrainConfig, epoch: int) -> float:
    if config.schedule == "cosine":
        return (1 + math.cos(math.pi * epoch / config.epochs)) / 2
    if config.schedule == "linear":
        return 1 - epoch / config.epochs
    if config.schedule == "steps":
        return float(0.1 ** sum(epoch >= milestone for milestone in config.milestones))
    return 1.0
