"""Lines 8 to 10 of Algorithm 1: one forward pass, and from it a step of the scores and a step of the bias heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bise.base.errors import BadInput
from bise.data.core.sampling import sample_weights
from bise.engine.losses import cross_entropies, margins, weighted_mean
from bise.engine.precision import autocast
from bise.engine.processes import count, own_rows, total
from bise.extraction.bias_head import cross_entropy, with_one
from bise.extraction.objective import information, information_gradient, joint_table
from bise.extraction.problem import Problem
from bise.extraction.state import State
from bise.network.outputs import call, class_logits

NO_GRADIENT = "no gradient reaches any gate; the model's forward must not run under torch.no_grad()"


@dataclass(frozen=True)
class _Batch:
    """Sums over a batch."""

    tables: list[Tensor]
    """For each bias the joint table of b̂ and b, and the number of samples in it."""
    samples: Tensor | None = None
    """How many there are, where several processes share them."""
    known: Tensor | None = None
    """[K]: of how many b_k is known."""


class MaskStep:
    """Updates the scores to minimise J = L_r + γ·I (equation 5), and the heads to minimise their cross-entropy."""

    def __init__(self, problem: Problem, state: State, targets: dict[str, float]) -> None:
        self.problem, self.state, self.smoothing = problem, state, targets["smoothing"]
        c, cells, device = problem.config, problem.cells, problem.device
        self.rates = {"lr": c.lr, "momentum": c.momentum, "weight_decay": c.weight_decay}
        self.learned = [] if state.batch_norm is None else state.batch_norm.param_groups[0]["params"]
        """β and γ of BatchNorm, where they are learned too."""
        self.tau = torch.ones((), dtype=torch.float32, device=device)
        self.y, self.b = cells.y.to(device), cells.b.to(device)
        weights = sample_weights(cells, c.weights, c.balance, c.rho)
        self.weights = None if weights is None else weights.float().to(device)
        """[N]: r_j of equation 4."""
        self.priors = margins(cells, targets["margin"], problem.widths[1], device)
        """What logits are raised by for each b, where margins are wanted."""
        included = cells.conflicting if problem.measured_over == "conflicting" else cells.b >= 0
        self.included = included.to(device)
        """[N, K]: which samples the mutual information is taken over."""
        self.caught: list[Tensor] = []
        """The bottleneck of the last forward pass, while the loop holds `sub.features()` open."""

    def __call__(self, x: Any, index: Tensor) -> Tensor:
        """J, its two parts, the heads' loss, and the size of J's gradient, after one step on the samples `index`."""
        c, state = self.problem.config, self.state
        values = state.scores.hold()
        with autocast(self.problem.precision, self.problem.device):
            logits = class_logits(call(self.problem.sub, x))
        logits, z, b = own_rows(logits, index), own_rows(self.caught[0], index), self.b[index]
        each = cross_entropies(
            logits, self.y[index], b=b if self.priors else None, priors=self.priors, smoothing=self.smoothing
        )
        features, true = with_one(z), state.heads.one_hots(b)
        probabilities = state.heads.probabilities(features)
        batch = self._batch(probabilities, b, true, index)
        ce = weighted_mean(each, None if self.weights is None else self.weights[index], batch.samples)
        if not (ce.requires_grad or z.requires_grad):
            raise BadInput(NO_GRADIENT)
        mi, towards_z = self._information(probabilities, b, index, batch)
        gradient, others = self._gradient(values, ce, z, towards_z)
        ce = ce.detach()
        if batch.known is None:
            head_loss = None
        else:
            head_gradient, head_loss = state.heads.part(features, true, probabilities, batch.known)
            gradient, head_gradient, ce, head_loss, *others = total(gradient, head_gradient, ce, head_loss, *others)
        self.caught[0] = z.detach()  # the graph behind it would live on into a recording, with another stream
        if state.batch_norm is not None:
            for parameter, found in zip(self.learned, others, strict=True):
                parameter.grad = found
            state.batch_norm.step()
        state.scores.step(gradient, self.tau, **self.rates)
        if c.collapse == "prevent":
            state.scores.keep_open()
        if head_loss is None:
            state.heads.step(features, true, probabilities)
            head_loss = cross_entropy(probabilities, true)
        else:
            state.heads.step_by(head_gradient)
        return torch.stack([ce + c.gamma * mi, ce, mi, head_loss, gradient.norm()])

    def _batch(self, probabilities: tuple[Tensor, ...], b: Tensor, true: Tensor, index: Tensor) -> _Batch:
        """What is summed over a batch, of all processes where they share it, before there are gradients."""
        tables: list[Tensor] = []
        if self.problem.config.mi != "none":
            include = self.included[index]
            for k, p in enumerate(probabilities):
                tables += joint_table(p, b[:, k], include[:, k])
        if count() == 1:
            return _Batch(tables)
        heads = self.state.heads
        samples, known, *tables = total(heads.parameters.new_tensor(len(index)), heads.known(true), *tables)
        return _Batch(tables, samples, known)

    def _gradient(self, values: Tensor, ce: Tensor, z: Tensor, towards_z: Tensor) -> tuple[Tensor, list[Tensor]]:
        """∂J/∂gate of every unit, and the gradients of β and γ of BatchNorm, where those are learned."""
        outputs, towards = [ce], [torch.ones_like(ce)]
        if z.requires_grad:  # γ·I joins the graph at z, by its closed-form gradient
            gamma = self.problem.config.gamma
            outputs, towards = [ce, z], [*towards, (gamma * towards_z).to(z.dtype)]
        gradient, *others = torch.autograd.grad(outputs, [values, *self.learned], towards, allow_unused=True)
        if gradient is None:
            raise BadInput(NO_GRADIENT)
        return gradient, others

    def _information(
        self, probabilities: tuple[Tensor, ...], b: Tensor, index: Tensor, batch: _Batch
    ) -> tuple[Tensor, Tensor]:
        """I(b̂, b), the mean or sum over biases, and its gradient towards z [N, d]; 0 where it isn't wanted."""
        weight = self.state.heads.parameters[:, :-1]
        if self.problem.config.mi == "none":
            return weight.new_zeros(()), weight.new_zeros(len(b), weight.shape[1])
        include = self.included[index]
        values, towards = [], []
        for k, p in enumerate(probabilities):
            table, counted = batch.tables[2 * k : 2 * k + 2]
            values.append(information(table, counted))
            towards.append(information_gradient(p, b[:, k], include[:, k], table, counted))
        share = len(values) if self.problem.config.mi_over_biases == "mean" else 1
        return torch.stack(values).sum() / share, torch.cat(towards, 1) @ weight / share
