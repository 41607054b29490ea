"""`bise find`: candidates for a bias that nobody has named, in a run folder, from which one goes on as b."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput, caution
from bise.base.files import write_tensors
from bise.data.core.contract import Labelled, Progress
from bise.data.core.identity import hashes, identities
from bise.engine.inputs import Inputs
from bise.jobs.finding import Candidate, Found, find, fingerprints, without_bias
from bise.jobs.found_labels import LABELS, key_of
from bise.jobs.python_sources import function
from bise.jobs.steps import Splits, splits_to_learn
from bise.measure.showing import Shower
from bise.network.architectures.named import is_named
from bise.network.outputs import device_of
from bise.network.twin import fingerprint
from bise.reporting.writing import add_report
from bise.runs.folder import Run
from bise.runs.trust import is_key, remember_own

GROUPS, EACH = 12, 4
"""Groups of a candidate that are shown, at most, and samples of each."""
LEARNED = 0.98
"""Accuracy on training samples from which on they hide what a model does with others."""


def find_job(
    model: nn.Module,
    splits: Splits,
    out: Path,
    *,
    source: dict[str, Any],
    pseudo: bool,
    bottleneck: str | None,
    seed: int,
    workers: int | None = None,
    progress: Progress,
    resume: bool = False,
) -> dict[str, Any]:
    """Find candidates, label every split by each, and write the page; returns the summary."""
    began = time.perf_counter()
    data = splits_to_learn(splits)
    hidden = {name: without_bias(part, progress)[0] for name, part in data.items() if part is not None}
    whole = {
        "job": "find",
        "source": source,
        "pseudo": pseudo,
        "bottleneck": bottleneck,
        "seed": seed,
        "device": str(device_of(model)),
        "sha256": {"weights": fingerprint(model)} | hashes(identities(data)),
    }
    with Run(out, whole, job="find", resume=resume) as run:
        remember_own(run.folder, source)
        if run.finished is not None:
            return run.finished
        make = maker(source, device_of(model)) if pseudo else None
        found = find(
            model,
            data["train"],
            val=data["val"],
            make_model=make,
            bottleneck=bottleneck,
            seed=seed,
            workers=workers,
            progress=progress,
        )
        if found.measured_on != "val" and found.accuracy > LEARNED:
            caution(
                f"the model has {found.accuracy:.1%} of its training samples right, which hide what it does with"
                " others; give data with a val split, which it hasn't learned from"
            )
        write_tensors(run.folder / LABELS, _groups(found, hidden))
        summary = {
            "find": found.as_dict(),
            "data": {name: fingerprints(part) | {"samples": len(part)} for name, part in hidden.items()},
            "target": target_of(data["train"]),
            "samples": _samples(found, data["train"], model, workers),
            "seconds": time.perf_counter() - began,
        }
        run.finish(summary)
        add_report(run.folder)
        return summary


def _groups(found: Found, splits: Mapping[str, Labelled]) -> dict[str, Tensor]:
    """{number and split: the groups [N] of a candidate}, by which later commands label the same data."""
    out = {}
    for number, candidate in enumerate(found, 1):
        for name, part in splits.items():
            b = candidate.label(part).b
            assert b is not None
            out[key_of(number, name)] = b.to(torch.int16)
    return out


def target_of(train: Any) -> str:
    names = getattr(train, "names", None)
    return "y" if names is None else str(names.target)


def maker(source: dict[str, Any], device: torch.device) -> Any:
    """What makes a fresh model, for a model of one epoch: the function that the user named."""
    name = str(source.get("model"))
    if is_key(source, "model") or is_named(name):
        raise BadInput(
            f"--pseudo trains a fresh model, and {name} gives a trained one; name a function with --model, or leave it"
            " out"
        )
    make = function(name, "--model")
    return lambda: make().to(device)


def _samples(found: Found, train: Any, model: nn.Module, workers: int | None) -> list[list[dict[str, Any]]]:
    """For each candidate, a few samples of its groups, drawn, of as many classes as there are."""
    shower = Shower(train, Inputs(train, device_of(model), workers=workers))
    answers = found.logits["train"].argmax(1)
    y = without_bias(train)[0].y
    return [
        [
            {"index": index, "group": group, "y": int(y[index]), "answer": int(answers[index]), **shower(index)}
            for group in range(min(GROUPS, len(candidate.groups)))
            for index in _some(candidate, y, group)
        ]
        for candidate in found
    ]


def _some(candidate: Candidate, y: Tensor, group: int) -> list[int]:
    """A few training samples of a group: one of each class first, the largest class first."""
    generator = torch.Generator().manual_seed(group)
    rows = (candidate.b == group).nonzero().flatten()
    rows = rows[torch.randperm(len(rows), generator=generator)]
    sizes = torch.bincount(y[rows], minlength=int(y.max()) + 1)
    ranks = torch.zeros(len(rows), dtype=torch.long)
    for one in y[rows].unique().tolist():
        mine = y[rows] == one
        ranks[mine] = torch.arange(int(mine.sum()))
    order = sorted(range(len(rows)), key=lambda i: (int(ranks[i]), -int(sizes[y[rows[i]]])))[:EACH]
    return [int(rows[i]) for i in order]
