"""No bias labels: let another model fall for the shortcut, and take for b what it says of samples that conflict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.checking import check_choice
from bise.base.errors import BadInput
from bise.base.names import BIAS_SOURCES
from bise.data.core.cells import Cells
from bise.data.core.contract import Labelled, Progress, PseudoLabelled, labels, unloaded
from bise.engine.config import TrainConfig
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.engine.training import fit
from bise.measure.information import entropy, mutual_information
from bise.methods.finetuning import owning
from bise.methods.rivals.listed import METHODS
from bise.methods.shared.interface import Fresh, Setting
from bise.methods.shared.stages import first_model
from bise.network.outputs import device_of, not_finite
from bise.network.twin import duplicate

EPOCHS = 10
"""For how long a source other than "epoch" trains, where nothing else is said."""


def pseudo_bias(
    make_model: Callable[[], nn.Module],
    train: Any,
    *,
    by: str = "epoch",
    epochs: int | None = None,
    config: TrainConfig | None = None,
    on: Any = None,
    progress: Progress | None = None,
) -> PseudoLabelled:
    """`train` with guessed b̃: shortcuts are learned first, and what goes against them conflicts.

    Args:
        make_model: Returns a fresh model of the architecture to be debiased, on the device to use.
        train: A data set or DataLoader that yields (x, y) or (x, y, b).
        by: Where b̃ come from: "epoch", the predictions of a second model that is trained for an epoch; or a method of
            `bise bench` that tells conflicting samples: "jtt", "lwbc", "eiil", "pgi", "debian" or "vcba".
        epochs: For how long is trained; 1 by "epoch", and 10 by a method.
        config: How is trained.
        on: Another data set that gets b̃ by the model that learned from `train`, in place of `train`; by "epoch" alone.
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
    check_choice("by", by, BIAS_SOURCES)
    if by != "epoch" and on is not None:
        raise BadInput(
            f'on=… goes with by="epoch", whose model can be asked about other data; {by} tells of train alone'
        )
    if epochs is None:
        epochs = 1 if by == "epoch" else EPOCHS if config is None else config.epochs
    config = replace(config or TrainConfig(lr=0.01), epochs=epochs)
    train, on = unloaded(train), unloaded(on)
    learned = labels(train, need_bias=False, progress=progress)
    model = _made(make_model)
    if by == "epoch":
        return _labelled(*_by_epoch(model, train, learned, config, on, progress), epochs)
    return _labelled(train, learned, _by_method(by, make_model, device_of(model), train, config, progress), epochs)


def _made(make_model: Callable[[], nn.Module]) -> nn.Module:
    if isinstance(make_model, nn.Module):
        raise BadInput(f"make_model is a {type(make_model).__name__}; give a function that returns a fresh one")
    model = make_model()
    if not isinstance(model, nn.Module):
        raise BadInput(f"make_model returned {type(model).__name__}; it should return a fresh torch module")
    return model


def _by_epoch(
    model: nn.Module, train: Any, learned: Cells, config: TrainConfig, on: Any, progress: Progress | None
) -> tuple[Any, Cells, Tensor]:
    """(the data set, its labels, the predictions b̃ of the second model)."""
    inputs = Inputs(train, device_of(model))
    second = owning(model)
    fit(second, inputs, learned, config, progress=progress, label="learning the shortcut")
    known = learned
    if on is not None:
        train, known = on, labels(on, need_bias=False, progress=progress)
        inputs = Inputs(on, device_of(model))
    logits = infer(second, inputs, progress=progress, label="predicting b").logits
    if (found := not_finite(logits.isfinite().all(1), split="train")) is not None:
        raise BadInput(f"{found[0]}, or lower lr")
    return train, known, logits.argmax(1)


def _by_method(
    by: str,
    make_model: Callable[[], nn.Module],
    device: torch.device,
    train: Any,
    config: TrainConfig,
    progress: Progress | None,
) -> Tensor:
    """b̃ [N] by a listed method, at its defaults."""
    method = METHODS[by]
    assert method.guess is not None
    setting = Setting(train=config, finetune=config, seed=config.seed, device=device, selects=False, progress=progress)
    start: nn.Module | Fresh = _drawn(make_model, config.seed)
    if method.starts == "vanilla":
        start = first_model(start, train, setting, 1)  # one that knows train by heart tells nothing of it
    return method.guess(start, train, method.config, setting)


def _drawn(make_model: Callable[[], nn.Module], seed: int) -> Fresh:
    """Fresh models by the seed and by which one is asked for, the caller's random numbers left as they were."""

    def fresh(which: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + which)
            return duplicate(_made(make_model))

    return fresh


def _labelled(train: Any, known: Cells, guessed: Tensor, epochs: int) -> PseudoLabelled:
    if torch.equal(guessed, known.y):
        raise BadInput(
            f"after {epochs} epochs the second model errs on no training sample, so none would be conflicting;"
            " train it for fewer epochs or with a lower lr"
        )
    return with_guesses(train, known, guessed)


def with_guesses(train: Any, known: Cells, guessed: Tensor) -> PseudoLabelled:
    """The data set with b̃ [N] in place of its own b, which are compared with them."""
    out = PseudoLabelled(
        getattr(train, "dataset", train) if isinstance(train, Labelled) else train,
        y=known.y,
        b=guessed,
        classes=known.classes,
        bias_classes=known.classes,
        aligned=list(range(known.classes)),
        transform=train.transform if isinstance(train, Labelled) else None,
    )
    out.quality = _quality(known, guessed, guessed != known.y)
    return out


def _quality(known: Cells, guessed: Tensor, conflicting: Tensor) -> dict[str, float]:
    """How b̃ compares with the bias labels, where there are any; with several biases, any of them may conflict."""
    share = {"conflicting_share": float(conflicting.double().mean())}
    if not known.known.any() or any(len(torch.unique(known.b[known.known, k])) < 2 for k in range(known.biases)):
        return share
    truth = known.conflicting.any(1) & known.known
    both = float((truth & conflicting).sum())
    found = share | {
        "recall": both / max(1, int(truth.sum())),
        "precision": both / max(1, int((conflicting & known.known).sum())),
    }
    if known.biases > 1:
        return found
    b = known.b[known.known, 0]
    return found | {"information": mutual_information(guessed[known.known], b) / entropy(b)}
