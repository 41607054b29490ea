"""Carries out jobs: data once for each ρ and seed, vanilla models and extractions from a cache, one row a job."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bise.base.files import read_json, read_tensors, write_json, write_tensors
from bise.data import load as load_data
from bise.data import noisy_bias
from bise.data.core.contract import Labelled, Progress, labels
from bise.data.core.subset import taken
from bise.engine.checkpoints import Checkpoint
from bise.engine.inputs import Inputs
from bise.engine.precision import resolved
from bise.jobs.pipeline import Work, extract_from, silent, train_vanilla, tune
from bise.jobs.recipes import Rho, recipe, splits, start
from bise.methods.batch_norm import reestimate
from bise.methods.pseudo_labels import pseudo_bias
from bise.network.placement import PAPER, one_bottleneck, place
from bise.network.saving import load
from bise.network.subnetwork import Subnetwork
from bise.network.twin import fingerprint
from bise.studies import measures
from bise.studies.counting import count
from bise.studies.job import (
    Job,
    config_hash,
    extract_config,
    extract_key,
    extract_part,
    finetune_config,
    scaled_recipe,
    vanilla_key,
    vanilla_part,
    without_reestimation,
)
from bise.studies.scale import Scale


@dataclass(frozen=True, kw_only=True)
class Splits:
    train: Labelled
    search: Labelled
    """What masks are learned on, and finetuned on: train, unless the recipe has data of their own for them."""
    val: Labelled | None
    test: Labelled


@dataclass(frozen=True, kw_only=True)
class Vanilla:
    model: nn.Module
    record: dict[str, Any]


class Runner:
    """Holds what jobs on the same data share; `starts` says where each recipe's weights begin.

    Beside others, where it isn't `alone`, a clock says nothing, so that the cache keeps no seconds either.
    """

    def __init__(
        self,
        scale: Scale,
        cache: Path,
        device: torch.device,
        *,
        starts: Callable[[str], str],
        root: Callable[[tuple[str, str]], Path | None],
        alone: bool = True,
        progress: Progress | None = None,
    ) -> None:
        self.scale, self.cache, self.device, self.starts, self.root = scale, cache, device, starts, root
        self.alone, self.progress = alone, progress
        self.data: tuple[Any, Splits] | None = None
        self.vanillas: dict[str, Vanilla] = {}
        self.counted: dict[tuple[str, str, str], measures.Sizes] = {}
        self.subs: dict[str, Subnetwork] = {}

    def __call__(self, job: Job) -> dict[str, Any]:
        """The job's figures."""
        if job.kind == "count":
            return count(recipe(job.recipe))
        return _DO[job.kind](self, job)

    def splits(self, job: Job) -> Splits:
        """train, val (None where the recipe takes the last mask) and test."""
        if self.data is None or self.data[0] != job.data:
            self.vanillas, self.subs, self.counted = {}, {}, {}  # models of the data before
            made = scaled_recipe(job, self.scale)

            def part(name: str) -> Any:
                data = splits(
                    name,
                    recipe=job.recipe,
                    rho=made.rho,
                    protocol=made.protocol,
                    seed=job.seed,
                    root=self.root((job.recipe, job.side)),
                    select=made.select,
                )
                return data if data is None or self.scale.limit is None else few(data, self.scale.limit, job.seed)

            train = part("train")
            search = train if made.search == "train" else part(made.search)
            self.data = (job.data, Splits(train=train, search=search, val=part("val"), test=part("test")))
        return self.data[1]

    def vanilla(self, job: Job) -> Vanilla:
        """The vanilla model: from memory, from the cache, or trained now."""
        data = self.splits(job)
        config = vanilla_part(job, self.scale, self.starts(job.recipe))
        key = vanilla_key(job, self.scale, self.starts(job.recipe))
        if key not in self.vanillas:
            folder = self.kept("vanilla", key)
            made = scaled_recipe(job, self.scale)
            model, provenance, _ = start(made, self.starts(job.recipe), seed=job.seed)
            if (folder / "record.json").exists():
                model.load_state_dict(read_tensors(folder / "model.safetensors"))
                model, record = model.to(self.device).eval(), read_json(folder / "record.json")
            else:
                checkpoint = Checkpoint(folder / "training.safetensors", key=key)
                whole, begun = not (checkpoint.path.exists() or checkpoint.previous.exists()), time.perf_counter()
                model = train_vanilla(self.work(data.train), model, made.train, self.device, checkpoint=checkpoint)
                record = {"start": provenance, "weights": fingerprint(model), "config": config}
                whole = whole and self.alone  # of a part, or beside others, they'd mislead
                record["seconds"] = time.perf_counter() - begun if whole else None
                write_tensors(folder / "model.safetensors", model.state_dict())
                write_json(folder / "record.json", record)  # last: it says that the rest is whole
                checkpoint.path.unlink()
            self.vanillas[key] = Vanilla(model=model, record=record)
        return self.vanillas[key]

    def work(self, train: Labelled, val: Labelled | None = None) -> Work:
        """What the pipeline's steps work on here: the networks that they make are kept in the cache."""
        return Work(train=train, val=val, cells=labels(train), progress=self.progress or silent)

    def sizes(self, job: Job) -> measures.Sizes:
        """What masks leave of the vanilla model, with gates where the job's extraction has them."""
        vanilla, config = self.vanilla(job), extract_config(job, self.scale)
        key = (vanilla.record["weights"], config.gates_at, config.norms)
        if key not in self.counted:
            inputs = Inputs(self.splits(job).train, self.device)
            sites = measures.gated(vanilla.model, inputs, config)
            self.counted[key] = measures.Sizes(vanilla.model, sites, inputs)
        return self.counted[key]

    def extraction(self, job: Job) -> Subnetwork:
        """The subnetwork: from memory, from the cache, or extracted now."""
        vanilla, data = self.vanilla(job), self.splits(job)
        config = vanilla_part(job, self.scale, self.starts(job.recipe)) | extract_part(job, self.scale)
        key = extract_key(job, self.scale, self.starts(job.recipe))
        if key not in self.subs:
            folder = self.kept("extract", key)
            if (folder / "record.json").exists():
                self.subs[key] = load(folder, vanilla.model)
            else:
                self.subs[key] = self._extract(job, vanilla, data)
                self.subs[key].save(folder)
                write_json(folder / "record.json", {"config": config})  # last: it says that the rest is whole
        return self.subs[key]

    def kept(self, kind: str, key: str) -> Path:
        """The folder of a vanilla model or an extraction in the cache, or where it will be.

        One that an older version made has another name where configurations have got fields since, and the same key.
        """
        usual = self.cache / f"{kind}-{key}"
        if not (usual / "record.json").exists():
            for record in sorted(self.cache.glob(f"{kind}-*/record.json")):
                if config_hash(read_json(record)["config"]) == key:
                    return record.parent
        return usual

    def _extract(self, job: Job, vanilla: Vanilla, data: Splits) -> Subnetwork:
        train, quality = self._biased(job, data)
        settings = extract_config(job, self.scale)
        train, val = parted(train, job.held_out, job.seed) if job.held_out else (train, data.val)
        sub = extract_from(self.work(train, val), vanilla.model, settings)
        sub.record["quality"] = quality
        sub.record.pop("history")  # of every epoch: the row needs none of it
        if not self.alone:
            sub.record |= {"seconds": None, "phases": None}
        return sub

    def _biased(self, job: Job, data: Splits) -> tuple[Labelled, dict[str, float] | None]:
        """The training set that the extraction is to see, and how good its b are where they are guessed."""
        if job.unbiased:
            return self.unbiased(job), None
        if job.redrawn:
            return self._drawn(job, scaled_recipe(job, self.scale).rho, job.seed + 1000), None
        if job.bias == "noise":
            return noisy_bias(data.search, job.noise, job.seed), None
        if job.bias == "pseudo":
            made = scaled_recipe(job, self.scale)

            def fresh() -> nn.Module:
                return start(made, self.starts(job.recipe), seed=job.seed + 1000)[0].to(self.device)

            on = None if data.search is data.train else data.search
            guessed = pseudo_bias(fresh, data.train, epochs=1, config=made.train, on=on, progress=self.progress)
            return guessed, guessed.quality
        return data.search, None

    def unbiased(self, job: Job) -> Labelled:
        """The training samples with every bias alike in every class."""
        return self._drawn(job, 0.1, job.seed)

    def _drawn(self, job: Job, rho: Rho, seed: int) -> Labelled:
        """The training samples with other biases."""
        made, root = scaled_recipe(job, self.scale), self.root((job.recipe, job.side))
        data = load_data(made.data, split="train", rho=rho, seed=seed, protocol=made.protocol, root=root)
        return data if self.scale.limit is None else few(data, self.scale.limit, job.seed)

    def figures(self, job: Job, network: nn.Module, masks: dict[str, Any]) -> dict[str, Any]:
        data = self.splits(job)
        return measures.figures(network, data.test, labels(data.train), self.sizes(job), masks, self.progress)

    def dense(self, job: Job) -> Subnetwork:
        """The vanilla model with every gate open."""
        model, inputs = self.vanilla(job).model, Inputs(self.splits(job).train, self.device)
        placement = place(model, inputs.example(), patterns=PAPER)
        return Subnetwork(model, placement.sites, bottleneck=one_bottleneck(placement, model, None))


def _vanilla(runner: Runner, job: Job) -> dict[str, Any]:
    vanilla = runner.vanilla(job)
    asked = scaled_recipe(job, runner.scale).train.precision
    out = {"precision": resolved(asked, vanilla.model), "seconds": vanilla.record["seconds"]}
    return _origin(vanilla) | out | runner.figures(job, vanilla.model, {})


def _extracted(runner: Runner, job: Job) -> dict[str, Any]:
    """Figures of the best mask, of the last one under `last`, and of the best by other selections under `by`."""
    sub = runner.extraction(without_reestimation(job))
    record = sub.record
    out = _origin(runner.vanilla(job), sub) | {"precision": record["precision"], "seconds": record["seconds"]}
    out |= {name: record[name] for name in ("phases", "selection", "stopped", "notes", "quality") if record.get(name)}
    also = [by for by in sub.record["config"]["also"] if sub.kept]
    networks = [sub, sub.last] if sub.kept else [sub]
    networks[1:1] = [sub.best_by(by) for by in also]
    if job.reestimate:
        begun = time.perf_counter()
        networks = [reestimate(network, runner.splits(job).train, seed=job.seed) for network in networks]
        if out["seconds"] is not None:
            out["seconds"] += (time.perf_counter() - begun) / len(networks)
    found = [runner.figures(job, network, network.masks) for network in networks]
    others = {"by": dict(zip(also, found[1:-1], strict=True))} if also else {}
    return out | found[0] | {"last": found[-1]} | others


def _finetuned(runner: Runner, job: Job) -> dict[str, Any]:
    vanilla, data = runner.vanilla(job), runner.splits(job)
    origin = runner.extraction(job) if job.of == "subnetwork" else vanilla.model
    begun = time.perf_counter()
    config = finetune_config(job, runner.scale)
    tuned = tune(runner.work(data.search, data.val), origin, config, job.label)
    out = {"precision": tuned.record["precision"], "seconds": time.perf_counter() - begun}
    return _origin(vanilla, origin) | out | runner.figures(job, tuned, tuned.masks)


def _curve(runner: Runner, job: Job) -> dict[str, Any]:
    """Points over ζ, and the scores themselves."""
    sub, data = runner.extraction(job), runner.splits(job)
    masks = measures.threshold_masks(sub, job.points)
    begun = time.perf_counter()
    found = measures.points(sub, masks, data.test, labels(data.train), runner.sizes(job))
    opened = torch.cat([score.sigmoid() for score in sub.scores.values()])
    return _origin(runner.vanilla(job), sub) | {
        "precision": sub.record["precision"],
        "seconds": time.perf_counter() - begun,
        "points": found,
        "sigmoid_scores": [round(value, 4) for value in opened.tolist()],
    }


def _pruned(runner: Runner, job: Job) -> dict[str, Any]:
    """Points over the share of units that a strategy takes away."""
    vanilla, data, dense = runner.vanilla(job), runner.splits(job), runner.dense(job)
    sub = runner.extraction(job) if job.strategy == "scores" else None
    if sub is not None:
        ranks = sub.scores
    elif job.strategy == "magnitude":
        ranks = measures.magnitudes(vanilla.model, dense.sites)
    else:
        ranks = measures.random_ranks(dense.sites, job.seed)
    begun = time.perf_counter()
    masks = measures.ranked_masks(ranks, job.points)
    found = measures.points(dense, masks, data.test, labels(data.train), runner.sizes(job))
    return _origin(vanilla, sub) | {"precision": "fp32", "seconds": time.perf_counter() - begun, "points": found}


def _probed(runner: Runner, job: Job) -> dict[str, Any]:
    """A bias probe on the bottleneck of the dense or of the extracted network."""
    network = runner.dense(job) if job.of == "dense" else runner.extraction(job)
    data, unbiased = runner.splits(job), runner.unbiased(job)
    settings = measures.PROBE if runner.scale.limit is None else replace(measures.PROBE, head_epochs=2)
    begun = time.perf_counter()
    found = measures.bias_probe(network, unbiased, data.test, seed=job.seed, config=settings)
    how = {"precision": "fp32", "seconds": time.perf_counter() - begun}
    return _origin(runner.vanilla(job), network) | how | found


def few(data: Labelled, count: int, seed: int) -> Labelled:
    """`count` samples for a trial, up to a quarter of them conflicting, since at a high ρ there might be none."""
    conflicting = labels(data).conflicting.any(1)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    first = order[conflicting[order]][: count // 4]
    rest = order[~torch.isin(order, first)]
    return taken(data, torch.cat([first, rest])[:count])


def parted(data: Labelled, share: float, seed: int) -> tuple[Labelled, Labelled]:
    """(the rest, a share of each cell): at least one sample of a cell that has two."""
    cells = labels(data).index
    held = []
    for cell in cells.unique().tolist():
        index = (cells == cell).nonzero().flatten()
        order = torch.randperm(len(index), generator=torch.Generator().manual_seed(seed))
        held.append(index[order[: max(len(index) > 1, int(share * len(index)))]])
    chosen = torch.cat(held)
    everything = torch.arange(len(data))
    return taken(data, everything[~torch.isin(everything, chosen)]), taken(data, chosen)


def _origin(vanilla: Vanilla, network: nn.Module | None = None) -> dict[str, Any]:
    return {"start": vanilla.record["start"], "weights": vanilla.record["weights"]} | measures.extracted(network)


_DO: dict[str, Callable[[Runner, Job], dict[str, Any]]] = {
    "vanilla": _vanilla,
    "extract": _extracted,
    "finetune": _finetuned,
    "curve": _curve,
    "prune": _pruned,
    "probe": _probed,
}
