"""How wide layers stay: closed channels kept as zeros, so that widths fit the hardware and sums need no index."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Widths:
    """Which closed channels a shrunk network keeps as zeros: none, as `PLAIN` has it, or some for speed."""

    multiple: int = 1
    """What the number of a layer's channels is rounded up to, as far as its closed channels suffice."""
    union: bool = False
    """Whether all segments of a residual stream keep the channels that any of them needs."""

    @property
    def streams(self) -> str:
        return "union" if self.union else "narrow"

    def padded(self, must: Tensor, zeros: Tensor) -> Tensor:
        """The channels that must be there with so many of the zeros beside, the first ones, that the number is a
        multiple; of half of it, a quarter and so on, where there are too few."""
        spare = (zeros & ~must).nonzero().flatten()
        step, count = self.multiple, int(must.sum())
        while step > 1:
            if (missing := -count % step) <= len(spare):
                padded = must.clone()
                padded[spare[:missing]] = True
                return padded
            step //= 2
        return must

    def room(self, count: int) -> int:
        """How many channels a layer may have in place of so many."""
        return count + -count % self.multiple


PLAIN = Widths()
