"""Multinomial logistic regression in float64, by Newton's method with conjugate gradients, to a proven distance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

DISTANCE = 1e-7
"""How far the coefficients of standardised features may be from the optimum."""
ROUNDING = 1e-13
"""A gradient below this is rounding, whatever the L2."""
MOST_STEPS = 100
MOST_PRODUCTS = 2000
"""Products with the Hessian in one step."""
AT_ONCE = 1 << 16
"""Rows that are turned to float64 in one go …"""
HELD = 2 << 30
"""… and bytes up to which they are kept so."""
MOST_COEFFICIENTS = 4096
"""Up to so many the Hessian is made and factored on a GPU: it would wait for the host at each of many products."""
NOISE = 1e-6
"""A feature whose deviation is below this share of its largest value is constant: the rest is rounding of float32."""


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """Where the solver ended, in coefficients of standardised features."""

    theta: Tensor
    """[outputs, features that vary + 1] float64, the last column the intercepts."""
    l2: float
    gradient: float
    """The 2-norm of the objective's gradient there …"""
    wanted: float
    """… and what it had to come down to."""
    steps: int

    @property
    def converged(self) -> bool:
        return self.gradient <= self.wanted


class Problem:
    """Σ share_i CE(W x_i + c, y_i) + λ/2 ‖W‖² over x, the features z [N, d] standardised under the shares.

    z may be float32 and may lie elsewhere than the shares [N], on whose device the work is done. With one output s the
    logits are (0, s), so that W has one row. Without an `intercept` features are scaled, but not shifted, since only an
    intercept could take the shift back. Constant features are left out, and get weights of exactly 0.
    """

    def __init__(self, z: Tensor, y: Tensor, share: Tensor, *, outputs: int, intercept: bool = True) -> None:
        self.z, self.y, self.share = z, y, share.double()
        self.outputs, self.intercept = outputs, intercept
        self.parts = [slice(start, start + AT_ONCE) for start in range(0, len(z), AT_ONCE)]
        self.mean = share.new_zeros(z.shape[1], dtype=torch.float64)
        largest = torch.zeros_like(self.mean)
        for part in self.parts:
            raw, weight = self._raw(part), self.share[part]
            self.mean += weight @ raw if intercept else 0
            largest = torch.maximum(largest, (raw * (weight > 0)[:, None]).abs().amax(0))
        square = torch.zeros_like(self.mean)
        for part in self.parts:
            square += self.share[part] @ (self._raw(part) - self.mean).square()
        deviation = square.sqrt()
        self.varies = deviation > NOISE * largest
        self.scale = deviation[self.varies]
        kept = len(z) * (len(self.scale) + 1) * 8 <= HELD
        self.held = [self._standardised(part) for part in self.parts] if kept else None

    def _raw(self, part: slice) -> Tensor:
        return self.z[part].to(self.share.device, torch.float64)

    def _standardised(self, part: slice) -> Tensor:
        x = (self._raw(part) - self.mean)[:, self.varies] / self.scale
        last = x.new_ones(len(x), 1) if self.intercept else x.new_zeros(len(x), 1)
        return torch.cat([x, last], 1)

    def rows(self) -> Iterator[tuple[slice, Tensor]]:
        """(which, x [n, features that vary + 1]), piece by piece."""
        for number, part in enumerate(self.parts):
            yield part, self._standardised(part) if self.held is None else self.held[number]

    def logits(self, theta: Tensor) -> Tensor:
        """[N, C] under the coefficients."""
        return torch.cat([self._logits(x, theta) for _, x in self.rows()])

    def _logits(self, x: Tensor, theta: Tensor) -> Tensor:
        logits = x @ theta.T
        return torch.cat([torch.zeros_like(logits), logits], 1) if self.outputs == 1 else logits

    def start(self) -> Tensor:
        return self.mean.new_zeros(self.outputs, len(self.scale) + 1)

    def value(self, theta: Tensor, l2: float) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The objective, its gradient, and the softmax of each piece of rows."""
        penalty = _penalised(theta, l2)
        loss, gradient, softmax = (penalty * theta).sum() / 2, penalty, []
        for part, x in self.rows():
            logp = self._logits(x, theta).log_softmax(1)
            y, share = self.y[part, None], self.share[part, None]
            loss = loss - (share * logp.gather(1, y)).sum()
            p = logp.exp()
            softmax.append(p)
            error = share * p.scatter_add(1, y, -torch.ones_like(share))
            gradient = gradient + self._own(error).T @ x
        return loss, gradient, softmax

    def product(self, direction: Tensor, softmax: list[Tensor], l2: float) -> Tensor:
        """The Hessian times a direction, which is of theta's shape."""
        found = _penalised(direction, l2)
        for (part, x), p in zip(self.rows(), softmax, strict=True):
            along = self._logits(x, direction)
            moved = self.share[part, None] * p * (along - (p * along).sum(1, keepdim=True))
            found = found + self._own(moved).T @ x
        return found

    def hessian(self, softmax: list[Tensor], l2: float) -> Tensor:
        """The Hessian [n, n] over theta's n coefficients, made regular where adding to all intercepts moves nothing."""
        classes, width = self.outputs, len(self.scale) + 1
        found = self.mean.new_zeros(classes, width, classes, width)
        for (part, x), whole in zip(self.rows(), softmax, strict=True):
            p, share = self._own(whole), self.share[part]
            for i in range(classes):
                for j in range(i + 1):
                    block = x.T @ ((share * p[:, i] * (float(i == j) - p[:, j]))[:, None] * x)
                    found[i, :, j] += block
                    if i != j:
                        found[j, :, i] += block
        own = torch.arange(classes)
        found[own, :, own] += l2 * torch.eye(width, dtype=found.dtype, device=found.device)
        found[own, -1, own, -1] -= l2
        if not self.intercept:
            found[own, -1, own, -1] += 1
        elif classes > 1:
            found[:, -1, :, -1] += 1 / classes
        return found.reshape(classes * width, classes * width)

    def _own(self, by_class: Tensor) -> Tensor:
        """The columns that have coefficients."""
        return by_class[:, -self.outputs :]

    def folded(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """(weight [outputs, d], bias [outputs]) in float64 on the features as they are."""
        weight = theta.new_zeros(self.outputs, len(self.mean))
        weight[:, self.varies] = theta[:, :-1] / self.scale
        return weight, theta[:, -1] - weight @ self.mean


def solve(problem: Problem, l2: float, start: Tensor | None = None, distance: float = DISTANCE) -> Optimum:
    """Minimise the objective, which is convex, from `start` or from 0.

    It is λ-strongly convex in W, so a gradient of norm g leaves W at most g/λ from the optimum: it is brought down to
    `distance` · λ, unless rounding forbids.
    """
    theta = problem.start() if start is None else start
    wanted = max(distance * l2, ROUNDING)
    loss, gradient, softmax = problem.value(theta, l2)
    steps = 0
    while (size := float(gradient.norm())) > wanted and steps < MOST_STEPS:
        step = _towards(problem, gradient, softmax, l2)
        slope, share = float((gradient * step).sum()), 1.0
        while True:
            tried = problem.value(theta + share * step, l2)
            fell = bool(tried[0] <= loss + 1e-4 * share * slope)
            # near the optimum the loss falls by less than its rounding, and the gradient tells
            if fell or (float(tried[1].norm()) < size and bool(tried[0] <= loss + 1e-12 * loss.abs())):
                break
            share /= 2
            if share < 1e-8:
                return Optimum(theta=theta, l2=l2, gradient=size, wanted=wanted, steps=steps)
        theta = theta + share * step
        loss, gradient, softmax = tried
        steps += 1
    return Optimum(theta=theta, l2=l2, gradient=size, wanted=wanted, steps=steps)


def _towards(problem: Problem, gradient: Tensor, softmax: list[Tensor], l2: float) -> Tensor:
    """Newton's step: factored where that is cheap, else by conjugate gradients."""
    if gradient.is_cuda and gradient.numel() <= MOST_COEFFICIENTS:
        found = factored(problem, gradient, softmax, l2)
        if found is not None:
            return found
    return _by_products(problem, gradient, softmax, l2)


def factored(problem: Problem, gradient: Tensor, softmax: list[Tensor], l2: float) -> Tensor | None:
    """Newton's step by Cholesky's factors; None where rounding leaves the Hessian without them."""
    factor, failed = torch.linalg.cholesky_ex(problem.hessian(softmax, l2))
    if int(failed):
        return None
    return torch.cholesky_solve(-gradient.reshape(-1, 1), factor).view_as(gradient)


def _by_products(problem: Problem, gradient: Tensor, softmax: list[Tensor], l2: float) -> Tensor:
    """Newton's step by conjugate gradients, the more exactly the smaller the gradient."""
    step, residual = torch.zeros_like(gradient), -gradient
    direction, square = residual, residual.square().sum()
    size = float(square.sqrt())
    enough = min(0.1, size**0.5) * size
    for _ in range(MOST_PRODUCTS):
        image = problem.product(direction, softmax, l2)
        along = square / (direction * image).sum()
        step = step + along * direction
        residual = residual - along * image
        before, square = square, residual.square().sum()
        if not float(square.sqrt()) > enough:
            break
        direction = residual + square / before * direction
    return step


def _penalised(theta: Tensor, l2: float) -> Tensor:
    """λ W, and 0 for the intercepts."""
    out = l2 * theta
    out[:, -1] = 0
    return out
