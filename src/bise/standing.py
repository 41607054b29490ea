"""Mask steps while no gate flips: what a sample adds to J's gradient stays the same then, so it is computed once.

The cross-entropy's gradient towards the gates is a sum over samples, and that of the mutual information passes z, so
that the Jacobian of z is all it needs of the network, and only for the samples that it is measured over. With both at
hand a step is a few small products. Late in the preset `paper` no gate flips for dozens of epochs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from bise.bias_head import with_one
from bise.engine.inputs import Inputs
from bise.engine.precision import autocast
from bise.engine.steps import Steps
from bise.engine.storage import Store
from bise.models.outputs import call, class_logits

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
        self.filled = False
        self.steps: Steps | None = None

    def suits(self) -> bool:
        """Whether gates with values for each sample are those of that sample alone: found by trial, on a few."""
        learner = self.learner
        x = learner.inputs.example()
        self.mask.copy_(learner.scores.flat.detach() >= 0)
        try:
            gates, logits, _ = self._forward(x)
        except RuntimeError:  # samples aren't what the first dimension counts
            return False
        own = self._towards(logits, gates)
        values = learner.scores.hold()
        try:
            with autocast(learner.precision, learner.device):
                logits = class_logits(call(learner.sub, x))
        finally:
            learner.scores.release()
        learner.caught[0] = learner.caught[0].detach()
        for k, (each, whole) in enumerate(zip(own, self._towards(logits, values), strict=True)):
            others = torch.arange(len(x), device=each.device) != k
            if each[others].any() or (each[k] - whole).norm() > 0.05 * whole.norm():
                return False
        return True

    def _towards(self, logits: Tensor, values: Tensor) -> list[Tensor]:
        """The gradients of each sample's cross-entropy towards `values`."""
        ce = F.cross_entropy(logits.float(), self.learner.y[: len(logits)], reduction="none")
        return [torch.autograd.grad(loss, values, retain_graph=True)[0] for loss in ce]

    def run(self, order: Tensor) -> Tensor | None:
        """An epoch's figures; None where a gate flipped before its last step, and nothing is changed then."""
        learner = self.learner
        now = learner.scores.flat.detach() >= 0
        if not self.filled or not torch.equal(now, self.mask):
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
        self.filled = False
        return None

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
        inputs, done = self.learner.inputs, 0
        size = max(1, inputs.roomy_batch() // 2)  # gradients take their room too
        for x, index in inputs.batches(torch.arange(len(inputs)), size):
            gates, logits, z = self._forward(x)
            ce = F.cross_entropy(logits.float(), self.learner.y[index.to(logits.device)], reduction="none")
            (towards,) = torch.autograd.grad(ce.sum(), gates)
            self.store.write(done, torch.cat([with_one(z), ce.detach().unsqueeze(1), towards.float()], 1))
            done += len(index)
        done = 0
        for x, index in inputs.batches(self.measured.cpu(), size) if len(self.measured) else ():
            gates, _, z = self._forward(x)
            for k in range(z.shape[1]):
                (row,) = torch.autograd.grad(z[:, k].sum(), gates, retain_graph=k + 1 < z.shape[1])
                self.jacobian[done : done + len(index), k] = row
            done += len(index)
        self.filled = True

    def _forward(self, x: Any) -> tuple[Tensor, Tensor, Tensor]:
        """(gate values [n, units], each sample's own, logits, z) under the mask."""
        learner = self.learner
        gates = self.mask.float().expand(len(x), -1).clone().requires_grad_()
        for (_, gate, _), piece in zip(
            learner.scores.pieces(learner.scores.flat), gates.split(learner.scores.sizes, 1), strict=True
        ):
            gate.live = piece
        try:
            with autocast(learner.precision, learner.device):
                logits = class_logits(call(learner.sub, x))
        finally:
            learner.scores.release()
        z = learner.caught[0]
        learner.caught[0] = z.detach()
        return gates, logits, z

    def _update(self, rows: Tensor, index: Tensor) -> Tensor:
        """A step by the contributions `rows` of the samples `index`."""
        learner = self.learner
        self.same.logical_and_(((learner.scores.flat >= 0) == self.mask).all())
        features, ce, towards = rows[:, : self.width], rows[:, self.width], rows[:, self.width + 1 :]
        b = learner.b[index]
        probabilities = learner.heads.probabilities(features)
        mi, towards_z = learner.information(probabilities, b, index)
        share = 1 / len(rows) if learner.weights is None else learner.weights[index] / len(rows)
        gradient = (towards * (share if isinstance(share, float) else share.unsqueeze(1))).sum(0)
        if len(self.measured):
            gradient = gradient + learner.config.gamma * torch.einsum(
                "nd,ndu->u", towards_z, self.jacobian[self.place[index]]
            )
        return learner.apply(gradient, features, probabilities, b, (ce * share).sum(), mi)
