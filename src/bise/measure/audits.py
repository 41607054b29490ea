"""How biased a model is: groups with intervals, information, fairness, calibration, and what a probe can read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput, caution
from bise.base.markup import tag
from bise.base.notebook import share, table
from bise.base.output import one_line
from bise.data.core.cells import Cells
from bise.data.core.contract import Alignment, Progress, labels, unloaded
from bise.data.core.guessing import guessed
from bise.engine.checks import check_model, check_outputs
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.measure.answers import Answers, metric_frame
from bise.measure.calibration import Sureness, calibration_by_group, expected_calibration_error, sureness_by_group
from bise.measure.fairness import demographic_parity_difference, equalized_odds_difference, true_positive_gaps
from bise.measure.gaps import Gap, Gaps, gaps
from bise.measure.groups import GroupAccuracy, group_accuracy, subset_accuracy, wilson
from bise.measure.information import mutual_information
from bise.measure.probes import Probe, linear_probe
from bise.measure.standing import Standing, standing
from bise.network.outputs import device_of
from bise.network.placement import one_bottleneck, place
from bise.network.subnetwork import Subnetwork


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
            lines.append(f"which samples are aligned and which conflict is a guess: {_guess(self.guessed)}")
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


def audit(
    model: nn.Module,
    data: Any,
    *,
    aligned: Alignment | Cells | None = None,
    bottleneck: str | None = None,
    probe: bool = True,
    seed: int = 0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Audit a model or a subnetwork on `data`; the model is not changed.

    Args:
        model: Any classifier of x that returns logits [N, C], one logit a sample, a tuple, or an object with
            `.logits`; or a subnetwork.
        data: A data set or DataLoader that yields (x, y, b).
        aligned: Which b goes with which y: a mapping {y: b}, or the cells of the training set,
            `bise.data.labels(train)`. On an unbiased test set no b is over-represented, so give it. Left out, the
            data set's own mapping is used, or else what is most over-represented in `data`.
        bottleneck: The layer whose input z [N, d] the probe reads, by its name; None finds the last linear layer.
        probe: Whether a linear probe reads each bias from the bottleneck.
        seed: For the probe's halves of the samples.
        workers: Processes that read data that are not in memory; None is up to four for picture files.
        progress: Called with (label, done, total); `bise.Bars()` shows bars.

    Returns:
        An `Audit`: accuracies with 95 % intervals, by group too, information in nats, fairness, calibration, the
        probe. Its `.standing` says whether the model knows anything at all.

    Raises:
        BadInput: The data don't yield (x, y, b), a label has no logit, or a weight or logit is not finite.

    Example:
        >>> audit = bise.audit(model, test, aligned=bise.data.labels(train))
        >>> audit.worst_group < audit.accuracy
        True
    """
    check_model(model)
    data = unloaded(data)
    cells = labels(data, aligned=None if isinstance(aligned, Cells) else aligned, progress=progress)
    if isinstance(aligned, Cells):
        aligned.check_covers(cells, "data")
        cells = cells.realigned(aligned.aligned_bias)
    inputs = Inputs(data, device_of(model), workers=workers)
    sub, found, skipped = _with_bottleneck(model, inputs, bottleneck, probe)
    if found is not None and int(cells.index[cells.known].bincount(minlength=1).max()) < 2:
        found, skipped = None, "no group has two samples, one to learn from and one to test on"
    seen = infer(sub, inputs, features=found, progress=progress, label="auditing")
    check_outputs(seen.logits, cells)
    confidence, predicted = seen.logits.softmax(1).max(1)
    correct = predicted == cells.y
    names, known = cells.names(), cells.known
    if not known.any():
        raise BadInput("no sample of data has all its bias labels, so there are no groups to audit; label some")
    all_aligned = cells.aligned.all(1)
    guess = guessed(cells)
    if guess:
        caution(
            f"which samples are aligned and which conflict is a guess: {_guess(guess)}; give"
            " aligned=bise.data.labels(train), or, to bise audit, data that have a train split"
        )
    by_cell = confidence[known], correct[known], cells.index[known]
    return Audit(
        groups=groups_of(cells, correct),
        aligned=_subset(correct, all_aligned),
        conflicting=_subset(correct, ~all_aligned & known),
        alignment="given" if cells.alignment_given else "measured",
        biases=tuple(_bias_audit(cells, k, predicted, seen.z, seed) for k in range(cells.biases)),
        calibration_error=expected_calibration_error(confidence, correct),
        calibration_by_group=calibration_by_group(*by_cell, names),
        sureness_by_group=sureness_by_group(*by_cell, names),
        standing=standing(
            cells.y,
            predicted,
            names={y: cells.label(0, y) for y in range(cells.classes)},
            aligned=all_aligned & known,
            conflicting=~all_aligned & known,
        ),
        n=len(cells),
        without_bias=cells.unknown,
        probe_skipped=skipped,
        guessed=guess,
        answers=Answers(cells=cells, predicted=predicted),
    )


def _guess(biases: tuple[str, ...]) -> str:
    named = " and ".join(map(one_line, biases))
    return f"in these data the target goes with {named} no more than by chance, and no training data say what is usual"


def groups_of(cells: Cells, correct: Tensor) -> GroupAccuracy:
    """Accuracies by group over the samples whose bias is known; the accuracy over samples is that of all."""
    grouping = cells.alignment_names() if cells.groups == "alignment" else None
    known = group_accuracy(correct[cells.known], cells.index[cells.known], cells.names(), grouping)
    if not cells.unknown:
        return known
    hits = int(correct.sum())
    interval = known.interval | {"accuracy": wilson(hits, len(correct))}
    return replace(known, accuracy=hits / len(correct), interval=interval)


def _with_bottleneck(
    model: nn.Module, inputs: Inputs, bottleneck: str | None, probe: bool
) -> tuple[Subnetwork, str | None, str | None]:
    """(the model as a subnetwork, its bottleneck, or else the reason why the probe has none)."""
    example = inputs.example()
    if isinstance(model, Subnetwork):
        model.place(example)
        plain, named = model.bare(), bottleneck or model.bottleneck
    else:
        plain, named = model, bottleneck
    placement = place(plain, example, gated=False)
    sub = model if isinstance(model, Subnetwork) else Subnetwork(model, (), owned=placement.moved)
    if not probe:
        return sub, None, "not asked for"
    try:
        return sub, one_bottleneck(placement, plain, named), None
    except BadInput as error:
        if bottleneck is not None:
            raise
        return sub, None, str(error)


def _bias_audit(cells: Cells, k: int, predicted: Tensor, z: Tensor | None, seed: int) -> BiasAudit:
    known = cells.known
    b, y, predicted = cells.b[known, k], cells.y[known], predicted[known]
    readable = z is not None and len(torch.unique(b)) > 1
    return BiasAudit(
        bias=cells.columns[k + 1],
        information_predicted=mutual_information(predicted, b),
        information_actual=mutual_information(y, b),
        demographic_parity_difference=demographic_parity_difference(y, predicted, b=b),
        equalized_odds_difference=equalized_odds_difference(y, predicted, b=b),
        true_positive_gaps=true_positive_gaps(y, predicted, b=b),
        gaps=gaps(y, predicted, b=b),
        probe=linear_probe(z.cpu()[known], b, cell=cells.index[known], seed=seed)
        if readable and z is not None
        else None,
    )


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
    """A field for JSON: dataclasses as dicts."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _subset(correct: Tensor, mask: Tensor) -> Subset:
    accuracy, interval, n = subset_accuracy(correct, mask)
    return Subset(accuracy=accuracy, interval=interval, n=n)


def _share(value: float, interval: tuple[float, float]) -> str:
    if math.isnan(value):
        return "   –                "
    return f"{100 * value:5.1f} % [{100 * interval[0]:5.1f}, {100 * interval[1]:5.1f}]"
