"""Train the weights that remain, with the mask fixed; without a mask, the dense control."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bise.data.core.contract import Log, Progress, labels, unloaded
from bise.engine.checkpoints import EVERY, Checkpoint, key_of
from bise.engine.checks import check_kinds, check_outputs
from bise.engine.config import TrainConfig
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.engine.precision import resolved
from bise.engine.training import fit
from bise.engine.validation import Validation, identity
from bise.network.outputs import device_of
from bise.network.subnetwork import Subnetwork
from bise.network.twin import fingerprint, named_tensors, was_frozen


def finetune(
    model: Subnetwork | nn.Module,
    train: Any,
    *,
    val: Any = None,
    config: TrainConfig | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    log: Log | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = EVERY,
) -> Subnetwork:
    """Finetune a subnetwork with its mask and so its size fixed, or a dense model by the same call, as the control.

    What is handed in is not changed. Parameters that the model has frozen (`requires_grad` is False) stay as they
    are, unless all of them are.

    Args:
        model: A subnetwork, or a model without gates.
        train: A data set or DataLoader that yields (x, y, b).
        val: An unbiased one, which chooses the epoch that is kept; without it the last one is.
        config: The settings. The default, `TrainConfig.finetuning()`, draws the cells evenly; `TrainConfig.paper()`
            weighs the cross-entropy as the paper does.
        workers: Processes that read data that are not in memory; None is up to four for picture files.
        progress: Called with (label, done, total); `bise.Bars()` shows bars.
        log: Called with a row of figures for each epoch.
        checkpoint: A file that keeps the state, from which the same call goes on.
        checkpoint_every: Seconds from one state to the next.

    Returns:
        A subnetwork that owns its weights.

    Raises:
        BadInput: Data, settings or weights can't be worked with, or a loss is not finite.

    Example:
        >>> tuned = bise.finetune(sub, train, val=val, config=bise.TrainConfig.finetuning(epochs=1))
        >>> tuned.units == sub.units
        True
    """
    config = TrainConfig.finetuning() if config is None else config
    check_kinds(model, config, TrainConfig)
    started = time.perf_counter()
    train, val = unloaded(train), unloaded(val)
    needed = config.sampler == "balanced" or config.weights != "none" or config.margin > 0
    cells = labels(train, progress=progress, need_bias=needed)
    if needed:
        cells.check_trainable()
    inputs = Inputs(train, device_of(model), workers=workers)
    if isinstance(model, Subnetwork):
        model.place(inputs.example())
    tuned = owning(model)
    check_outputs(infer(tuned, inputs, index=torch.arange(min(2, len(cells)))).logits, cells, split="train")
    validation = None if val is None else Validation(val, cells, inputs, progress)
    kept = None
    if checkpoint is not None:
        key = key_of(asdict(config), _whose(tuned), *identity(train, cells, val, validation))
        kept = Checkpoint(checkpoint, key=key, every=checkpoint_every)
    if validation is not None and (kept is None or not kept.path.exists()):
        validation(tuned, progress)  # what it refuses is refused before there is work
    history = fit(
        tuned,
        inputs,
        cells,
        config,
        validation=validation,
        progress=progress,
        log=log,
        label="finetuning",
        checkpoint=kept,
    )
    tuned.record = {
        "job": "finetune",
        "config": asdict(config),
        "precision": resolved(config.precision, tuned),
        "selection": {"kind": "last" if val is None else "best", "on": None if val is None else "val"},
        "history": history,
        "seconds": time.perf_counter() - started,
    }
    return tuned


def _whose(tuned: Subnetwork) -> list[Any]:
    """What a checkpoint of this finetuning belongs to: the weights, the masks and what is frozen."""
    return [
        fingerprint(tuned.bare()),
        {name: mask.tolist() for name, mask in tuned.masks.items()},
        [name for name, parameter in tuned.network.named_parameters() if was_frozen(parameter)],
    ]


def owning(model: Subnetwork | nn.Module) -> Subnetwork:
    """The same network under the same mask with weights of its own; a plain model has no gate at all."""
    if not isinstance(model, Subnetwork):
        return Subnetwork(model, (), owned=frozenset(named_tensors(model)))
    names = frozenset(named_tensors(model.bare()))
    return Subnetwork(
        model.bare(),
        model.sites,
        scores=model.scores,
        masks=model.masks,
        bottleneck=model.bottleneck,
        owned=names,
    )
