"""A logger is one function that takes a row of figures; these hand rows to MLflow, W&B and TensorBoard."""

from __future__ import annotations

import math
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bise.base.errors import BadInput
from bise.data.core.contract import Log
from bise.runs.events import append_events, numbers_of
from bise.runs.log import check_tensorboard

FOREIGN = re.compile(r"[^\w./: -]")
"""What the names of MLflow's metrics may not have."""


def to_mlflow(run_id: str | None = None, *, prefix: str = "bise/") -> Log:
    """A logger that writes each row's numbers as metrics of an MLflow run.

    Args:
        run_id: The run; None is the active one, which MLflow starts where there is none.
        prefix: What the metrics' names begin with. Characters that MLflow doesn't take become "_".

    Returns:
        A function of a row {name: figure}, for `log=` of `bise.extract`, `bise.finetune` and the callbacks. The row's
        "epoch" is the step.

    Raises:
        BadInput: MLflow is not installed.

    Example:
        >>> log = bise.to_mlflow()  # doctest: +SKIP
        >>> bise.extract(model, train, val=val, log=log)  # doctest: +SKIP
    """
    if find_spec("mlflow") is None:
        raise BadInput("MLflow is not installed; install the extra: pip install 'bise[mlflow]'")
    import mlflow

    def write(row: dict[str, Any]) -> None:
        figures = {FOREIGN.sub("_", name): value for name, value in _told(row, prefix).items()}
        mlflow.log_metrics(figures, step=int(row.get("epoch", 0)), run_id=run_id)

    return write


def to_wandb(run: Any = None, *, prefix: str = "bise/") -> Log:
    """A logger that hands each row's numbers to a run of Weights & Biases.

    Args:
        run: What `wandb.init` returned; None is the run that is under way.
        prefix: What the names begin with.

    Returns:
        A function of a row {name: figure}, for `log=` of `bise.extract`, `bise.finetune` and the callbacks. The epoch
        is a figure among the others, since the step belongs to your loop.

    Raises:
        BadInput: wandb is not installed, or no run is under way.

    Example:
        >>> log = bise.to_wandb(wandb.init(project="hair", mode="offline"))  # doctest: +SKIP
        >>> bise.extract(model, train, val=val, log=log)  # doctest: +SKIP
    """
    if run is None:
        if find_spec("wandb") is None:
            raise BadInput("wandb is not installed; install it: pip install wandb")
        import wandb

        run = wandb.run
    if run is None:
        raise BadInput("no run of W&B is under way; call wandb.init() before, or give to_wandb what it returns")

    def write(row: dict[str, Any]) -> None:
        epoch = {f"{prefix}epoch": row["epoch"]} if "epoch" in row else {}
        run.log(_told(row, prefix) | epoch)

    return write


def to_tensorboard(folder: str | Path) -> Log:
    """A logger that writes each row's numbers to TensorBoard's event files.

    Args:
        folder: Where they are written; `tensorboard --logdir` takes it or a folder above.

    Returns:
        A function of a row {name: figure}, for `log=` of `bise.extract`, `bise.finetune` and the callbacks. The row's
        "epoch" is the step.

    Raises:
        BadInput: TensorBoard is not installed.

    Example:
        >>> log = bise.to_tensorboard("events")
        >>> sub = bise.extract(model, train, config=config, log=log)
    """
    check_tensorboard()
    return append_events(Path(folder))


def _told(row: dict[str, Any], prefix: str) -> dict[str, float]:
    """The figures of a row that are numbers indeed, named after the job that they are of."""
    job = f"{row['job']}/" if "job" in row else ""
    return {f"{prefix}{job}{name}": value for name, value in numbers_of(row).items() if math.isfinite(value)}
