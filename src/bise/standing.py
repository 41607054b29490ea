"""Mask steps while no gate flips: what a sample adds to J's gradient stays the same then, so it is computed once.

The cross-entropy's gradient towards the gates is a sum over samples, and that of the mutual information passes z, so
that the Jacobian of z is all it needs of the network, and only for the samples that it is measured over. With both at
hand a step is a few small products. Late in the preset `paper` no gate flips for dozens of epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bise.bias_head import with_one
from bise.engine.inputs import Inputs
from bise.engine.precision import autocast
from bise.engine.steps import Steps
from bise.engine.storage import Store
from bise.models.outputs import call, class_logits
from bise.settling import quiet_epochs

if TYPE_CHECKING:
    from bise.learning import Learner

DEVICES = ("cuda",)
"""Where it is done: on a CPU each result is promised bit for bit, and this one sums in another order."""
QUIET = 2
"""Epochs without a flip before it is tried; twice as many after each time that a gate flipped all the same."""
JACOBIAN = 0.6
"""A backward pass alone, as a part of a step's work."""


class Standing:
    """The contributions of all samples under one mask, and epochs of steps on them."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.width = learner.heads.parameters.shape[1]  # of z with a one behind it
        units = len(learner.scores.flat)
        included = learner.included.any(1).nonzero().flatten() if learner.over != "none" else torch.empty(0).long()
        self.measured = included.to(learner.device)
        """The samples that the mutual information is taken over."""
        self.size = 4 * (len(learner.cells) * (self.width + 1 + units) + (len(self.measured) + 1) * self.width * units)
        self.work = len(learner.cells) + JACOBIAN * len(self.measured) * self.width
        """Of filling it, counted in samples that pass through a step."""
        self.mask = torch.zeros(units, dtype=torch.bool, device=learner.device)
        self.steps: Steps | None = None
        self.wait = QUIET
        """Epochs without a flip before it is tried."""

    def run(self, order: Tensor) -> Tensor | None:
        """An epoch's figures, where that pays and no gate flips before its last step; else None, and all as it was.

        When it is tried is decided by the history and `wait` alone, so that a run that goes on after a stop does alike.
        """
        learner, history = self.learner, self.learner.history
        quiet = quiet_epochs(history)
        total = len(learner.config.temperatures()) * learner.config.upsilon
        left = (total - (len(history) - quiet + self.wait)) * len(order)
        if quiet < self.wait or self.size > learner.budget or left < 2 * self.work:
            return None
        try:
            if self.steps is None and not self._suits():
                learner.standing = None
                return None
            return self._steps(order)
        except torch.OutOfMemoryError:
            learner.standing = None
            learner.notes.append(
                "the device has no room for each sample's share of the gradient, so every step runs the network, which"
                " is slower"
            )
            return None

    def _steps(self, order: Tensor) -> Tensor | None:
        """The steps of an epoch, or None and all as it was."""
        learner = self.learner
        now = learner.scores.flat.detach() >= 0
        if self.steps is None or not torch.equal(now, self.mask):
            self.mask.copy_(now)
            self._fill()
        before = [tensor.clone() for tensor in learner.learned_state()]
        self.same.fill_(True)
        assert self.steps is not None
        figures = self.steps.run(order)
        if bool(self.same):
            return figures
        for tensor, value in zip(learner.learned_state(), before, strict=True):
            tensor.copy_(value)
        self.wait *= 2
        return None

    def _suits(self) -> bool:
        """Whether gates with values for each sample are those of that sample alone: found by trial, on a few."""
        x = self.learner.inputs.example()
        self.mask.copy_(self.learner.scores.flat.detach() >= 0)
        gates = self._hold(len(x))
        try:
            own = self._towards(self._forward(x)[0], gates)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # samples aren't what the first dimension counts
            return False
        values = self.learner.scores.hold()
        for k, (each, whole) in enumerate(zip(own, self._towards(self._forward(x)[0], values), strict=True)):
            others = torch.arange(len(x), device=each.device) != k
            if each[others].any() or (each[k] - whole).norm() > 0.05 * whole.norm():
                return False
        return True

    def _towards(self, logits: Tensor, values: Tensor) -> list[Tensor]:
        """The gradients of each sample's cross-entropy towards `values`."""
        ce = self.learner.cross_entropies(logits, torch.arange(len(logits), device=logits.device))
        return [torch.autograd.grad(loss, values, retain_graph=True)[0] for loss in ce]

    def _make(self) -> None:
        learner = self.learner
        units = len(self.mask)
        self.store = Store(len(learner.cells), self.width + 1 + units, learner.device, self.size)
        # the last one, of zeros, stands in for the samples that the mutual information leaves out
        self.jacobian = torch.zeros(len(self.measured) + 1, self.width - 1, units, device=learner.device)
        self.place = torch.full((len(learner.cells),), len(self.measured), device=learner.device)
        self.place[self.measured] = torch.arange(len(self.measured), device=learner.device)
        self.same = torch.ones((), dtype=torch.bool, device=learner.device)
        self.steps = Steps(
            self._update,
            Inputs(self.store, learner.device),
            learner.config.batch_size,
            state=lambda: (*learner.learned_state(), self.same),
            graphs=learner.config.graphs,
        )

    def _fill(self) -> None:
        """z, the cross-entropy and its gradient for every sample; the Jacobian of z for those that are measured."""
        if self.steps is None:
            self._make()
        inputs, size, done = self.learner.inputs, self.learner.config.batch_size, 0
        for x, index in inputs.batches(torch.arange(len(inputs)), size):
            gates = self._hold(len(x))
            logits, z = self._forward(x)
            ce = self.learner.cross_entropies(logits, index.to(logits.device))
            (towards,) = torch.autograd.grad(ce.sum(), gates)
            self.store.write(done, torch.cat([with_one(z), ce.detach().unsqueeze(1), towards.float()], 1))
            done += len(index)
        done = 0
        for x, index in inputs.batches(self.measured.cpu(), size) if len(self.measured) else ():
            gates = self._hold(len(x))
            _, z = self._forward(x)
            for k in range(z.shape[1]):
                (row,) = torch.autograd.grad(z[:, k].sum(), gates, retain_graph=k + 1 < z.shape[1])
                self.jacobian[done : done + len(index), k] = row
            done += len(index)

    def _hold(self, samples: int) -> Tensor:
        """Put the mask into the network as values of each sample's own, and return them [samples, units]."""
        scores = self.learner.scores
        values = self.mask.float().expand(samples, -1).clone().requires_grad_()
        for (_, gate, _), piece in zip(scores.pieces(scores.flat), values.split(scores.sizes, 1), strict=True):
            gate.live = piece
        return values

    def _forward(self, x: Any) -> tuple[Tensor, Tensor]:
        """(logits, z) with the values that the gates hold, which they then let go."""
        learner = self.learner
        try:
            with autocast(learner.precision, learner.device):
                logits = class_logits(call(learner.sub, x))
        finally:
            learner.scores.release()
        z = learner.caught[0]
        learner.caught[0] = z.detach()
        return logits, z

    def _update(self, rows: Tensor, index: Tensor) -> Tensor:
        """A step by the contributions `rows` of the samples `index`."""
        learner = self.learner
        self.same.logical_and_(((learner.scores.flat >= 0) == self.mask).all())
        features, ce, towards = rows[:, : self.width], rows[:, self.width], rows[:, self.width + 1 :]
        b = learner.b[index]
        probabilities = learner.heads.probabilities(features)
        mi, towards_z = learner.information(probabilities, b, index)
        share = (torch.ones_like(ce) if learner.weights is None else learner.weights[index]) / len(rows)
        gradient = (towards * share.unsqueeze(1)).sum(0)
        if len(self.measured):
            gradient = gradient + learner.config.gamma * torch.einsum(
                "nd,ndu->u", towards_z, self.jacobian[self.place[index]]
            )
        return learner.apply(gradient, features, probabilities, b, (ce * share).sum(), mi)
