"""What a page and a terminal say of candidates for a bias."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ALIKE = 0.8
"""Agreement with the model's answers from which on a difference is one by construction."""
TOLD = 0.1
"""Agreement from which on a column tells something of a candidate."""
CANT_KNOW = (
    "no candidate is proof of a bias: groups may differ since their samples are harder, and may rightly differ; look at"
    " them, and choose by what you know",
    "a bias that all samples share, or that leaves accuracy as it is, can't be seen here",
)


def headline(found: Mapping[str, Any]) -> str:
    """How many candidates there are, and how many of them differ by more than chance makes."""
    all_of = found["candidates"]
    shown = sum(bool(one["shown"]) for one in all_of)
    on = f"{found['measured']:,} samples of {found['measured_on']}"
    if not all_of:
        return f"No candidate: nothing that was looked at has groups to compare, on {on}"
    count = f"{len(all_of)} candidate{'s' * (len(all_of) != 1)}"
    if not shown:
        return f"{count}, and none differs by more than chance may make, on {on}"
    return f"{count}; {shown} differ{'s' * (shown == 1)} by more than chance makes, on {on}"


def beside(candidate: Mapping[str, Any]) -> str:
    """What else tells a candidate."""
    told = [f"{name} {value:.2f}" for name, value in candidate["goes_with"].items() if value >= TOLD]
    if candidate["echo"] > ALIKE:
        told.insert(0, f"the answers {candidate['echo']:.2f}")
    return ", ".join(told[:4]) or "–"


def difference(candidate: Mapping[str, Any], classes: list[str]) -> str:
    """Where accuracy differs the most, and how sure that is."""
    y, high, low = candidate["where"]
    top, least = candidate["rates"]
    ends = candidate["interval"]
    said = (
        f"Of {classes[y]}, {100 * top:.0f} % are right in “{candidate['groups'][high]}” and {100 * least:.0f} % in"
        f" “{candidate['groups'][low]}”: {100 * candidate['difference']:.0f} points, with an interval of"
        f" {100 * ends[0]:.0f} to {100 * ends[1]:.0f}."
    )
    return said if candidate["shown"] else f"{said} Chance alone may make that."
