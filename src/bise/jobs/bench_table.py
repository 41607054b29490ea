"""A comparison's table: means over seeds, and paired differences from one of the methods."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bise.base.errors import BadInput
from bise.measure.pairing import paired

FIGURES = ("accuracy", "unbiased", "worst_group", "aligned", "conflicting")
COSTS = ("seconds", "samples", "peak_bytes", "parameters", "macs", "weights_changed")


def check_against(against: str, names: Sequence[str]) -> None:
    """Refuse a reference that isn't compared, and two methods of one name."""
    if against and against not in (*names, "vanilla"):
        raise BadInput(f"against={against!r} is not among the methods; use {', '.join(('vanilla', *names))}")
    twice = next((name for name in names if list(names).count(name) > 1 or name == "vanilla"), None)
    if twice is not None:
        raise BadInput(f"two methods are called {twice!r}; give one of them another name")


def table_of(rows: Sequence[Mapping[str, Any]], against: str) -> list[dict[str, Any]]:
    """One line for each data set and method, in the order of the rows."""
    lines = []
    for dataset, method in dict.fromkeys((one["dataset"], one["method"]) for one in rows):
        mine = [one for one in rows if (one["dataset"], one["method"]) == (dataset, method)]
        ran = [one for one in mine if "figures" in one]
        line: dict[str, Any] = {"dataset": dataset, "method": method, "n": len(ran)}
        line["reasons"] = list(dict.fromkeys(one.get("skipped") or one.get("failed") for one in mine if one not in ran))
        if ran:
            line |= {name: _spread([one["figures"][name] for one in ran]) for name in FIGURES}
            line |= {name: _mean([one["cost"][name] for one in ran]) for name in COSTS}
            line["labels"] = ran[0]["cost"]["labels"]
            if method != against:
                line["difference"] = _difference(ran, rows, dataset, against)
        lines.append(line)
    return lines


def _spread(values: Sequence[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None and value == value]
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return {"mean": _mean(known), "sd": deviation, "n": len(known)}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def _difference(
    ran: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], dataset: str, against: str
) -> dict[str, Any] | None:
    """{figure: the paired difference from the reference, over the seeds that both have}."""
    others = {
        one["seed"]: one for one in rows if (one["dataset"], one["method"]) == (dataset, against) and "figures" in one
    }
    pairs = [(one, others[one["seed"]]) for one in ran if one["seed"] in others]
    if not pairs:
        return None
    return {
        name: asdict(paired([a["figures"][name] for a, _ in pairs], [b["figures"][name] for _, b in pairs]))
        for name in ("unbiased", "worst_group")
    }
