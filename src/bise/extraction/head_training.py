"""Lines 4 and 12 of Algorithm 1: C_aux is trained for E epochs while encoder and mask stay as they are."""

from __future__ import annotations

import torch
from torch import Tensor

from bise.data.core.cells import Cells
from bise.data.core.contract import Progress
from bise.data.core.sampling import Sampler
from bise.engine.inference import passes
from bise.engine.inputs import Inputs
from bise.engine.steps import Steps
from bise.engine.storage import Store
from bise.extraction.bias_head import BiasHeads, with_one
from bise.extraction.config import ExtractConfig
from bise.network.gates import Subnetwork

MOST_DRAWS = 4_000_000
"""Beyond so many draws, features of every sample are computed, rather than of those that will be drawn."""


class Refinement:
    """Trains the heads on cached features: z of a sample is the same in every head epoch, so it is computed once.

    Features beyond `budget` bytes are mapped to a file.

    Departure where the data set augments: the cache holds one draw of each sample; cache=False is to the letter.
    """

    def __init__(
        self,
        heads: BiasHeads,
        inputs: Inputs,
        cells: Cells,
        strata: Tensor,
        config: ExtractConfig,
        precision: str,
        budget: int,
    ) -> None:
        self.heads, self.inputs, self.cells, self.config, self.precision = heads, inputs, cells, config, precision
        self.budget = budget
        self.balanced = config.head_data == "balanced"
        self.sampler = Sampler(len(cells), strata if self.balanced else None)
        self.epoch_draws = len(cells) if config.head_steps is None else config.head_steps * config.batch_size
        self.steps: Steps | None = None

    def __call__(
        self, sub: Subnetwork, generator: torch.Generator, progress: Progress | None = None, label: str = "bias head"
    ) -> None:
        """Train the heads for E epochs on the network as it is now."""
        epochs = self.config.head_epochs
        if not self.config.cache:
            for _ in range(epochs):
                self._fit(sub, [self._order(generator)], progress, label)
        elif self.balanced and epochs * self.epoch_draws <= MOST_DRAWS:
            self._fit(sub, [self._order(generator) for _ in range(epochs)], progress, label)
        else:
            everything = torch.arange(len(self.cells))
            self._features(sub, everything, progress, label)
            for _ in range(epochs):
                self._steps().run(self._order(generator))

    def _order(self, generator: torch.Generator) -> Tensor:
        return self.sampler.draw(self.config.head_steps, self.config.batch_size, generator)

    def _fit(self, sub: Subnetwork, orders: list[Tensor], progress: Progress | None, label: str) -> None:
        """One pass over `orders`, on the features of those samples that they name."""
        order = torch.cat(orders)
        used, where = torch.unique(order, return_inverse=True)
        places = self.inputs.by_length(used)
        if places is not None:
            used, where = used[places], places.argsort()[where]
        self._features(sub, used, progress, label)
        self._steps().run(where)

    def _features(self, sub: Subnetwork, index: Tensor, progress: Progress | None, label: str) -> None:
        """Fill the cache with z of the samples `index`, and b beside it."""
        c = self.config
        if self.steps is None:
            draws = c.head_epochs * self.epoch_draws
            count = len(self.cells) if not self.balanced or draws > MOST_DRAWS else min(len(self.cells), draws)
            self.store = Store(count, self.heads.parameters.shape[1], self.inputs.device, self.budget)
            self.b = torch.zeros(count, self.cells.biases, dtype=torch.long, device=self.inputs.device)
        run = passes(sub, self.inputs, index, sub.bottleneck, precision=self.precision, progress=progress, label=label)
        for start, _, z in run:
            assert z is not None
            self.store.write(start, with_one(z))
        self.b[: len(index)] = self.cells.b[index].to(self.b.device)

    def _update(self, z: Tensor, index: Tensor) -> Tensor:
        self.heads.step(z, self.heads.one_hots(self.b[index]))
        return z.new_zeros(1)

    def _steps(self) -> Steps:
        if self.steps is None:
            self.steps = Steps(
                self._update,
                Inputs(self.store, self.inputs.device),
                self.config.batch_size,
                state=lambda: (self.heads.parameters, self.heads.velocity),
                graphs=self.config.graphs,
            )
        return self.steps
