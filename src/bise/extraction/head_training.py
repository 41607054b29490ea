"""Lines 4 and 13 of Algorithm 1: C_aux is trained for E epochs while encoder and mask stay as they are."""

from __future__ import annotations

import torch
from torch import Tensor

from bise.data.core.contract import Progress
from bise.data.core.sampling import Sampler
from bise.engine.inference import passes
from bise.engine.inputs import Inputs
from bise.engine.steps import Steps
from bise.engine.storage import Store
from bise.extraction.bias_head import BiasHeads, with_one
from bise.extraction.problem import Problem

MOST_DRAWS = 4_000_000
"""Beyond so many draws, features of every sample are computed, rather than of those that will be drawn."""


class Refinement:
    """Trains the heads on cached features: z of a sample is the same in every head epoch, so it is computed once.

    Features beyond `problem.memory` bytes are mapped to a file.

    Departure where the data set augments: the cache holds one draw of each sample; cache=False is to the letter.
    """

    def __init__(self, problem: Problem, heads: BiasHeads) -> None:
        self.problem, self.heads = problem, heads
        c, samples = problem.config, len(problem.cells)
        self.balanced = c.head_data == "balanced"
        self.sampler = Sampler(samples, problem.strata if self.balanced else None)
        self.epoch_draws = samples if c.head_steps is None else c.head_steps * c.batch_size
        self.steps: Steps | None = None

    def __call__(self, generator: torch.Generator, progress: Progress | None = None, label: str = "bias head") -> None:
        """Train the heads for E epochs on the network as it is now."""
        epochs = self.problem.config.head_epochs
        if not self.problem.config.cache:
            for _ in range(epochs):
                self._fit([self._order(generator)], progress, label)
        elif self.balanced and epochs * self.epoch_draws <= MOST_DRAWS:
            self._fit([self._order(generator) for _ in range(epochs)], progress, label)
        else:
            everything = torch.arange(len(self.problem.cells))
            self._features(everything, progress, label)
            for _ in range(epochs):
                self._steps().run(self._order(generator))

    def _order(self, generator: torch.Generator) -> Tensor:
        return self.sampler.draw(self.problem.config.head_steps, self.problem.config.batch_size, generator)

    def _fit(self, orders: list[Tensor], progress: Progress | None, label: str) -> None:
        """One pass over `orders`, on the features of those samples that they name."""
        order = torch.cat(orders)
        used, where = torch.unique(order, return_inverse=True)
        places = self.problem.inputs.by_length(used)
        if places is not None:
            used, where = used[places], places.argsort()[where]
        self._features(used, progress, label)
        self._steps().run(where)

    def _features(self, index: Tensor, progress: Progress | None, label: str) -> None:
        """Fill the cache with z of the samples `index`, and b beside it."""
        problem, samples = self.problem, len(self.problem.cells)
        if self.steps is None:
            draws = problem.config.head_epochs * self.epoch_draws
            count = samples if not self.balanced or draws > MOST_DRAWS else min(samples, draws)
            self.store = Store(count, self.heads.parameters.shape[1], problem.device, problem.memory)
            self.b = torch.zeros(count, problem.cells.biases, dtype=torch.long, device=problem.device)
        sub, inputs, precision = problem.sub, problem.inputs, problem.precision
        run = passes(sub, inputs, index, sub.bottleneck, precision=precision, progress=progress, label=label)
        for start, _, z in run:
            assert z is not None
            self.store.write(start, with_one(z))
        self.b[: len(index)] = problem.cells.b[index].to(problem.device)

    def _update(self, z: Tensor, index: Tensor) -> Tensor:
        self.heads.step(z, self.heads.one_hots(self.b[index]))
        return z.new_zeros(1)

    def _steps(self) -> Steps:
        if self.steps is None:
            self.steps = Steps(
                self._update,
                Inputs(self.store, self.problem.inputs.device),
                self.problem.config.batch_size,
                state=lambda: (self.heads.parameters, self.heads.velocity),
                graphs=self.problem.config.graphs,
                shared=False,  # every process has all features, and trains the same heads
            )
        return self.steps
