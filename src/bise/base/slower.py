"""What has to be said where a shrunk network is slower than the dense one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SLOWER = 1.005
"""The ratio of times from which a network is called slower: below, it rounds to 0 %."""
EAGER = "eager"


def times_of(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Dense and shrunk by mode and batch, from the figures of a summary."""
    eager = [
        {
            "mode": EAGER,
            "batch": int(batch),
            "dense_ms": one["first_ms"],
            "shrunk_ms": one["second_ms"],
            "ratio": one["ratio"],
            "device": one["device"],
        }
        for batch, one in (figures.get("latency_by_batch") or {}).items()
    ]
    return eager + list(figures.get("latency_by_mode") or [])


def slower(figures: Mapping[str, Any]) -> list[str]:
    """A sentence, where the shrunk network was slower than the dense one, with where and by how much."""
    found = [one for one in times_of(figures) if one["ratio"] >= SLOWER]
    if not found:
        return []
    where = "; ".join(
        f"by {100 * (one['ratio'] - 1):.0f} % for a batch of {one['batch']} ({one['mode']}, {one['device']})"
        for one in found
    )
    tried = figures.get("tried")
    remedy = "no width that was tried is faster" if tried else "try --align auto, which looks for faster widths"
    return [f"The shrunk network is slower than the dense one {where}; {remedy}."]
