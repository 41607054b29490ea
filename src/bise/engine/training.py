"""The loop in which weights are trained: vanilla models, finetuned ones, rivals by their own losses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from bise.base.errors import BadInput
from bise.data.core.cells import Cells
from bise.data.core.contract import Log, Progress
from bise.data.core.sampling import Sampler, sample_weights, strata
from bise.engine.checkpoints import (
    Checkpoint,
    generator_states,
    global_random_state,
    optimizer_tensors,
    restore_generators,
    restore_global_random_state,
    restore_optimizer,
    under_prefix,
)
from bise.engine.compiling import compiled
from bise.engine.config import TrainConfig
from bise.engine.convolutions import large_kernels
from bise.engine.inputs import Inputs
from bise.engine.learners import Draws, Learner
from bise.engine.losses import cross_entropies, margins, weighted_mean
from bise.engine.precision import autocast, resolved
from bise.engine.processes import batch_norm_together, count, own_rows, rank, total
from bise.engine.steps import Steps, check_figures
from bise.engine.validation import Judge
from bise.network.outputs import call, class_logits
from bise.network.subnetwork import Subnetwork
from bise.network.twin import named_tensors, was_frozen


def fit(
    sub: Subnetwork,
    inputs: Inputs,
    cells: Cells,
    config: TrainConfig,
    *,
    validation: Judge | None = None,
    progress: Progress | None = None,
    log: Log | None = None,
    label: str = "training",
    checkpoint: Checkpoint | None = None,
    sampler: Draws | None = None,
) -> list[dict[str, Any]]:
    """Train what `sub` owns, in place, and end with its best epoch on `validation`, or its last; gives the history.

    A `Learner` in `sub` has a loss of its own; any other network learns by the cross-entropy that `config` describes.
    A `sampler` draws in place of the configuration's. With `checkpoint` it goes on from there where one exists, and
    ends as it would have without the stop.
    """
    training = _Training(sub, inputs, cells, config, validation, checkpoint, sampler)
    cuda = [inputs.device] if inputs.device.type == "cuda" else []
    compiling = compiled(sub.network) if config.compile and cuda and count() == 1 else nullcontext(sub)
    # dropout draws from the global generators, which stay the caller's
    shared = batch_norm_together(sub.network)
    with torch.random.fork_rng(devices=cuda), large_kernels(sub.network), shared, compiling as training.network:
        torch.manual_seed(config.seed)
        training.resume()
        if log is not None:
            for row in training.history:
                log(row)
        for epoch in range(len(training.history) + 1, config.epochs + 1):
            if count() > 1:  # else dropout would leave out the same units in every process
                torch.manual_seed(hash((config.seed, epoch, rank())) % 2**63)
            row = training.epoch(epoch, progress)
            if log is not None:
                log(row)
            if progress is not None:
                progress(label, epoch, config.epochs)
            if checkpoint is not None and checkpoint.due and epoch < config.epochs:
                training.save()
    training.end()
    return training.history


class _Training:
    """The state of one training: weights, optimizer, random numbers, and the best epoch so far."""

    def __init__(
        self,
        sub: Subnetwork,
        inputs: Inputs,
        cells: Cells,
        config: TrainConfig,
        validation: Judge | None,
        checkpoint: Checkpoint | None,
        sampler: Draws | None = None,
    ) -> None:
        self.sub, self.inputs, self.config, self.validation, self.checkpoint = (
            sub,
            inputs,
            config,
            validation,
            checkpoint,
        )
        owned = [p for name, p in sub.network.named_parameters() if name in sub.owned]
        if not owned:
            raise BadInput("there is nothing to train: the network owns no parameter")
        free = [p for p in owned if not was_frozen(p)]
        # a model that is frozen as a whole was made ready for use, not for training parts of it
        self.parameters = [p.requires_grad_() for p in free or owned]
        inputs.prefer_channels_last(lambda x: call(sub.eval(), x))
        inputs.jitter_by(config.jitter)
        rate = (
            torch.tensor(config.lr, dtype=torch.float32, device=inputs.device) if inputs.device.type == "cuda" else None
        )
        self.optimizer = _optimizer(self.parameters, config, rate)
        self.precision = resolved(config.precision, sub.network)
        self.generators = {"own": torch.Generator().manual_seed(config.seed), "loader": inputs.seeds}
        if validation is not None:
            self.generators["val"] = validation.inputs.seeds
        even = strata(cells, config.balance) if config.sampler == "balanced" else None
        self.sampler: Draws = Sampler(len(cells), even) if sampler is None else sampler
        self.learner = sub.network if isinstance(sub.network, Learner) else None
        if self.learner is not None:
            self.learner.precision = self.precision
        self._weigh(cells)
        self.network: Any = sub
        """The same, or compiled."""
        self.steps = Steps(
            self._update,
            inputs,
            config.batch_size,
            state=self._changing,
            graphs=config.graphs,
            shared=self.learner is None,
        )
        self.history: list[dict[str, Any]] = []
        self.best: tuple[float, dict[str, Tensor]] | None = None
        self.began = generator_states(self.generators)
        """The generators at the start of this epoch, from which its order is drawn."""
        self.concluded = False
        """Whether the checkpoint held the result already."""
        self.done: Tensor | None = None
        """The figures of this epoch's steps that were taken before a stop."""

    def _weigh(self, cells: Cells) -> None:
        """Targets, and what the cross-entropy weighs samples and raises logits by."""
        config, device = self.config, self.inputs.device
        weights = sample_weights(cells, config.weights, config.balance)
        self.weights = None if weights is None else weights.float().to(device)
        self.y = cells.y.to(device)
        self.priors: list[Tensor] = []
        if config.margin:
            with torch.no_grad():
                classes = class_logits(call(self.sub.eval(), self.inputs.example())).shape[1]
            self.b = cells.b.to(device)
            self.priors = margins(cells, config.margin, classes, device)

    def epoch(self, epoch: int, progress: Progress | None) -> dict[str, Any]:
        """One epoch of steps, and its validation; returns its row of the history."""
        c, generator = self.config, self.generators["own"]
        _set_rate(self.optimizer, c.lr * _factor(c, epoch - 1))
        if self.learner is not None:
            self.learner.begin(epoch, c.epochs)
        order = self.sampler.draw(c.steps, c.batch_size, generator)
        advice = f"check the inputs' scale, or lower lr (now {c.lr:g})"

        def after(figures: list[Tensor], left: int) -> None:
            if self.inputs.device.type == "cpu":  # a GPU would be waited for
                first = len(figures) - 1
                check_figures(figures[-1][None], order, c.batch_size, epoch=epoch, first=first, advice=advice)
            if self.checkpoint is not None and left and self.checkpoint.due:
                self.save(figures)

        self.sub.train()
        figures = self.steps.run(order, generator, done=self.done, after=after)
        check_figures(figures, order, c.batch_size, epoch=epoch, advice=advice)
        self.done = None
        row: dict[str, Any] = {"epoch": epoch, "loss": float(figures[:, 0].mean())}
        if self.validation is not None:
            row["val"] = self.validation(self.sub, progress)
            if self.best is None or row["val"][c.selection] > self.best[0]:
                self.best = (row["val"][c.selection], _owned(self.sub))
        self.history.append(row)
        self.began = generator_states(self.generators)
        return row

    def _update(self, x: Any, index: Tensor) -> Tensor:
        """One step of the optimizer; returns the loss and the size of its gradient."""
        # a learner's loss is one over the whole batch, in every process alike
        loss = self._cross_entropy(x, index) if self.learner is None else self.learner.loss(x, index) / count()
        # not backward(): what accumulates gradients remembers a stream, and a recording has its own
        gradients = list(torch.autograd.grad(loss, self.parameters, allow_unused=True))
        if count() > 1:
            reached = [k for k, gradient in enumerate(gradients) if gradient is not None]
            loss, *sums = total(loss, *(gradients[k] for k in reached))
            for k, gradient in zip(reached, sums, strict=True):
                gradients[k] = gradient
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            same = gradient is None or gradient.stride() == parameter.stride()
            parameter.grad = gradient if same else torch.empty_like(parameter).copy_(gradient)
        size = get_total_norm([gradient for gradient in gradients if gradient is not None])
        self.optimizer.step()
        return torch.stack([loss.detach(), size.to(loss.dtype)])

    def _cross_entropy(self, x: Any, index: Tensor) -> Tensor:
        """The loss of a network that brings none: this process's part of the batch's."""
        with autocast(self.precision, self.inputs.device):
            logits = class_logits(call(self.network, x))
        weights = None if self.weights is None else self.weights[index]
        b = self.b[index] if self.priors else None
        each = cross_entropies(own_rows(logits, index), self.y[index], b=b, priors=self.priors)
        samples = None if count() == 1 else total(each.new_tensor(len(index)))[0]
        return weighted_mean(each, weights, samples)

    def _changing(self) -> Iterator[Tensor]:
        """Every tensor that a step changes."""
        everything = named_tensors(self.sub.network)
        yield from (everything[name] for name in self.sub.owned)
        for state in self.optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, Tensor))

    # stopping and going on

    def save(self, figures: list[Tensor] | None = None) -> None:
        """Everything that the rest depends on; `figures` are those of an epoch's steps so far, in the middle of it."""
        assert self.checkpoint is not None
        tensors = {f"own.{name}": tensor for name, tensor in _owned(self.sub).items()}
        tensors |= optimizer_tensors(self.optimizer) | global_random_state(self.inputs.device) | self.began
        tensors |= {f"best.{name}": tensor for name, tensor in (self.best[1] if self.best else {}).items()}
        if figures:
            tensors["done"] = torch.stack(figures)
        self.checkpoint.save(tensors, {"history": self.history, "best": self.best[0] if self.best else None})

    def resume(self) -> None:
        """Go on from the checkpoint, where there is one."""
        found = None if self.checkpoint is None else self.checkpoint.load()
        if found is None:
            return
        tensors, state = found
        _put(self.sub, under_prefix(tensors, "own."))
        self.history = state["history"]
        if len(self.history) == self.config.epochs:  # nothing but the result was kept
            self.concluded = True  # and isn't written again: others may be reading it
            return
        restore_optimizer(self.optimizer, tensors)
        restore_generators(self.generators, tensors)
        restore_global_random_state(tensors, self.inputs.device)
        self.began, self.done = generator_states(self.generators), tensors.get("done")
        self.best = None if state["best"] is None else (state["best"], under_prefix(tensors, "best."))

    def end(self) -> None:
        """Leave the best epoch's weights, or the last one's, in the network."""
        if self.best is not None:
            _put(self.sub, self.best[1])
        for parameter in self.parameters:
            parameter.requires_grad_(False)
            parameter.grad = None
        self.sub.eval()
        if self.checkpoint is not None and not self.concluded:
            result = {f"own.{name}": tensor for name, tensor in _owned(self.sub).items()}
            self.checkpoint.conclude(result, {"history": self.history})


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
