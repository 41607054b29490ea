"""Callbacks for the training loops of transformers and Lightning; each library is imported where it is asked for."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bise.base.errors import BadInput
from bise.data.core.cells import Cells
from bise.data.core.contract import Alignment, Log
from bise.extraction.config import ExtractConfig


def trainer_callback(
    data: Any,
    *,
    aligned: Alignment | Cells | None = None,
    every: int = 1,
    probe: bool = False,
    network: str | None = None,
    log: Log | None = None,
    train: Any = None,
    val: Any = None,
    config: ExtractConfig | None = None,
    save: str | Path | None = None,
) -> Any:
    """A callback for transformers' `Trainer` that audits the model after each epoch, and can extract at the end.

    Training goes on as it would without: neither weights nor random numbers change. The figures also go to the
    trainer's `state.log_history`. Of several processes the first one audits, on the whole model; models whose weights
    are split over processes (FSDP, ZeRO-3) can't be audited so.

    Args:
        data: What the audits are about: a data set or DataLoader that yields (x, y, b). A small one costs little.
        aligned: Which b goes with which y: {y: b}, or the cells of the training set.
        every: Epochs from one audit to the next.
        probe: Whether a linear probe reads the bias from the bottleneck each time, which takes longest.
        network: The part of the model that is the classifier, by its name; None is the model itself.
        log: A function that takes a row of figures, such as `bise.to_mlflow()`.
        train: Data to extract by when training ends, which yield (x, y, b); None extracts nothing.
        val: Unbiased data that choose the mask.
        config: The settings of the extraction.
        save: A folder for the subnetwork.

    Returns:
        A `transformers.TrainerCallback` with the attributes `.audits`, `.rows` and, at the end, `.subnetwork`.

    Raises:
        BadInput: transformers is not installed, or an argument can't be worked with.

    Example:
        >>> watch = bise.trainer_callback(test, aligned=bise.data.labels(train), train=train)
        >>> watch.audits, watch.subnetwork  # Trainer(..., callbacks=[watch]) fills both
        ([], None)
    """
    if find_spec("transformers") is None or find_spec("accelerate") is None:
        raise BadInput("transformers' Trainer needs transformers and accelerate; pip install 'bise[loops]'")
    from bise.jobs.loops.trainer import TrainerAudits

    return TrainerAudits(
        data, aligned=aligned, every=every, probe=probe, network=network, log=log, train=train, val=val, config=config,
        save=save,
    )  # fmt: skip


def lightning_callback(
    data: Any,
    *,
    aligned: Alignment | Cells | None = None,
    every: int = 1,
    probe: bool = False,
    network: str | None = None,
    log: Log | None = None,
    train: Any = None,
    val: Any = None,
    config: ExtractConfig | None = None,
    save: str | Path | None = None,
) -> Any:
    """A callback for Lightning's `Trainer` that audits the module after each epoch, and can extract at the end.

    Training goes on as it would without: neither weights nor random numbers change. The figures are logged as
    "audit/worst_group" and so on, so that loggers show them and `ModelCheckpoint(monitor=…)` goes by them.

    Args:
        data: What the audits are about: a data set or DataLoader that yields (x, y, b). A small one costs little.
        aligned: Which b goes with which y: {y: b}, or the cells of the training set.
        every: Epochs from one audit to the next.
        probe: Whether a linear probe reads the bias from the bottleneck each time, which takes longest.
        network: The attribute of the module that is the classifier; None is the module itself, whose `forward` then
            takes x and returns logits.
        log: A function that takes a row of figures, such as `bise.to_mlflow()`.
        train: Data to extract by when training ends, which yield (x, y, b); None extracts nothing.
        val: Unbiased data that choose the mask.
        config: The settings of the extraction.
        save: A folder for the subnetwork.

    Returns:
        A callback of `lightning.pytorch`, or of `pytorch_lightning` where that is what you have imported, with the
        attributes `.audits`, `.rows` and, at the end, `.subnetwork`.

    Raises:
        BadInput: Lightning is not installed, or an argument can't be worked with.

    Example:
        >>> watch = bise.lightning_callback(test, aligned=bise.data.labels(train), network="net")
        >>> watch.audits  # Trainer(..., callbacks=[watch]) fills it
        []
    """
    if not (find_spec("lightning") or find_spec("pytorch_lightning")):
        raise BadInput("Lightning is not installed; install it: pip install 'bise[loops]'")
    from bise.jobs.loops.lightning import callback_class

    made = callback_class()(
        data, aligned=aligned, every=every, probe=probe, network=network, log=log, train=train, val=val, config=config,
        save=save,
    )  # fmt: skip
    return made
