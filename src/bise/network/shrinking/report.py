"""What shrinking did, on record."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bise.base.markup import tag
from bise.base.notebook import MOST_ROWS, table
from bise.network.shrinking.analysis import Barrier
from bise.network.shrinking.choosing import Tried
from bise.network.timing import Timed


@dataclass(frozen=True, kw_only=True)
class ShrinkReport:
    """What shrinking did: sizes, the differences that were seen, and where closed channels had to stay."""

    parameters_before: int
    parameters_after: int
    differences: dict[str, float]
    """{case: relative difference in float64}."""
    float32: float
    """Relative difference on the example in the network's own precision."""
    barriers: tuple[Barrier, ...]
    held: tuple[str, ...] = ()
    """Sizes of inputs that can't be others than the example's, such as "x 64 × 64"."""
    noise: float = 0.0
    """How far noise in the last digit of an input moves the masked network, where differences of more than 1e-10 were
    judged by that; 0 where none was larger."""
    align: int = 1
    """What widths were filled up to a multiple of."""
    streams: str = "narrow"
    """Whether segments of a residual stream are "narrow", or keep the "union" of what any of them needs."""
    tried: tuple[Tried, ...] = ()
    """What was timed for align="auto" or streams="auto", the fastest first."""
    times: tuple[Timed, ...] = ()
    """Dense and shrunk, side by side on the example."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.as_dict(),)  # a network that is saved with it loads where bise isn't

    def __deepcopy__(self, _: Any) -> ShrinkReport:
        return self

    @property
    def widths(self) -> str:
        """How wide the layers are, in words."""
        parts = [f"multiples of {self.align}"] if self.align > 1 else []
        return ", ".join([*parts, *(["the union in residual streams"] if self.streams == "union" else [])])

    def __str__(self) -> str:
        share = self.parameters_after / max(1, self.parameters_before)
        lines = [
            f"parameters  {self.parameters_before:,} → {self.parameters_after:,} ({100 * share:.0f} %)",
            f"difference  {max(self.differences.values()):.0e} in float64, {self.float32:.0e} as it is (relative)",
        ]
        if self.noise:
            lines.append(f"noise       {self.noise:.0e}: what the input's last digit makes of the masked network alone")
        lines += [f"widths      {self.widths}"] if self.widths else []
        lines += [f"tried       {one}" for one in self.tried]
        lines += [f"time        {one}" for one in self.times]
        lines += [f"size        {size} only, as in the example" for size in self.held]
        return "\n".join(lines + [f"barrier     {barrier}" for barrier in self.barriers])

    def _repr_html_(self) -> str:
        """Sizes, the differences that were seen, and where closed channels had to stay."""
        share = self.parameters_after / max(1, self.parameters_before)
        rows: list[tuple[Any, ...]] = [
            ("parameters before", f"{self.parameters_before:,}"),
            ("parameters after", f"{self.parameters_after:,} ({100 * share:.0f} %)"),
            ("largest difference in float64", f"{max(self.differences.values()):.0e}"),
            ("difference as it is", f"{self.float32:.0e}"),
            *((("the masked network's own noise", f"{self.noise:.0e}"),) if self.noise else ()),
            *((("widths", self.widths),) if self.widths else ()),
            *(("tried", str(one)) for one in self.tried),
            *(("time", str(one)) for one in self.times),
            *(("size, as in the example only", size) for size in self.held),
            *(("barrier", str(barrier)) for barrier in self.barriers[:MOST_ROWS]),
        ]
        if len(self.barriers) > MOST_ROWS:
            rows.append((f"… and {len(self.barriers) - MOST_ROWS} more barriers", ""))
        return str(tag("div", table("Closed units removed", ("", ""), rows)))
