"""What an audit found: its figures, and how they are said and shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

from bise.base.markup import tag
from bise.base.notebook import share, table
from bise.base.output import one_line
from bise.measure.answers import Answers, metric_frame
from bise.measure.calibration import Sureness
from bise.measure.gaps import Gap, Gaps
from bise.measure.groups import GroupAccuracy
from bise.measure.probes import Probe
from bise.measure.standing import Standing


@dataclass(frozen=True, kw_only=True)
class Subset:
    """Accuracy over some of the samples, with its 95 % interval."""

    accuracy: float
    interval: tuple[float, float]
    n: int


@dataclass(frozen=True, kw_only=True)
class BiasAudit:
    """What concerns one bias. Information in nats; gaps are differences of rates, 0 the fairest."""

    bias: str
    """What it is called."""
    information_predicted: float
    """I(Ŷ; B): how much the predictions tell about the bias …"""
    information_actual: float
    """… against I(Y; B), how much the targets themselves do."""
    demographic_parity_difference: float
    equalized_odds_difference: float
    true_positive_gaps: dict[int, float]
    gaps: Gaps
    """The same three with 95 % intervals, and between which values of the bias they are."""
    probe: Probe | None
    """How well a fresh linear probe reads b from the bottleneck, and what a constant answer would reach; all cells
    count evenly in both."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The audit of a model on a data set; every accuracy is a share of 1."""

    groups: GroupAccuracy
    aligned: Subset
    """Samples that are aligned in every bias."""
    conflicting: Subset
    """Samples that conflict in at least one."""
    alignment: str
    """Whether aligned biases were "given" or "measured" on this very data set."""
    biases: tuple[BiasAudit, ...]
    calibration_error: float
    calibration_by_group: dict[str, float]
    sureness_by_group: dict[str, Sureness]
    """By how much the model is too sure of itself, with 95 % intervals."""
    standing: Standing | None
    """Its answers against guessing; None where the data has one class. Where `standing.ignorant`, no figure of fairness
    counts."""
    n: int
    without_bias: int
    """Samples whose bias is not known: they count in `accuracy` alone."""
    probe_skipped: str | None = None
    guessed: tuple[str, ...] = ()
    """Biases whose alignment is a guess: nobody gave it, and here target and bias go together by chance alone."""
    answers: Answers = field(compare=False, repr=False)
    """What each sample's label is, and what the model says; not part of `as_dict`."""

    @property
    def accuracy(self) -> float:
        """Over samples."""
        return self.groups.accuracy

    @property
    def unbiased(self) -> float:
        """The mean over groups."""
        return self.groups.unbiased

    @property
    def worst_group(self) -> float:
        """The minimum over groups."""
        return self.groups.worst_group

    @property
    def by_group(self) -> dict[str, float]:
        return self.groups.by_group

    @property
    def mutual_information(self) -> tuple[tuple[float, float], ...]:
        """(I(Ŷ; B), I(Y; B)) in nats, for each bias: a model is biased where the first exceeds the second."""
        return tuple((b.information_predicted, b.information_actual) for b in self.biases)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the group figures at the top, the rest below them."""
        content = {one.name: _plain(getattr(self, one.name)) for one in fields(self) if one.name != "answers"}
        return content.pop("groups") | content

    @property
    def warning(self) -> str:
        """What is said before everything else of a model that knows little or nothing; empty for others."""
        return "" if self.standing is None else self.standing.says

    def to_metric_frame(self, metrics: Mapping[str, Callable[..., Any]] | None = None, *, by: str = "cell") -> Any:
        """fairlearn's MetricFrame of the same answers, over the samples whose bias is known.

        Args:
            metrics: {name: metric(y_true, y_pred)}, as fairlearn takes them; left out, accuracy and count, and with
                by="bias" and two classes the rates of selection, true and false positives as well.
            by: Whose samples a row is about. "cell": of a target and a bias, so that the accuracies are those of
                `by_group`, where groups are cells. "bias": of a bias alone, as fairlearn's own differences take it.

        Returns:
            A `fairlearn.metrics.MetricFrame`; labels are numbers in it, and groups have the names of the data set.

        Raises:
            BadInput: fairlearn is not installed (`pip install 'bise[fairness]'`), or `by` is unknown.

        Example:
            >>> audit = bise.audit(model, test)
            >>> bool(audit.to_metric_frame().group_min()["accuracy"] == audit.worst_group)
            True
        """
        return metric_frame(self.answers, metrics, by)

    def __str__(self) -> str:
        lines = [f"MIND: {one_line(self.warning)}"] if self.warning else []
        lines += [
            f"accuracy    {_share(self.accuracy, self.groups.interval['accuracy'])}  over {self.n} samples",
            f"unbiased    {_share(self.unbiased, self.groups.interval['unbiased'])}  mean over"
            f" {len(self.by_group)} groups",
            f"worst group {_share(self.worst_group, self.groups.interval['worst_group'])}"
            f"  {one_line(self.groups.worst_group_name)}",
            f"aligned     {_share(self.aligned.accuracy, self.aligned.interval)}  {self.aligned.n} samples",
            f"conflicting {_share(self.conflicting.accuracy, self.conflicting.interval)}  {self.conflicting.n} samples",
        ]
        if len(self.by_group) > 1:
            lines.append(
                "the worst group's interval is that of this group by itself: the lowest of"
                f" {len(self.by_group)} is too low by chance"
            )
        if self.guessed:
            lines.append(f"which samples are aligned and which conflict is a guess: {said_of_guess(self.guessed)}")
        if self.without_bias:
            lines.append(f"{self.without_bias} samples lack a bias label and count in accuracy alone")
        for bias in self.biases:
            lines += _bias_lines(bias, void=self.standing is not None and self.standing.ignorant)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Accuracies with their 95 % intervals, then the worst groups."""
        groups = self.groups
        rows: list[tuple[Any, ...]] = [
            ("accuracy", *share(self.accuracy, groups.interval["accuracy"]), f"{self.n:,} samples"),
            ("unbiased", *share(self.unbiased, groups.interval["unbiased"]), f"mean over {len(self.by_group)} groups"),
            (
                "worst group",
                *share(self.worst_group, groups.interval["worst_group"]),
                f"{groups.worst_group_name}, by itself",
            ),
            ("aligned", *share(self.aligned.accuracy, self.aligned.interval), f"{self.aligned.n:,} samples"),
            (
                "conflicting",
                *share(self.conflicting.accuracy, self.conflicting.interval),
                f"{self.conflicting.n:,} samples",
            ),
        ]
        if self.without_bias:
            rows.append(("no bias label", "", "", f"{self.without_bias:,} samples, in accuracy alone"))
        worst = sorted(self.by_group, key=lambda name: self.by_group[name])[:5]
        below = [
            (name, *share(self.by_group[name], groups.interval_by_group[name]), f"{groups.n_by_group[name]:,} samples")
            for name in worst
        ]
        head = ("", "right", "95 % interval", "over")
        mind = tag("p", tag("b", "Mind: "), self.warning) if self.warning else None
        return str(tag("div", mind, table("Audit", head, rows), table("The worst groups", ("group", *head[1:]), below)))


def said_of_guess(biases: tuple[str, ...]) -> str:
    named = " and ".join(map(one_line, biases))
    return f"in these data the target goes with {named} no more than by chance, and no training data say what is usual"


def _bias_lines(bias: BiasAudit, *, void: bool) -> list[str]:
    """What concerns one bias; where the model knows nothing (`void`), that its gaps say nothing."""
    name = one_line(bias.bias)
    parity, odds = bias.gaps.demographic_parity, bias.gaps.equalized_odds
    said = f"{name}: I(Ŷ;B) = {bias.information_predicted:.3f}, I(Y;B) = {bias.information_actual:.3f} nats; "
    said += f"demographic parity {_gap(bias.demographic_parity_difference, parity)}, "
    said += f"equalised odds {_gap(bias.equalized_odds_difference, odds)}"
    lines = [said + (" (these say nothing of a model that knows nothing)" if void else "")]
    if bias.probe is not None:
        lines.append(
            f"{name}: a linear probe reads it from the bottleneck with {100 * bias.probe.accuracy:.1f} %"
            f" (a constant answer: {100 * bias.probe.chance:.1f} %), all groups counting evenly"
        )
    return lines


def _gap(value: float, found: Gap | None) -> str:
    if found is None or found.interval is None:
        return f"{value:.3f}"
    return f"{value:.3f} [{found.interval[0]:.3f}, {found.interval[1]:.3f}]"


def _plain(value: Any) -> Any:
    """A field for JSON: dataclasses as dicts, at any depth."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _share(value: float, interval: tuple[float, float]) -> str:
    if math.isnan(value):
        return "   –                "
    return f"{100 * value:5.1f} % [{100 * interval[0]:5.1f}, {100 * interval[1]:5.1f}]"
