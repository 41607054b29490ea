"""How biased a model is: groups with intervals, information, fairness, calibration, and what a probe can read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput, caution
from bise.data.core.cells import Cells
from bise.data.core.contract import Alignment, Progress, labels, unloaded
from bise.data.core.guessing import guessed
from bise.engine.checks import check_model, check_outputs
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.measure.answers import Answers
from bise.measure.calibration import calibration_by_group, expected_calibration_error, sureness_by_group
from bise.measure.fairness import demographic_parity_difference, equalized_odds_difference, true_positive_gaps
from bise.measure.found import Audit, BiasAudit, Subset, said_of_guess
from bise.measure.gaps import Gaps, gaps
from bise.measure.groups import GroupAccuracy, group_accuracy, subset_accuracy, wilson
from bise.measure.information import mutual_information
from bise.measure.probes import linear_probe
from bise.measure.standing import standing
from bise.network.outputs import device_of
from bise.network.placement import one_bottleneck, place
from bise.network.subnetwork import Subnetwork


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
            f"which samples are aligned and which conflict is a guess: {said_of_guess(guess)}; give"
            " aligned=bise.data.labels(train), or, to bise audit, data that have a train split"
        )
    by_cell = confidence[known], correct[known], cells.index[known]
    biases = tuple(_bias_audit(cells, k, predicted, seen.z, seed) for k in range(cells.biases))
    return Audit(
        groups=groups_of(cells, correct),
        aligned=_subset(correct, all_aligned),
        conflicting=_subset(correct, ~all_aligned & known),
        alignment="given" if cells.alignment_given else "measured",
        biases=biases,
        calibration_error=expected_calibration_error(confidence, correct),
        calibration_by_group=calibration_by_group(*by_cell, names),
        sureness_by_group=sureness_by_group(*by_cell, names),
        standing=standing(
            cells.y,
            predicted,
            names={y: cells.label(0, y) for y in range(cells.classes)},
            aligned=all_aligned & known,
            conflicting=~all_aligned & known,
            uneven=any(_is_uneven(bias.gaps) for bias in biases),
        ),
        n=len(cells),
        without_bias=cells.unknown,
        probe_skipped=skipped,
        guessed=guess,
        answers=Answers(cells=cells, predicted=predicted),
    )


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


def _is_uneven(found: Gaps) -> bool:
    """Whether samples of one class surely get other answers where their bias differs."""
    odds = found.equalized_odds
    return odds is not None and odds.interval is not None and odds.interval[0] > 0


def _subset(correct: Tensor, mask: Tensor) -> Subset:
    accuracy, interval, n = subset_accuracy(correct, mask)
    return Subset(accuracy=accuracy, interval=interval, n=n)
