"""No bias labels: let a second model, trained briefly, fall for the shortcut, and take its predictions for b."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput
from bise.data.core.cells import Cells
from bise.data.core.contract import Labelled, Progress, PseudoLabelled, labels, unloaded
from bise.engine.config import TrainConfig
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.engine.training import fit
from bise.measure.information import entropy, mutual_information
from bise.methods.finetuning import owning
from bise.network.outputs import device_of, not_finite


def pseudo_bias(
    make_model: Callable[[], nn.Module],
    train: Any,
    *,
    epochs: int = 1,
    config: TrainConfig | None = None,
    on: Any = None,
    progress: Progress | None = None,
) -> PseudoLabelled:
    """`train` with b̃ = ŷ of a second model, trained for `epochs`: shortcuts are learned first.

    Args:
        make_model: Returns a fresh model of the architecture to be debiased, on the device to use.
        train: A data set or DataLoader that yields (x, y) or (x, y, b).
        epochs: For how long the second model is trained.
        config: How it is trained.
        on: Another data set that gets b̃ by the model that learned from `train`, in place of `train`.
        progress: Called with (label, done, total); `bise.Bars()` shows bars.

    Returns:
        The data set with b̃. Where it has bias labels of its own, `.quality` compares b̃ with them: the information
        they share as a part of H(b), and how many of the truly conflicting samples b̃ marks as such (recall), out of
        all that it marks (precision).

    Raises:
        BadInput: Data or settings can't be worked with.

    Example:
        >>> guessed = bise.pseudo_bias(make_model, train)
        >>> guessed.b.shape == train.y.shape
        True
    """
    config = config or TrainConfig(epochs=epochs, lr=0.01)
    train, on = unloaded(train), unloaded(on)
    learned = labels(train, need_bias=False, progress=progress)
    if isinstance(make_model, nn.Module):
        raise BadInput(f"make_model is a {type(make_model).__name__}; give a function that returns a fresh one")
    model = make_model()
    if not isinstance(model, nn.Module):
        raise BadInput(f"make_model returned {type(model).__name__}; it should return a fresh torch module")
    inputs = Inputs(train, device_of(model))
    second = owning(model)
    fit(second, inputs, learned, replace(config, epochs=epochs), progress=progress, label="learning the shortcut")
    known = learned
    if on is not None:
        train, known = on, labels(on, need_bias=False, progress=progress)
        inputs = Inputs(on, device_of(model))
    logits = infer(second, inputs, progress=progress, label="predicting b").logits
    if (found := not_finite(logits.isfinite().all(1), split="train")) is not None:
        raise BadInput(f"{found[0]}, or lower lr")
    predicted = logits.argmax(1)
    conflicting = predicted != known.y
    if not conflicting.any():
        raise BadInput(
            f"after {epochs} epochs the second model errs on no training sample, so none would be conflicting;"
            " train it for fewer epochs or with a lower lr"
        )
    out = PseudoLabelled(
        getattr(train, "dataset", train) if isinstance(train, Labelled) else train,
        y=known.y,
        b=predicted,
        classes=known.classes,
        bias_classes=known.classes,
        aligned=list(range(known.classes)),
        transform=train.transform if isinstance(train, Labelled) else None,
    )
    out.quality = _quality(known, predicted, conflicting)
    return out


def _quality(known: Cells, predicted: Tensor, conflicting: Tensor) -> dict[str, float]:
    """How b̃ compares with the bias labels, where there are any."""
    share = {"conflicting_share": float(conflicting.double().mean())}
    if known.biases != 1 or len(torch.unique(known.b[known.known])) < 2:
        return share
    truth = known.conflicting[:, 0]
    both = float((truth & conflicting).sum())
    b = known.b[known.known, 0]
    return share | {
        "information": mutual_information(predicted[known.known], b) / entropy(b),
        "recall": both / max(1, int(truth.sum())),
        "precision": both / max(1, int((conflicting & known.known).sum())),
    }
