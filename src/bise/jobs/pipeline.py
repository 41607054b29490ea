"""The one pipeline: train, audit, extract, refit, finetune, shrink; commands, demo and studies put its steps together.

`train_vanilla`, `extract_from` and `tune` give a network, and know how to go on after a stop where there is a run. The
functions under them make a run's part of its summary: they save the network, audit it on test, and tell the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bise.base.errors import BadInput, caution, named
from bise.base.files import write_tensors
from bise.data.core.cells import Cells
from bise.data.core.contract import Progress, labels
from bise.data.core.identity import Identity, hashes, known_by
from bise.data.facts import facts_of
from bise.engine.checkpoints import Checkpoint, key_of
from bise.engine.config import TrainConfig
from bise.engine.inputs import Inputs
from bise.engine.training import fit
from bise.extraction.algorithm import extract
from bise.extraction.config import ExtractConfig
from bise.jobs.deployment import deploy, sizes
from bise.measure.audits import audit
from bise.methods.finetuning import finetune, owning
from bise.methods.refit.config import RefitConfig
from bise.methods.refit.refitting import refit
from bise.network.outputs import device_of
from bise.network.subnetwork import Subnetwork
from bise.network.twin import fingerprint
from bise.reporting.writing import add_report
from bise.runs.folder import Run, note_job

FIT = ("layer", "refused", "samples", "l2", "solver", "val", "rest", "seconds")
"""What the summary takes of a refit's record."""


def silent(label: str, done: int, total: int) -> None:
    """Takes progress where nobody looks."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What the steps share: the data that they work on, and where they keep what they make."""

    train: Any
    cells: Cells
    """The labels of train."""
    val: Any = None
    test: Any = None
    known: Mapping[str, Identity | None] = field(default_factory=dict)
    """What a run's data are known by."""
    run: Run | None = None
    """None in a study, which keeps networks in a cache of its own."""
    workers: int | None = None
    progress: Progress = silent

    @property
    def folder(self) -> Path:
        assert self.run is not None
        return self.run.folder

    def kept(self, part: str) -> dict[str, Any]:
        """Where a part of the run logs its epochs and keeps its state; nowhere without a run."""
        if self.run is None:
            return {}
        where = {"checkpoint": self.run.checkpoint(part), "checkpoint_every": self.run.every}
        return {"log": self.run.log(part), **where}

    def once(self, part: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What `make` gives, which isn't made again after a stop."""
        assert self.run is not None
        return self.run.once(part, make)


# networks


def train_vanilla(
    work: Work, model: nn.Module, config: TrainConfig, device: torch.device, *, checkpoint: Checkpoint | None = None
) -> nn.Module:
    """The model, trained on all of train; a run keeps its state and its weights, a study brings its own checkpoint."""
    run, log = work.run, None
    if run is not None:
        checkpoint, log = Checkpoint(run.checkpoint("train"), key=run.key, every=run.every), run.log("train")
    vanilla = owning(model.to(device))
    fit(
        vanilla,
        Inputs(work.train, device, workers=work.workers),
        work.cells,
        config,
        progress=work.progress,
        log=log,
        label="training vanilla",
        checkpoint=checkpoint,
    )
    trained = vanilla.bare()
    if run is not None:
        write_tensors(run.folder / "model.safetensors", trained.state_dict())
    return trained


def extract_from(
    work: Work,
    model: nn.Module,
    config: ExtractConfig,
    *,
    sites: Sequence[str] | None = None,
    bottleneck: str | None = None,
) -> Subnetwork:
    """The subnetwork that Algorithm 1 finds in the model."""
    return extract(
        model,
        work.train,
        val=work.val,
        config=config,
        sites=sites,
        bottleneck=bottleneck,
        workers=work.workers,
        progress=work.progress,
        **work.kept("extract"),
    )


def tune(work: Work, origin: Subnetwork | nn.Module, config: TrainConfig, part: str) -> Subnetwork:
    """The subnetwork with its weights trained on, or the dense control where `origin` is the model."""
    return finetune(
        origin,
        work.train,
        val=work.val,
        config=config,
        workers=work.workers,
        progress=work.progress,
        **work.kept(part),
    )


# a run's networks and its summary


def audited(work: Work, name: str, network: nn.Module, *, bottleneck: str | None = None) -> dict[str, Any]:
    """{name: figures on test}, with the open units of a network that has gates; empty without test."""
    if work.test is None:
        return {}

    def measured() -> dict[str, Any]:
        how: dict[str, Any] = {"bottleneck": bottleneck, "workers": work.workers, "progress": work.progress}
        with named("test"):
            found = audit(network, work.test, aligned=work.cells, **how).as_dict()
        if not isinstance(network, Subnetwork) or not network.sites:
            return found
        kept, total = network.units
        return found | {"units": {"open": kept, "all": total}}

    return {name: work.once(name, measured)}


def extraction(
    work: Work,
    model: nn.Module,
    config: ExtractConfig,
    *,
    sites: Sequence[str] | None = None,
    bottleneck: str | None = None,
) -> tuple[Subnetwork, dict[str, Any]]:
    """The subnetwork, audited as the model is before it, with its sizes, and what the summary tells of it."""
    part = audited(work, "vanilla", model, bottleneck=bottleneck)
    sub = extract_from(work, model, config, sites=sites, bottleneck=bottleneck)
    sub.save(work.folder / "subnetwork")
    part |= audited(work, "subnetwork", sub)
    counted = work.once("sizes", partial(sizes, sub, work.train, work.progress))
    part["subnetwork"] = part.get("subnetwork", {}) | counted
    untested = [] if work.test is None else work.cells.missing_from(labels(work.test, progress=work.progress), "test")
    for note in untested:
        caution(note)
    return sub, part | {
        "weights": {"before": sub.record["weights_before"], "after": fingerprint(model)},
        "selection": sub.record["selection"],
        "stopped": sub.record["stopped"],
        "notes": sub.record["notes"] + untested,
        "targets": sub.record["targets"],
        "rho": list(work.cells.rho),
        "data": facts_of(work.cells, work.train) | known_by(work.known),
        "seconds": sub.record["seconds"],
    }


def refitting(work: Work, sub: Subnetwork, config: RefitConfig, *, bottleneck: str | None = None) -> dict[str, Any]:
    """The subnetwork with its last layer fitted anew, saved as `refitted`."""
    how: dict[str, Any] = {"bottleneck": bottleneck, "workers": work.workers, "progress": work.progress}
    refitted = refit(sub, work.train, val=work.val, **asdict(config), **how)
    refitted.save(work.folder / "refitted")
    found = audited(work, "refitted", refitted).get("refitted", {})
    return {"refitted": found | {"fit": {key: refitted.record[key] for key in FIT}}, "refit": asdict(config)}


def refitting_too(
    work: Work, model: nn.Module, sub: Subnetwork, config: RefitConfig, *, bottleneck: str | None = None
) -> dict[str, Any]:
    """The refit as a part of another job, noted as if it were one of its own; left out where it is refused."""
    whole = {"refit": asdict(config), "bottleneck": bottleneck} | origin_of(model, sub, work.known)
    try:
        part = refitting(work, sub, config, bottleneck=bottleneck)
    except BadInput as error:  # the subnetwork stands without it
        caution(f"there is no refitted network: {error}")
        return {}
    note_job(work.folder, "refit", whole)
    return part


def finetuning(
    work: Work, sub: Subnetwork, model: nn.Module, config: TrainConfig, *, zeta: float | None = None
) -> dict[str, Any]:
    """The subnetwork and the dense control, finetuned by the same settings; `zeta` is said of one that was cut so."""
    part: dict[str, Any] = {}
    for name, origin in (("finetuned", sub), ("dense_finetuned", model)):
        network = tune(work, origin, config, name)
        network.bottleneck = sub.bottleneck
        if zeta is not None and name == "finetuned":
            network.record["zeta"] = zeta
        network.save(work.folder / name)
        part |= audited(work, name, network)
    if zeta is not None:
        part["finetuned"] = part.get("finetuned", {}) | {"zeta": zeta}
    return part | {"finetune": asdict(config)}


def shrinking(
    work: Work, summary: Mapping[str, Any], name: str, sub: Subnetwork, files: Sequence[Path]
) -> dict[str, Any]:
    """A network's part of the summary, with the size and the speed of what is left of it, and its files to deploy."""
    made = partial(deploy, sub, work.test, files, work.progress)
    return {name: summary[name] | {"shrunk": work.once(f"shrunk-{name}", made)}}


def origin_of(model: nn.Module, sub: Subnetwork, known: Mapping[str, Identity | None]) -> dict[str, Any]:
    """What the configuration of a step after extraction says of all that it starts from."""
    masks = key_of({name: mask.tolist() for name, mask in sub.masks.items()})
    return {
        "device": str(device_of(model)),
        "sha256": {"weights": fingerprint(model), "masks": masks} | hashes(known),
    }


def finish(work: Work, summary: Mapping[str, Any], gather: Callable[[], None] | None = None) -> None:
    """The run's summary, and then its page, without which the run is complete too."""
    assert work.run is not None
    work.run.finish(summary)
    add_report(work.run.folder, gather)
