"""What the commands share: their data, a run's networks, and what they say before hours of work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bise.base.errors import BadInput, caution
from bise.base.plain import check_plain
from bise.data.core.cells import Cells
from bise.data.core.contract import Progress, unloaded
from bise.data.core.identity import data_sha256, is_older
from bise.engine.checks import check_outputs
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.measure.evidence import gather
from bise.measure.standing import ABOVE, CAUSES, Standing, likely, standing, told
from bise.network.outputs import device_of
from bise.network.placement import one_bottleneck, place
from bise.network.saving import load
from bise.network.subnetwork import Subnetwork
from bise.runs.folder import begun_jobs
from bise.runs.older import check_not_an_older_demo
from bise.runs.schema import read

Splits = Callable[[str], Any]
FEW = 500
"""Samples that show whether a model has learned anything."""


def split_of(splits: Splits, name: str) -> Any:
    """What the user's function returns for a split; whatever it raises is said in a sentence."""
    try:
        return unloaded(splits(name))
    except BadInput:
        raise
    except (Exception, SystemExit) as error:
        raise BadInput(
            f'--data raised {type(error).__name__}: {error} for "{name}"; it takes the name of a split, and returns'
            " None where there is none"
        ) from error


def train_of(splits: Splits) -> Any:
    train = split_of(splits, "train")
    if train is None:
        raise BadInput("--data has no split 'train', from which to learn; mark rows as train, or return a data set")
    return train


def splits_to_learn(splits: Splits) -> dict[str, Any]:
    """{split: data}, with the training set that there has to be; val and test may be None."""
    return {"train": train_of(splits), "val": split_of(splits, "val"), "test": split_of(splits, "test")}


def saved(folder: Path, name: str, model: nn.Module, *, zeta: float | None = None) -> Subnetwork:
    """A network of a run by its name, cut at ζ; where it isn't there, the command that makes it."""
    if not (folder / name).is_dir() and (folder / "config.json").is_file():
        makers = {"subnetwork": f"bise extract {folder} --out FOLDER", "refitted": f"bise refit {folder}"}
        if name not in makers:
            check_not_an_older_demo(folder)
        made = makers.get(name, f"bise finetune {folder}")
        jobs = begun_jobs(folder)
        remedy = f"run {jobs[0]} again with --resume first" if jobs else f"{made} makes one"
        raise BadInput(f"{folder / name} does not exist; {remedy}")
    check_plain(folder)
    sub = load(folder / name, model)
    if zeta is None:
        return sub
    if not sub.sites:
        raise BadInput(f"--zeta {zeta:g} is about scores, and {name} has no gates; leave it out")
    cut = sub.at(zeta)
    if dead := [site for site, mask in cut.masks.items() if not mask.any()]:
        caution(f"at ζ = {zeta:g} nothing is left open of {', '.join(dead)}, so nothing may pass there; lower ζ")
    return cut


def check_answers(sub: Subnetwork, data: Any, zeta: float | None) -> None:
    """Refuse what was cut so far that each sample gets the very same logits: it is no network to train or deploy."""
    if zeta is None or all(bool(mask.any()) for mask in sub.masks.values()):
        return
    logits = infer(sub, Inputs(data, device_of(sub)), index=torch.arange(min(len(data), FEW))).logits
    if len(logits) > 1 and bool((logits == logits[0]).all()):
        raise BadInput(
            f"--zeta {zeta:g} closes so much that every sample gets the same answer; take a lower one, by the slider of"
            " the run's report"
        )


def other_splits(folder: Path, splits: Mapping[str, Any]) -> list[str]:
    """Which of {name: data} aren't what they were when the run in `folder` was made, as far as it noted that."""
    noted = read(folder / "config.json").get("sha256") or {}
    if any(is_older(noted.get(name)) for name in splits):
        caution(
            f"an earlier version noted which data {folder} was made from, so whether they changed isn't known; extract"
            " anew to have that noted",
            stacklevel=3,
        )
    asked = {name: data for name, data in splits.items() if name in noted and not is_older(noted[name])}
    return [name for name, data in asked.items() if noted[name] != data_sha256(data)]


def check_same_data(folder: Path, data: Mapping[str, Any], step: str) -> None:
    """Refuse data that changed since the run was made: its figures and those of this step couldn't be compared."""
    if others := other_splits(folder, data):
        raise BadInput(
            f"{' and '.join(others)} changed since {folder} was made, so that its figures and those of a {step}"
            " couldn't be compared; bring the data back, or extract from the model anew"
        )


def evidence(
    folder: Path, model: nn.Module, sub: Subnetwork, val: Any, test: Any, train: Cells, progress: Progress
) -> Callable[[], None] | None:
    """What gathers the report's curve and samples: on test, or on val where there is no test, or not at all."""
    data, split = (test, "test") if test is not None else (val, "val")
    return (
        None if data is None else partial(gather, folder, model, sub, data, split=split, train=train, progress=progress)
    )


def warn_of_ignorance(
    model: nn.Module,
    train: Any,
    cells: Cells,
    sites: Sequence[str] | None,
    bottleneck: str | None,
    workers: int | None,
    *,
    weights: bool,
) -> Standing | None:
    """Say so where a model knows nothing of some training samples; its standing there, None where that is all right."""
    inputs = Inputs(train, device_of(model), workers=workers)
    some = torch.randperm(len(cells), generator=torch.Generator().manual_seed(0))[:FEW]
    one_bottleneck(place(model, inputs.example(), patterns=sites), model, bottleneck)  # what doesn't fit is told first
    logits = infer(Subnetwork(model, ()), inputs, index=some).logits
    check_outputs(logits, cells, index=some, split="train")
    y, answers, helps, known = cells.y[some], logits.argmax(1), cells.aligned[some].all(1), cells.known[some]
    names = {one: cells.label(0, one) for one in range(cells.classes)}
    found = standing(y, answers, names=names, aligned=helps & known, conflicting=~helps & known)
    found = None if found is None or found.state == ABOVE else found
    right, most = float((answers == y).double().mean()), float(torch.bincount(y).max() / len(y))
    if weights and found is not None:
        said = told("the model", vars(found))
        caution(f"{said}; of {len(y)} training samples. {look_at(found.state, cells)}", stacklevel=3)
    elif not weights and right < most + (1 - most) / 4:  # untrained models of few classes may do better than one class
        caution(
            f"the model classifies {right:.0%} of {len(y)} training samples right, and always saying one class would"
            f" make {most:.0%}; if its trained weights are in a file, stop and give that by --weights",
            stacklevel=3,
        )
    return found


def look_at(state: str, cells: Cells) -> str:
    """The likely causes of a model that knows nothing, in their order, with the options that they are mended by."""
    names = ", ".join(cells.label(0, one) for one in range(min(cells.classes, 10))) + " …" * (cells.classes > 10)
    order = f"its outputs are read in the order {names}: number the classes in the data as the model does, 0, 1, …"
    remedies = dict(zip(CAUSES, ("pictures: --mean and --std", order, "--weights", "--size"), strict=True))
    return likely(state, remedies)
