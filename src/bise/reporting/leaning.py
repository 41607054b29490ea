"""What the model leaned on, told within each class: how common a class is says nothing about the bias."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bise.measure.groups import Z95, Estimate, mean_of, proportion, z_apart
from bise.measure.standing import HARDLY
from bise.reporting.facts import Facts
from bise.reporting.matrix import helping
from bise.reporting.outcome import (
    is_ignorant,
    is_whole,
    nothing_closed,
    nothing_known,
    size_not_fairness,
)
from bise.reporting.words import cell_of, percent

ALIKE = 0.02
"""Accuracies no further apart are about the same to a reader, whatever their intervals."""


@dataclass(frozen=True, kw_only=True)
class Within:
    """Accuracy where every bias helps and where one misleads, each the mean over the classes that have both."""

    aligned: Estimate
    conflicting: Estimate
    everywhere: bool = True
    """Whether every class of the test data has both."""

    @property
    def leans(self) -> bool:
        """Whether the 95 % interval of their difference is above zero."""
        return z_apart(self.aligned, self.conflicting)


def within(facts: Facts, audit: dict[str, Any]) -> Within | None:
    """From the figures by group; None where no class has samples of both kinds.

    Over all samples at once, a model that can't see the bias seems to lean on it wherever the class that it knows
    better has more aligned samples.
    """
    counts: dict[tuple[int, bool], tuple[int, int]] = {}
    helps = helping(facts)
    for name, n in (audit.get("n_by_group") or {}).items():
        cell = cell_of(facts, name)
        if cell is None:
            return _of_alignments(audit)
        kind = cell[0], cell in helps
        right, seen = counts.get(kind, (0, 0))
        counts[kind] = right + round(audit["by_group"][name] * n), seen + n
    classes = [y for y, aligned in counts if aligned and (y, False) in counts]
    if not classes:
        return None
    return Within(
        aligned=mean_of([proportion(*counts[y, True]) for y in classes]),
        conflicting=mean_of([proportion(*counts[y, False]) for y in classes]),
        everywhere=len(classes) == len({y for y, _ in counts}),
    )


def _of_alignments(audit: dict[str, Any]) -> Within | None:
    """The same from groups such as "aligned, conflicting", which are means over classes already."""
    parts: dict[bool, list[Estimate]] = {True: [], False: []}
    for name, value in audit["by_group"].items():
        if not _by_alignment(name):
            return None
        low, high = audit["interval_by_group"][name]
        variance = (max(value - low, high - value) / Z95) ** 2  # one end may be clipped
        found = Estimate(value=value, variance=variance, interval=(low, high), n=audit["n_by_group"][name])
        parts["conflicting" not in name].append(found)
    if not parts[True] or not parts[False]:
        return None
    return Within(aligned=mean_of(parts[True]), conflicting=mean_of(parts[False]))


def _by_alignment(group: str) -> bool:
    return set(group.split(", ")) <= {"aligned", "conflicting"}


def evenly(facts: Facts, found: Within) -> str:
    """What such figures are means of."""
    return f"each {facts.target}{'' if found.everywhere else ' with both kinds'} counting evenly"


def of_kind(facts: Facts, audit: dict[str, Any], name: str) -> tuple[float | None, Any]:
    """Accuracy and interval of aligned or conflicting samples: the headline's, or over all such samples."""
    found = within(facts, audit)
    if found is None:
        return audit[name]["accuracy"], audit[name]["interval"]
    part = found.aligned if name == "aligned" else found.conflicting
    return part.value, part.interval


def headline(facts: Facts) -> str:
    """The page in one or two sentences, no stronger than the intervals allow."""
    models, bias = facts.models, facts.bias
    before, after = models.get("vanilla"), models.get("subnetwork")
    if before is None:
        return "A subnetwork was extracted; without a test split there is nothing to compare it on."
    if is_ignorant(before):
        judged = "" if after is None else " What was extracted from it can’t be judged before that is put right."
        return f"{nothing_known(facts, before, 'This model')} Nothing on this page says that it is fair.{judged}"
    verb = "leans" if after is None else "leaned"
    was = within(facts, before)
    if was is None:
        why = f"no {facts.target} has test samples where {facts.helps} and others where {facts.misleads}"
        if any(cell_of(facts, name) is None and not _by_alignment(name) for name in before["by_group"]):
            why = "the summary doesn’t list so many groups"
        elif not facts.data.get("aligned"):
            why = f"the summary doesn’t say which {bias} helps"
        first = (
            f"Whether this model {verb} on {bias} can’t be told: {why}."
            f" It is right on {percent(before['unbiased'])} as the mean of all groups."
        )
    else:
        help_ = "it helps" if len(facts.biases) == 1 else facts.helps
        figures = f"{percent(was.aligned.value)} where {help_}, {evenly(facts, was)}"
        wrong = percent(was.conflicting.value)
        if was.leans:
            first = f"This model {verb} on {bias}: {wrong} right where {facts.misleads} it, {figures}."
        else:
            shows = f"shows no clear lean on {bias}"
            if (before.get("standing") or {}).get("state") == HARDLY:
                shows = f"is hardly better than guessing, so that it can’t show a lean on {bias}"
            first = f"This model {shows}: {wrong} right where it might mislead, {figures}."
    return first if after is None else f"{first} {_gain(facts, before, after)}"


def _gain(facts: Facts, before: dict[str, Any], after: dict[str, Any]) -> str:
    """What the subnetwork gets where the bias misleads, or as the mean of all groups where no class tells."""
    if is_ignorant(after):
        return nothing_known(facts, after, "The subnetwork")
    if is_whole(facts):
        return nothing_closed(facts)
    return " ".join(filter(None, (_compared(facts, before, after), _against_dense(facts))))


def _against_dense(facts: Facts) -> str:
    """That the mask gives size and not fairness, where finetuning does as much without it."""
    tuned, dense = facts.models.get("finetuned"), facts.models.get("dense_finetuned")
    if tuned is None or dense is None or is_ignorant(dense):
        return ""
    one, other = within(facts, tuned), within(facts, dense)
    if one is None or other is None:
        return size_not_fairness(_unbiased(tuned), _unbiased(dense), "as the mean of all groups", ALIKE)
    return size_not_fairness(one.conflicting, other.conflicting, f"where {facts.misleads}", ALIKE)


def _unbiased(audit: dict[str, Any]) -> Estimate:
    low, high = audit["interval"]["unbiased"]
    return Estimate(value=audit["unbiased"], variance=math.nan, interval=(low, high), n=audit["n"])


def _compared(facts: Facts, before: dict[str, Any], after: dict[str, Any]) -> str:
    """The subnetwork's figure against the model's, no stronger than the intervals allow."""
    was, now = within(facts, before), within(facts, after)
    if was is not None and now is not None:
        old, new, where = was.conflicting, now.conflicting, f"where {facts.misleads}"
        (low, high), (least, most), value, difference = old.interval, new.interval, new.value, new.value - old.value
    else:
        where = "as the mean of all groups"
        (low, high), (least, most) = before["interval"]["unbiased"], after["interval"]["unbiased"]
        value, difference = after["unbiased"], after["unbiased"] - before["unbiased"]
    kept = _kept(facts)
    weights = " and not one weight changed" if facts.weights_kept else ""
    figure = f"{percent(value)} {where}"
    if least > high:
        return f"The subnetwork inside it gets {figure}{_at_a_price(facts, before, after)}, with {kept}{weights}."
    if most < low:
        return f"The subnetwork does worse: {figure}, with {kept}."
    if abs(difference) > ALIKE:
        word = "better" if difference > 0 else "worse"
        return f"The subnetwork does {word}, though so few samples leave doubt: {figure}, with {kept}{weights}."
    return f"The subnetwork does about as well: {figure}, with {kept}{weights}."


def _at_a_price(facts: Facts, before: dict[str, Any], after: dict[str, Any]) -> str:
    """What a gain where the bias misleads has cost where it helps, if all groups together haven't surely gained."""
    was, now = within(facts, before), within(facts, after)
    if was is None or now is None or now.aligned.interval[1] >= was.aligned.interval[0]:
        return ""
    if after["interval"]["unbiased"][0] > before["interval"]["unbiased"][1]:
        return ""
    return (
        f", but only {percent(now.aligned.value)} where {facts.helps}, {percent(was.aligned.value)} before, and"
        f" {percent(after['unbiased'])} as the mean of all groups, {percent(before['unbiased'])} before"
    )


def _kept(facts: Facts) -> str:
    size = facts.shrunk.get("parameters")
    if size:
        return f"{percent(size['shrunk'] / max(1, size['dense']))} of the parameters"
    units = facts.summary["subnetwork"].get("units")
    return f"{percent(units['open'] / max(1, units['all']))} of the units" if units else "its mask"
