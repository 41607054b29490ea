"""What the page needs beyond an audit: a curve over thresholds, and samples with both predictions, as small JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.files import write_json
from bise.data.core.cells import Cells
from bise.data.core.contract import Progress, labels
from bise.engine.inputs import Inputs
from bise.measure.showing import Shower
from bise.network.gates import threshold
from bise.network.outputs import call, class_logits, device_of, tensors_in
from bise.network.subnetwork import Subnetwork

POINTS = 18
"""Thresholds on the curve, about."""
MOST_SAMPLES = 5000
"""Beyond this the curve is taken on a part, drawn evenly over the cells."""
MOST_BYTES = 1 << 30
"""Of inputs that are held for the curve; larger pictures make it a smaller part."""
MOST_CELLS = 2000
"""Beyond this the curve keeps no figures by group."""
SAMPLES = 120
"""Sample inputs on the page."""
SAMPLE_BYTES = 600_000


def gather(
    folder: Path,
    model: nn.Module,
    sub: Subnetwork,
    data: Any,
    *,
    split: str,
    train: Cells,
    progress: Progress | None = None,
) -> None:
    """Write `thresholds.json` and `samples.json` for a run, measured on `data`, its test or validation split."""
    cells = labels(data, progress=progress)
    cells = cells.realigned(train.aligned_bias)
    inputs = Inputs(data, device_of(model))
    one = sum(t.numel() * t.element_size() for t in tensors_in(inputs.example(1)))
    index = spread(cells, max(1, min(MOST_SAMPLES, MOST_BYTES // max(1, one))))
    batches: list[Any] = []  # held, so that pictures are decoded and texts tokenised once and not for each threshold
    read = 0
    for x, part in inputs.batches(index, inputs.roomy_batch()):
        batches.append(x)
        read += len(part)
        if progress is not None:
            progress("report: reading", read, len(index))
    before = predictions(Subnetwork(model, ()), batches)
    points, after = _curve(sub, cells, index, batches, progress)
    about = {"split": split, "samples": len(index), "of": int(cells.known.sum()), "chosen": 0.5}
    write_json(folder / "thresholds.json", {**about, "points": points})
    kind = kinds(cells, index, before, after)
    shown = _shown(Shower(data, inputs), cells, index, kind, before=before, after=after, progress=progress)
    about = {
        "split": split,
        "looked_at": len(index),
        "of": int(cells.known.sum()),
        "answers": answers(cells, index, kind),
    }
    write_json(folder / "samples.json", {**about, "samples": shown})


def _curve(
    sub: Subnetwork, cells: Cells, index: Tensor, batches: Sequence[Any], progress: Progress | None
) -> tuple[list[dict[str, Any]], Tensor]:
    """Figures of the samples `index` at each threshold until a site is closed wholly, and the classes at ζ = 0.5."""
    cuts = thresholds(sub.scores)
    points: list[dict[str, Any]] = []
    after = torch.empty(0)
    for done, zeta in enumerate(cuts):
        at = sub if zeta == 0.5 else sub.at(zeta)
        predicted = predictions(at, batches)
        if zeta == 0.5:
            after = predicted
        points.append({"zeta": zeta} | _kept(at) | figures(cells, index, predicted == cells.y[index]))
        dead = zeta > 0.5 and bool(points[-1]["closed_sites"])  # nothing passes any more, nor will it further on
        if progress is not None:
            progress("report: thresholds", len(cuts) if dead else done + 1, len(cuts))
        if dead:
            break
    if len(points[0]["groups"]) > MOST_CELLS:
        for point in points:
            point["groups"] = {}
    return points, after


def _shown(
    shower: Shower,
    cells: Cells,
    index: Tensor,
    kind: Tensor,
    *,
    before: Tensor,
    after: Tensor,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    """The samples for the page, as long as there is room, with the class that each network gives them."""
    chosen = choose(cells, index, kind)
    shown: list[dict[str, Any]] = []
    size = 0
    for done, place in enumerate(chosen):
        number = int(index[place])
        content = shower(number)
        size += len(str(content))
        if size > SAMPLE_BYTES:
            break
        shown.append(
            {
                "index": number,
                "y": int(cells.y[number]),
                "b": cells.b[number].tolist(),
                "group": group_names(cells)[int(cells.index[number])],
                "aligned": bool(cells.aligned[number].all()),
                "before": int(before[place]),
                "after": int(after[place]),
                **content,
            }
        )
        if progress is not None:
            progress("report: samples", done + 1, len(chosen))
    return shown


@torch.no_grad()
def predictions(sub: Subnetwork, batches: Sequence[Any]) -> Tensor:
    """[N]: the class that the network gives each sample."""
    sub.eval()
    return torch.cat([class_logits(call(sub, x)).argmax(1).cpu() for x in batches])


def spread(cells: Cells, most: int) -> Tensor:
    """Indices of samples with known biases, in order: all, or `most` of them, as even over the cells as they go."""
    known = cells.known.nonzero().flatten()
    if len(known) <= most:
        return known
    shuffled = known[torch.randperm(len(known), generator=torch.Generator().manual_seed(0))]
    order = cells.index[shuffled].argsort(stable=True)
    sizes = cells.counts[cells.counts > 0]
    rank = torch.cat([torch.arange(int(size)) for size in sizes])  # the place of each sample within its cell
    taken = rank.argsort(stable=True)[:most]
    return shuffled[order][taken].sort().values


def thresholds(scores: dict[str, Tensor], points: int = POINTS) -> list[float]:
    """Thresholds ζ from 0 (all open) on, each with a mask of its own, about evenly spaced in units kept; 0.5 is one.

    Between two neighbouring scores every ζ gives the same mask, so the roundest of them stands for all.
    """
    flat = torch.cat([score.double().flatten().cpu() for score in scores.values()]) if scores else torch.zeros(0)
    values = torch.unique(flat)  # sorted
    if len(values) < 2:
        return [0.0, 0.5]
    probability = values.sigmoid()
    found = {0.0, 0.5}
    learned = int((values < 0).sum())  # ζ = 0.5 drops these values
    total = len(flat)
    wanted = [round(total * i / (points - 1)) for i in range(1, points - 1)]
    dropped = [int((flat < value).sum()) for value in values]
    for want in wanted:
        k = min(range(1, len(values)), key=lambda i: abs(dropped[i] - want))
        if k == learned:
            continue
        zeta = roundest(float(probability[k - 1]), float(probability[k]))
        if zeta is not None and threshold(zeta) > float(values[k - 1]) and threshold(zeta) <= float(values[k]):
            found.add(zeta)
    return sorted(found)


def roundest(low: float, high: float) -> float | None:
    """The number of fewest decimals in (low, high], nearest to the middle; None where 12 don't tell them apart."""
    middle = (low + high) / 2
    for digits in range(1, 13):
        for value in (round(middle, digits), math.floor(high * 10**digits) / 10**digits):
            if low < value <= high and 0 < value < 1:
                return value
    return None


def figures(cells: Cells, index: Tensor, correct: Tensor) -> dict[str, Any]:
    """Accuracies from the samples `index`, each cell weighed by how many samples it has in all."""
    of = cells.index[index]
    drawn = torch.bincount(of, minlength=len(cells.counts))
    hits = torch.bincount(of[correct], minlength=len(cells.counts))
    filled = drawn > 0
    share = torch.where(filled, hits.float() / drawn.clamp_min(1), 0.0).double()
    weight = cells.counts.double() * filled
    all_aligned = torch.zeros_like(filled)
    for cell in filled.nonzero().flatten().tolist():
        y, *b = cells.labels_of(cell)
        all_aligned[cell] = all(int(cells.aligned_bias[k, y]) == v for k, v in enumerate(b))
    members: dict[str, list[float]] = {}
    names = group_names(cells)
    for cell in filled.nonzero().flatten().tolist():
        members.setdefault(names[cell], []).append(float(share[cell]))
    groups = {name: sum(values) / len(values) for name, values in members.items()}
    return {
        "accuracy": _weighed(share, weight),
        "unbiased": sum(groups.values()) / max(1, len(groups)),
        "worst_group": min(groups.values(), default=math.nan),
        "aligned": _weighed(share, weight * all_aligned),
        "conflicting": _weighed(share, weight * ~all_aligned),
        "within": within(cells, share, weight * filled, all_aligned, names),
        "groups": {name: round(value, 4) for name, value in groups.items()},
    }


def within(
    cells: Cells, share: Tensor, weight: Tensor, aligned: Tensor, names: Mapping[int, str]
) -> dict[str, float] | None:
    """Aligned and conflicting as means over the classes that have both, from each cell's share of right answers.

    So the page's headline takes them. Groups by alignment are means over classes already; None where no class has both.
    """
    if cells.groups == "alignment":
        means = {name: [float(share[i]) for i in names if names[i] == name and weight[i]] for name in names.values()}
        groups = {name: sum(found) / len(found) for name, found in means.items() if found}
        kinds = {key: [v for name, v in groups.items() if ("conflicting" in name) == key] for key in (False, True)}
        if not all(kinds.values()):
            return None
        return {key: sum(kinds[c]) / len(kinds[c]) for key, c in (("aligned", False), ("conflicting", True))}
    y = torch.tensor([cells.labels_of(cell)[0] for cell in range(len(share))])
    sums = torch.zeros(2, 2, cells.classes, dtype=torch.float64)  # [right or all, aligned or conflicting, class]
    for k, part in enumerate((aligned, ~aligned)):
        sums[0, k].index_add_(0, y, share * weight * part)
        sums[1, k].index_add_(0, y, weight * part)
    both = (sums[1] > 0).all(0)
    if not both.any():
        return None
    means_ = (sums[0][:, both] / sums[1][:, both]).mean(1).tolist()
    return {"aligned": means_[0], "conflicting": means_[1]}


def kinds(cells: Cells, index: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """[n]: 0 wrong before and right now, 1 right before and wrong now, 2 wrong both times, 3 right both times."""
    was, now = before == cells.y[index], after == cells.y[index]
    return torch.where(was, torch.where(now, 3, 1), torch.where(now, 0, 2))


def answers(cells: Cells, index: Tensor, kind: Tensor) -> dict[str, int]:
    """How many samples of the whole split there are of each kind, by the samples `index`, as `figures` weighs them."""
    drawn = torch.bincount(cells.index[index], minlength=len(cells.counts))
    weight = (cells.counts.double() / drawn.clamp_min(1))[cells.index[index]]
    named = ("mended", "broken", "wrong", "right")
    counts = torch.bincount(kind, weights=weight, minlength=len(named))
    return dict(zip(named, counts.round().long().tolist(), strict=True))


def choose(cells: Cells, index: Tensor, kind: Tensor, count: int = SAMPLES) -> list[int]:
    """Places in `index` of the samples to show: half mended, a quarter broken, spread over the cells; flips first."""
    shuffled = torch.randperm(len(index), generator=torch.Generator().manual_seed(0)).tolist()
    taken: dict[int, int] = {}
    chosen: list[int] = []
    for wanted, share in ((0, 1 / 2), (1, 3 / 4), (2, 7 / 8), (3, 1.0)):
        queues: dict[int, list[int]] = {}
        for place in shuffled:
            if kind[place] == wanted:
                queues.setdefault(int(cells.index[index[place]]), []).append(place)
        while queues and len(chosen) < round(count * share):
            cell = min(queues, key=lambda cell: taken.get(cell, 0))  # the cell that has been shown least
            chosen.append(queues[cell].pop())
            taken[cell] = taken.get(cell, 0) + 1
            queues = {cell: queue for cell, queue in queues.items() if queue}
    mixed = torch.randperm(len(chosen), generator=torch.Generator().manual_seed(1)).tolist()
    return sorted((chosen[i] for i in mixed), key=lambda place: int(kind[place]) > 1)


def group_names(cells: Cells) -> dict[int, str]:
    return cells.alignment_names() if cells.groups == "alignment" else cells.names()


def _weighed(share: Tensor, weight: Tensor) -> float:
    total = float(weight.sum())
    return float((share * weight).sum()) / total if total else math.nan


def _kept(sub: Subnetwork) -> dict[str, Any]:
    masks = sub.masks
    kept, total = sub.units
    closed: Sequence[str] = [name for name, mask in masks.items() if not mask.any()]
    return {"open": kept, "all": total, "closed_sites": closed}
