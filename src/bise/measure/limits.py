"""Whether an audit keeps a limit: it does, it doesn't, or the samples are too few to tell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import torch

from bise.base.errors import BadInput
from bise.base.output import one_line
from bise.measure.found import Audit
from bise.measure.groups import Z95, Estimate

UNDER = ("accuracy", "unbiased", "worst_group", "aligned", "conflicting")
"""Figures that may have a lower limit."""
GAPS = ("groups", "conflicting")
"""Gaps that may have an upper limit: best − worst group, and aligned − conflicting samples."""
ERROR = 0.05
"""One minus the confidence of the intervals."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A limit, and what the audit says of it; figures are shares of 1."""

    figure: str
    """Such as "worst_group", or "gap of groups"."""
    limit: float
    is_gap: bool
    """Whether the limit is the most that is allowed, and not the least."""
    value: float
    interval: tuple[float, float]
    """At least 95 %, for the group or pair that is the worst in truth, whichever that is."""
    where: str
    """The group or groups that have the value."""
    is_void: bool = False
    """Whether it is a gap of a model that knows nothing: guesses are even, and no such model is fair."""

    @property
    def outcome(self) -> str:
        """ "passes" where the whole interval keeps the limit, "fails" where none of it does, else "undecided"."""
        if self.is_void:
            return "fails"
        low, high = self.interval
        kept, missed = (high <= self.limit, low > self.limit) if self.is_gap else (low >= self.limit, high < self.limit)
        return "passes" if kept else "fails" if missed else "undecided"

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome}

    def __str__(self) -> str:
        low, high = (100 * end for end in self.interval)
        least = "at most" if self.is_gap else "at least"
        about = f" ({one_line(self.where)})" if self.where else ""
        said = (
            f"{self.figure} {self.outcome}: {100 * self.value:.1f} % [{low:.1f}, {high:.1f}]{about}, and the limit is"
            f" {least} {100 * self.limit:g} %"
        )
        said += "; the model knows nothing, so that a small gap says nothing" if self.is_void else ""
        return said + ("; more samples would decide it" if self.outcome == "undecided" else "")


def judge(
    audit: Audit, *, under: Mapping[str, float] | None = None, gap: Mapping[str, float] | float | None = None
) -> tuple[Verdict, ...]:
    """Hold an audit against limits, its intervals counted, so that noise alone fails nothing.

    Args:
        audit: What `bise.audit` returned.
        under: {figure: least share}; a figure is "accuracy", "unbiased", "worst_group", "aligned" or "conflicting".
        gap: {gap: largest share}; a gap is "groups", the best group's accuracy minus the worst one's, or
            "conflicting", that of aligned samples minus that of conflicting ones. A number alone is for "groups".

    Returns:
        One verdict for each limit. Its `.outcome` is "passes" where the whole 95 % interval keeps the limit, "fails"
        where none of it does, and "undecided" where the interval spans the limit. A gap of a model that knows nothing
        (`audit.standing.ignorant`) always fails.

    Raises:
        BadInput: A figure is unknown, or the data have no sample of it; a limit is no share of 1.

    Example:
        >>> verdicts = bise.judge(bise.audit(model, test), under={"worst_group": 0.2}, gap=0.9)
        >>> [verdict.outcome for verdict in verdicts]
        ['passes', 'passes']
    """
    gaps = {"groups": gap} if isinstance(gap, (int, float)) else dict(gap or {})
    check_limits(dict(under or {}), gaps)
    return (
        *(_under(audit, figure, limit) for figure, limit in (under or {}).items()),
        *(_gap(audit, figure, limit) for figure, limit in gaps.items()),
    )


def check_limits(under: Mapping[str, float], gap: Mapping[str, float]) -> None:
    """Refuse what no limit can be, before there is work behind it."""
    for argument, given, known in (("under", under, UNDER), ("gap", gap, GAPS)):
        for figure, limit in given.items():
            if figure not in known:
                raise BadInput(f"{argument}=… names {figure!r}, which is unknown; use {', '.join(known)}")
            if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 0 <= limit <= 1:
                raise BadInput(f"{argument}=… gives {figure} the limit {limit}; give a share from 0 to 1, such as 0.8")


def _under(audit: Audit, figure: str, limit: float) -> Verdict:
    value, interval, where = getattr(audit, figure), None, ""
    if figure in ("aligned", "conflicting"):
        value, interval = value.accuracy, value.interval
        if math.isnan(value):
            raise BadInput(f"under=… is about {figure} samples, and the data have none; leave it out or add some")
    elif figure == "worst_group":
        interval, where = _worst(audit), audit.groups.worst_group_name
    else:
        interval = audit.groups.interval[figure]
    return Verdict(figure=figure, limit=limit, is_gap=False, value=value, interval=interval, where=where)


def _worst(audit: Audit) -> tuple[float, float]:
    """An interval for the smallest of the groups' true accuracies, whichever group has it.

    It is below the least lower bound only if that group's own is wrong; it is above the least upper bound only if one
    of them is, so that these share the error among the groups.
    """
    answers = audit.answers
    usual = answers.estimates()
    wide = answers.estimates(_quantile(ERROR / 2 / len(usual)))
    return min(one.interval[0] for one in usual.values()), min(one.interval[1] for one in wide.values())


def _gap(audit: Audit, figure: str, limit: float) -> Verdict:
    answers = audit.answers
    if figure == "conflicting":
        usual, other = answers.subset(aligned=True), answers.subset(aligned=False)
        if usual is None or other is None:
            raise BadInput("gap=… compares aligned with conflicting samples, and the data lack one; add some")
        value, interval, where = usual.value - other.value, _difference(usual, other), "aligned − conflicting"
    else:
        groups = answers.estimates()
        worst, best = (end(groups, key=lambda name: groups[name].value) for end in (min, max))
        value, where = groups[best].value - groups[worst].value, f"{best} − {worst}"
        interval = _range(answers.estimates(_quantile(ERROR / 2 / max(1, len(groups) * (len(groups) - 1)))), groups)
    void = audit.standing is not None and audit.standing.ignorant
    return Verdict(
        figure=f"gap of {figure}", limit=limit, is_gap=True, value=value, interval=interval, where=where, is_void=void
    )


def _range(wide: dict[str, Estimate], usual: dict[str, Estimate]) -> tuple[float, float]:
    """An interval for the largest difference of two groups' true accuracies, whichever two they are.

    As for the worst group: the upper bound is that of a pair by itself, and the lower bounds share the error.
    """
    if len(usual) < 2:
        return 0.0, 0.0
    (value, low, high), (_, wide_low, wide_high) = _ends(usual), _ends(wide)
    least, most = 0.0, 0.0
    for i in range(len(value)):  # group by group: all pairs at once take gigabytes where there are many
        difference = value[i] - value
        below = difference - torch.hypot(value[i] - wide_low[i], wide_high - value)
        above = difference + torch.hypot(high[i] - value[i], value - low)
        below[i] = above[i] = 0
        least, most = max(least, float(below.max())), max(most, float(above.max()))
    return least, min(1.0, most)


def _difference(first: Estimate, second: Estimate) -> tuple[float, float]:
    """Newcombe's interval for p − q: each end is as far off as the ends of p's and of q's are together."""
    p, (low, high) = first.value, first.interval
    q, (least, most) = second.value, second.interval
    return p - q - math.hypot(p - low, most - q), p - q + math.hypot(high - p, q - least)


def _ends(estimates: dict[str, Estimate]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(values, lower ends, upper ends), [groups] each."""
    rows = [(one.value, *one.interval) for one in estimates.values()]
    value, low, high = torch.tensor(rows, dtype=torch.float64).T
    return value, low, high


def _quantile(error: float) -> float:
    """z with P(Z > z) = error."""
    return Z95 if error == ERROR / 2 else NormalDist().inv_cdf(1 - error)
