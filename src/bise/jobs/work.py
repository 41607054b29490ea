"""What the commands do: a job on a user's model and data, with its run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bise.base.errors import BadInput, NoSplit, caution, named
from bise.base.files import check_writable, writable, write_json
from bise.base.plain import check_plain
from bise.data import names
from bise.data.core.arguments import SPLITS
from bise.data.core.cells import Cells
from bise.data.core.contract import Labelled, Progress, labels
from bise.data.core.identity import data_sha256, hashes, identities, is_older, known_by, same_samples
from bise.data.core.pictures import Pictures, check_pictures
from bise.data.facts import facts_of
from bise.data.own.check import Check, check
from bise.data.own.folders import is_hugging_face
from bise.data.own.sheet import contact_sheet
from bise.engine.checkpoints import EVERY, key_of
from bise.engine.checks import check_model, check_outputs
from bise.engine.config import TrainConfig
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.extraction.algorithm import extract
from bise.extraction.config import PRESETS, ExtractConfig
from bise.jobs.data_sources import splits_of
from bise.jobs.deployment import deploy, sizes
from bise.measure.audits import Audit, audit
from bise.measure.evidence import gather
from bise.methods.finetuning import finetune
from bise.network.outputs import device_of
from bise.network.placement import one_bottleneck, place
from bise.network.saving import load
from bise.network.subnetwork import Subnetwork
from bise.network.twin import fingerprint
from bise.reporting.writing import add_report
from bise.runs.folder import Run, begun_jobs, check_complete, read_summary, sole
from bise.runs.schema import read
from bise.runs.trust import remember_own

Splits = Callable[[str], Any]
NETWORKS = ("subnetwork", "refitted", "finetuned", "dense_finetuned")
"""Of a run."""
FEW = 500
"""Samples that show whether a model has learned anything."""
SHEET_SIZE = "96"
"""Pixels a side that pictures of any size have on a contact sheet."""


def extract_job(
    model: nn.Module,
    splits: Splits,
    out: Path,
    *,
    preset: str,
    changes: dict[str, Any],
    bottleneck: str | None,
    sites: Sequence[str] | None,
    source: dict[str, Any],
    workers: int | None = None,
    progress: Progress,
    tensorboard: bool = False,
    resume: bool = False,
    every: float = EVERY,
) -> dict[str, Any]:
    """Extract on the train split, select on val, audit on test before and after; returns the summary."""
    if preset not in PRESETS:
        raise BadInput(f"--preset {preset!r} is unknown; use {', '.join(PRESETS)}")
    config = getattr(ExtractConfig, preset)(**changes)
    check_model(model)
    train, val, test = _train(splits), split_of(splits, "val"), split_of(splits, "test")
    cells = labels(train, progress=progress)
    cells.check_trainable()  # before there is a folder
    data = {"train": train, "val": val, "test": test}
    known = identities(data)
    whole = {
        "source": source,
        "preset": preset,
        "extract": asdict(config),
        "bottleneck": bottleneck,
        "sites": list(sites) if sites else None,
        "device": str(device_of(model)),
        "sha256": {"weights": fingerprint(model)} | hashes(known),
    }
    with Run(out, whole, job="extract", resume=resume, every=every, tensorboard=tensorboard) as run:
        remember_own(run.folder, source)  # its functions were named by the user, or belong to a run that is trusted
        if run.finished is not None:
            return run.finished
        _warn_of_same(data)
        _warn_of_ignorance(model, train, cells, sites, bottleneck, workers, weights=source.get("weights") is not None)
        summary: dict[str, Any] = {}
        audited = partial(_audited, data=test, cells=cells, workers=workers, progress=progress)
        if test is not None:
            summary["vanilla"] = run.once("vanilla", partial(audited, model, bottleneck=bottleneck))
        sub = extract(
            model,
            train,
            val=val,
            config=config,
            sites=sites,
            bottleneck=bottleneck,
            workers=workers,
            progress=progress,
            log=run.log("extract"),
            checkpoint=run.checkpoint("extract"),
            checkpoint_every=every,
        )
        sub.save(run.folder / "subnetwork")
        if test is not None:
            summary["subnetwork"] = run.once("subnetwork", partial(audited, sub))
        counted = run.once("sizes", partial(sizes, sub, train, progress))
        summary["subnetwork"] = summary.get("subnetwork", {}) | counted
        untested = [] if test is None else cells.unjudged(labels(test, progress=progress), "test")
        for note in untested:
            caution(note)
        summary |= {
            "weights": {"before": sub.record["weights_before"], "after": fingerprint(model)},
            "selection": sub.record["selection"],
            "stopped": sub.record["stopped"],
            "notes": sub.record["notes"] + untested,
            "targets": sub.record["targets"],
            "rho": list(cells.rho),
            "data": facts_of(cells, train) | known_by(known),
            "seconds": sub.record["seconds"],
        }
        run.finish(summary)
        add_report(run.folder, evidence(run.folder, model, sub, val, test, cells, progress))
    return summary


def _warn_of_ignorance(
    model: nn.Module,
    train: Any,
    cells: Cells,
    sites: Sequence[str] | None,
    bottleneck: str | None,
    workers: int | None,
    *,
    weights: bool,
) -> None:
    """Say so where a model knows nothing: its weights were likely forgotten, or its classes have another order."""
    inputs = Inputs(train, device_of(model), workers=workers)
    some = torch.randperm(len(cells), generator=torch.Generator().manual_seed(0))[:FEW]
    one_bottleneck(place(model, inputs.example(), patterns=sites), model, bottleneck)  # what doesn't fit is told first
    logits = infer(Subnetwork(model, ()), inputs, index=some).logits
    check_outputs(logits, cells, index=some, split="train")
    y = cells.y[some]
    correct = logits.argmax(1) == y
    right, most = float(correct.double().mean()), float(torch.bincount(y).max() / len(y))
    if weights:
        seen = torch.unique(y).tolist()
        even, chance = sum(float(correct[y == one].double().mean()) for one in seen) / len(seen), 1 / len(seen)
        if len(seen) > 1 and even < chance + (1 - chance) / 8:
            names = ", ".join(cells.label(0, one) for one in range(min(cells.classes, 10)))
            caution(
                f"the model classifies {even:.0%} of {len(y)} training samples right, each class counting evenly, and"
                f" guessing would make {chance:.0%}; its outputs are read in the order {names}"
                f"{' …' * (cells.classes > 10)}: if it was trained with another, number the classes in the data as the"
                " model does, 0, 1, …",
                stacklevel=3,
            )
    elif right < most + (1 - most) / 4:  # untrained models of two or three classes may do better than one class
        caution(
            f"the model classifies {right:.0%} of {len(y)} training samples right, and always saying one class would"
            f" make {most:.0%}; if its trained weights are in a file, stop and give that by --weights",
            stacklevel=3,
        )


def _warn_of_same(splits: Mapping[str, Any]) -> None:
    """Say where two splits are the very same data: figures on the later one prove nothing."""
    for one, other in combinations(splits, 2):
        if splits[other] is not None and same_samples(splits[one], splits[other]):
            caution(
                f"{one} and {other} are the very same data, so what is measured on {other} says nothing about samples"
                " that were not seen before; give each split samples of its own",
                stacklevel=3,
            )


def evidence(
    folder: Path, model: nn.Module, sub: Subnetwork, val: Any, test: Any, train: Cells, progress: Progress
) -> Callable[[], None] | None:
    """What gathers the report's curve and samples: on test, or on val where there is no test, or not at all."""
    data, split = (test, "test") if test is not None else (val, "val")
    return (
        None if data is None else partial(gather, folder, model, sub, data, split=split, train=train, progress=progress)
    )


def finetune_job(
    model: nn.Module,
    splits: Splits,
    folder: Path,
    *,
    changes: dict[str, Any],
    workers: int | None = None,
    progress: Progress,
    tensorboard: bool = False,
    resume: bool = False,
    every: float = EVERY,
) -> dict[str, Any]:
    """Finetune a run's subnetwork and the dense control, audit both, and add them to the run's summary."""
    started = time.perf_counter()
    config = TrainConfig.finetuning(**changes)
    check_complete(folder)
    if "finetune" in read(folder / "config.json"):  # its files to deploy are of that network
        raise BadInput(
            f"{folder} was finetuned by the demo itself; finetune a run of its own: bise extract --from {folder}"
            " --out FOLDER first"
        )
    check_model(model)
    sub = saved(folder, "subnetwork", model)
    train, val, test = _train(splits), split_of(splits, "val"), split_of(splits, "test")
    if others := other_splits(folder, {"train": train, "val": val, "test": test}):
        raise BadInput(
            f"{' and '.join(others)} changed since {folder} was made, so that its figures and those of a finetuning"
            " couldn't be compared; bring the data back, or extract from the model anew"
        )
    cells = labels(train, progress=progress)
    whole = {
        "finetune": asdict(config),
        "device": str(device_of(model)),
        "sha256": {"weights": fingerprint(model), "masks": key_of({name: m.tolist() for name, m in sub.masks.items()})}
        | hashes(identities({"train": train, "val": val, "test": test})),
    }
    with Run(folder, whole, job="finetune", resume=resume, every=every, tensorboard=tensorboard) as run:
        if run.finished is not None:
            return run.finished
        summary = read_summary(folder)
        for name, start in (("finetuned", sub), ("dense_finetuned", model)):
            tuned = finetune(
                start,
                train,
                val=val,
                config=config,
                workers=workers,
                progress=progress,
                log=run.log(name),
                checkpoint=run.checkpoint(name),
                checkpoint_every=every,
            )
            tuned.bottleneck = sub.bottleneck
            tuned.save(folder / name)
            summary.pop(name, None)  # of a finetuning before this one
            if test is not None:
                found = partial(_audited, tuned, test, cells, workers=workers, progress=progress)
                summary[name] = run.once(name, found)
        summary |= {"finetune": asdict(config), "seconds": time.perf_counter() - started}
        run.finish(summary)
        add_report(folder)
    return summary


def audit_job(
    model: nn.Module,
    splits: Splits,
    folder: Path | None,
    *,
    of: str,
    split: str | None,
    same: bool,
    workers: int | None = None,
    progress: Progress,
) -> Audit:
    """Audit the model, or a network `of` the run in `folder`; where data should be the `same`, it says if they aren't.

    Without a `split` it is test, or all of other data that aren't split.
    What is aligned is the training set's to say: the run's, or else that of the data.
    """
    network: nn.Module = model
    if folder is not None:
        if of not in NETWORKS:
            raise BadInput(f"--of {of!r} is unknown; use {', '.join(NETWORKS)}")
        network = saved(folder, of, model)
    elif of != NETWORKS[0]:
        raise BadInput(f"--of {of} is about a network of a run; name that with --run")
    data = split_of(splits, split or "test")
    if data is None and split is None and folder is not None and not same and split_of(splits, "val") is None:
        data = split_of(splits, "train")  # a file of other samples that isn't split at all
    split = split or "test"
    if data is None:
        raise BadInput(f"--data has no split {split!r}; choose another with --split")
    aligned: Cells | None
    facts = read_summary(folder).get("data") if folder is not None and not same else None
    if facts:
        aligned = labels(data, progress=progress).realigned(torch.tensor(facts["aligned"]))
    else:
        train = split_of(splits, "train")
        aligned = None if train is None else labels(train, progress=progress)
    if folder is not None and same and other_splits(folder, {split: data}):
        caution(
            f"{split} isn't what it was when {folder} was made, so that these figures can't be held against the run's",
        )
    with named(split):
        return audit(network, data, aligned=aligned, workers=workers, progress=progress)


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


def shrink_job(
    model: nn.Module, splits: Splits, folder: Path, *, name: str, files: Sequence[Path], progress: Progress
) -> dict[str, Any]:
    """Shrink a run's subnetwork, or what was made from it, write `files`, and add the figures to the run's summary.

    From a run that can't be written, as in an archive, the files are written all the same.
    """
    if name not in NETWORKS[:-1]:
        raise BadInput(f"--of {name!r} is unknown; use {', '.join(NETWORKS[:-1])}")
    check_complete(folder)
    for path in files:
        check_writable(path.parent, "name a file elsewhere")
    if not files:
        check_writable(folder, "name a file elsewhere with --out or --onnx, or work on a copy of the run")
    job = {"refitted": "refit", "finetuned": "finetune"}.get(name)
    if job in begun_jobs(folder):
        raise BadInput(f"{folder} isn't {name} to the end; run {job} again with --resume first")
    sub = saved(folder, name, model)
    data = split_of(splits, "test")
    inputs = Inputs(_train(splits) if data is None else data, device_of(model))
    noted = writable(folder)
    with sole(folder) if noted else nullcontext():
        progress("shrinking", 0, 1)
        figures = deploy(sub, inputs, files)
        progress("shrinking", 1, 1)
        if noted:
            summary = read_summary(folder)
            summary[name] = summary.get(name, {}) | {"shrunk": figures}
            write_json(folder / "summary.json", summary)
            add_report(folder)
    if not noted:
        caution(
            f"{folder} can't be written, so its summary and its page don't tell of {', '.join(map(str, files))}; keep"
            " these figures beside the files",
        )
    return figures


def saved(folder: Path, name: str, model: nn.Module) -> Subnetwork:
    """A network of a run by its name; where it isn't there, the command that makes it."""
    if not (folder / name).is_dir() and (folder / "config.json").is_file():
        makers = {"subnetwork": f"bise extract --from {folder} --out FOLDER", "refitted": f"bise refit {folder}"}
        made = makers.get(name, f"bise finetune {folder}")
        jobs = begun_jobs(folder)
        remedy = f"run {jobs[0]} again with --resume first" if jobs else f"{made} makes one"
        if not jobs and name == "dense_finetuned" and "finetune" in read(folder / "config.json"):
            remedy = (
                f"the demo audits its dense control and doesn't keep it; bise extract --from {folder} --out FOLDER,"
                " then bise finetune FOLDER make one"
            )
        raise BadInput(f"{folder / name} does not exist; {remedy}")
    check_plain(folder)
    return load(folder / name, model)


def check_job(source: str, own: dict[str, Any], *, files: bool, progress: Progress) -> Check:
    """The labels of every split of a data set, and, where `files` are to be opened, the pictures that can't be read."""
    no_pictures = BadInput("--files opens pictures, and there are none here; name their column with --image")
    if files and not (own.get("image") or Path(source).is_dir() or source in names()):
        raise no_pictures
    # the size is of no matter here, but pictures can't be listed without one
    how = {**own, "size": own.get("size", "1")} if files and source not in names() else own
    texts = "text" in own and "tokenizer" in own  # then it is worth while to count those that are cut off
    path = Path(source)
    # where extraction would make features, they are made here too: what it refuses can't be called fit
    features = not {"image", "text"} & own.keys() and (path.is_file() or is_hugging_face(path))
    try:
        splits = splits_of(source, how, labels_only=not (files or texts or features), option="source")
    except NoSplit:  # no training rows to make features by, which the check says in its own words
        splits = splits_of(source, how, labels_only=True, option="source")
    parts = {name: split_of(splits, name) for name in SPLITS}
    pictures = [
        data.dataset
        for data in parts.values()
        if data is not None and isinstance(getattr(data, "dataset", None), Pictures)
    ]
    if files and not pictures:
        raise no_pictures
    unreadable: dict[str, str] = {}
    for part in pictures:
        unreadable |= check_pictures(part, progress=progress)
    opened = sum(len(part) for part in pictures) if files else None
    return check(parts, unreadable=unreadable, opened=opened)


def sheet_job(source: str, own: dict[str, Any], out: Path, *, split: str, per_group: int, scale: int | None) -> None:
    """Draw a few pictures of every target and bias of one split."""
    pictures = own.get("image") or Path(source).is_dir()
    splits = splits_of(source, {**own, "size": own.get("size", SHEET_SIZE)} if pictures else own, option="source")
    data = split_of(splits, split)
    if data is None:
        raise BadInput(f"{source} has no split {split!r}; choose another with --split")
    if not isinstance(data, Labelled):
        cells = labels(data, need_bias=False)
        data = Labelled(data, y=cells.y, b=cells.b)
    contact_sheet(data, out, per_group=per_group, scale=scale)


def split_of(splits: Splits, name: str) -> Any:
    """What the user's function returns for a split; whatever it raises is said in a sentence."""
    try:
        return splits(name)
    except BadInput:
        raise
    except (Exception, SystemExit) as error:
        raise BadInput(
            f'--data raised {type(error).__name__}: {error} for "{name}"; it takes the name of a split, and returns'
            " None where there is none"
        ) from error


def _train(splits: Splits) -> Any:
    train = split_of(splits, "train")
    if train is None:
        raise BadInput("--data has no split 'train', from which to learn; mark rows as train, or return a data set")
    return train


def _audited(
    network: nn.Module,
    data: Any,
    cells: Cells,
    *,
    workers: int | None,
    progress: Progress,
    bottleneck: str | None = None,
) -> dict[str, Any]:
    """What an audit found, and how many units are open where there are gates."""
    with named("test"):
        found = audit(network, data, aligned=cells, bottleneck=bottleneck, workers=workers, progress=progress).as_dict()
    if not isinstance(network, Subnetwork) or not network.sites:
        return found
    kept, total = network.units
    return found | {"units": {"open": kept, "all": total}}
