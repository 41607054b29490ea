"""What one run of Algorithm 1 is about: network, data and settings, which travel through all of its parts together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bise.data.core.cells import Cells
from bise.data.core.sampling import measured_over, strata
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.engine.precision import autocast
from bise.engine.validation import Validation
from bise.extraction.budget import Budget, wanted
from bise.extraction.config import ExtractConfig
from bise.extraction.scores import Scores, cuts
from bise.network.outputs import nondeterminism
from bise.network.shrinking.counting import Counter
from bise.network.subnetwork import Subnetwork


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One network with gates, the samples that its masks are learned on, and how."""

    sub: Subnetwork
    inputs: Inputs
    cells: Cells
    validation: Validation | None
    config: ExtractConfig
    precision: str
    """The resolved one: "fp32" or "bf16"."""
    memory: int
    """Bytes that cached features may take."""
    counter: Counter | None = None
    """Counts what shrinking leaves, where that is limited."""
    timed: Callable[[list[Tensor]], float] | None = None
    """Measures the latency of what shrinking leaves, as a share of the whole model's, where that is limited."""

    @property
    def device(self) -> torch.device:
        return self.inputs.device

    @cached_property
    def strata(self) -> Tensor:
        """[N]: what even draws are even over."""
        return strata(self.cells, self.config.balance)

    @cached_property
    def measured_over(self) -> str:
        """Which samples of a batch the mutual information is taken over."""
        c = self.config
        return measured_over(self.cells, c.mi, c.sampler, c.balance)

    @cached_property
    def cuts(self) -> list[str]:
        """The sites that everything passes, looked for where a closed one is to be undone."""
        if self.config.collapse != "undo":
            return []
        with autocast(self.precision, self.device):
            return cuts(self.sub, self.inputs.example())

    @cached_property
    def widths(self) -> tuple[int, int]:
        """(width of the bottleneck, number of logits); two batch sizes, since a sequence-first layer can't fit both."""
        for count in {min(n, len(self.cells)) for n in (3, 4)}:
            index = torch.arange(count)
            seen = infer(self.sub, self.inputs, index=index, features=self.sub.bottleneck, precision=self.precision)
        assert seen.z is not None
        return seen.z.shape[1], seen.logits.shape[1]

    def limited(self, scores: Scores) -> Budget | None:
        """The budget that these scores keep to; None without one."""
        return None if self.counter is None else Budget(scores, wanted(self.config), self.counter, self.timed)

    def notes(self) -> list[str]:
        """What the user should know about these samples and this network before the run."""
        cells, found = self.cells, []
        if cells.unknown:
            found.append(
                f"{cells.unknown} of {len(cells)} training samples lack a bias label; they count for"
                " the cross-entropy, and not for the bias head or the mutual information"
            )
        found += cells.unopposed()
        if self.measured_over == "conflicting":
            found += cells.one_sided()
        if self.validation is not None:
            found += cells.missing_from(self.validation.cells)
        return found

    def nondeterminism(self) -> str | None:
        """That the network gives the same samples different logits, where it does."""
        with autocast(self.precision, self.device):
            return nondeterminism(self.sub, self.inputs.example())
