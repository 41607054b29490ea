"""The stages that methods are made of: train a network or a learner, read off features, find the last layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from bise.base.errors import BadInput
from bise.data.core.cells import Cells
from bise.data.core.contract import Labelled, labels
from bise.engine.checks import check_outputs
from bise.engine.config import TrainConfig
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.engine.learners import Draws
from bise.engine.training import fit
from bise.engine.validation import Judge, Validation
from bise.methods.shared.interface import Setting, Start, fresh
from bise.network.placement import one_bottleneck, place
from bise.network.subnetwork import Subnetwork
from bise.network.twin import named_tensors


def train_stage(
    network: nn.Module,
    train: Any,
    val: Any,
    setting: Setting,
    *,
    config: TrainConfig | None = None,
    part: str = "train",
    sampler: Draws | None = None,
    select: bool = True,
    judge: Judge | None = None,
    need_bias: bool = True,
    **changes: Any,
) -> Any:
    """A copy of the network, or of the learner, trained on `train` by the setting's budget, or by another.

    The best epoch on val is taken where the setting selects, and this stage does; else the last one. A `judge` says
    otherwise which is the best.
    """
    budget = replace(config or setting.train, seed=setting.seed, selection=setting.selection, **changes)
    cells = labels(train, need_bias=need_bias)
    inputs = Inputs(train, setting.device)
    judged = setting.judge(val) if select else None
    validation = judge if judge is not None or judged is None else Validation(judged, cells, inputs)
    trained = Subnetwork(network, (), owned=frozenset(named_tensors(network)))
    history = fit(
        trained,
        inputs,
        cells,
        budget,
        validation=validation,
        progress=setting.progress,
        label=part,
        checkpoint=setting.checkpoint(part),
        sampler=sampler,
    )
    each = len(cells) if budget.steps is None else budget.steps * budget.batch_size
    setting.tally.samples += each * len(history)
    return trained.network


def first_model(start: Start, train: Any, setting: Setting, epochs: int) -> nn.Module:
    """A fresh model, trained plainly and briefly at a constant rate, so that it goes by the shortcut."""
    short: dict[str, Any] = {"epochs": epochs, "schedule": "constant", "select": False}
    return train_stage(fresh(start, setting.device), train, None, setting, part="first", need_bias=False, **short)


def no_errors(epochs: int, so: str, field: str = "first_epochs") -> BadInput:
    """What is said where a first model errs nowhere, so that it tells nothing about the bias."""
    return BadInput(
        f"after {epochs} epochs the first model errs on no training sample, so that {so}; give fewer {field}"
    )


def last_linear(model: nn.Module, train: Any, setting: Setting) -> tuple[str, nn.Linear]:
    """(name, layer) of the linear layer that makes the logits; a model without one is refused."""
    example = Inputs(train, setting.device).example()
    name = one_bottleneck(place(model, example, gated=False), model, None)
    layer = model.get_submodule(name)
    if not isinstance(layer, nn.Linear):
        raise BadInput(f"{name} is a {type(layer).__name__}; this method needs a linear layer there")
    return name, layer


def outputs_of(model: nn.Module, data: Any, setting: Setting, bottleneck: str | None = None) -> tuple[Tensor, Tensor]:
    """(logits [N, C], bottleneck z [N, d]) of a whole data set, in its order, on the CPU; z is empty without one."""
    network = model if isinstance(model, Subnetwork) else Subnetwork(model, ())
    found = infer(network, Inputs(data, setting.device), features=bottleneck, progress=setting.progress)
    check_outputs(found.logits, labels(data, need_bias=False))
    return found.logits, torch.empty(0) if found.z is None else found.z.cpu()


def features_as_data(z: Tensor, data: Any) -> Labelled:
    """The same samples and labels with features z [N, d] for inputs."""
    cells = labels(data, need_bias=False)
    known: dict[str, Any] = {"classes": cells.classes, "bias_classes": cells.bias_classes, "groups": cells.groups}
    return Labelled(TensorDataset(z), y=cells.y, b=cells.b, aligned=getattr(data, "aligned", None), **known)


def single_bias(cells: Cells, name: str) -> Tensor:
    """b [N] of the only bias; a method that knows of one alone refuses several, and samples without a label."""
    if cells.biases != 1:
        raise BadInput(f"{name} knows of one bias, and these data have {cells.biases}; leave the others out")
    if cells.unknown:
        raise BadInput(f"{cells.unknown} samples of train lack a bias label, which {name} can't do without")
    return cells.b[:, 0]


@contextmanager
def drawn_by(seed: int) -> Iterator[None]:
    """While open, new layers get their weights by `seed`, and the caller's random numbers stay as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
