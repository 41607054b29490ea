"""One thing that a study measures: a pure description, its complete configuration, and that configuration's hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import Any

from bise.base.errors import BadInput
from bise.engine.config import TrainConfig
from bise.extraction.config import ExtractConfig
from bise.jobs.recipes import AUTHORS, Recipe, Rho, preset_changes, preset_finetuning, recipe
from bise.studies.scale import Scale

KINDS = ("vanilla", "extract", "finetune", "curve", "prune", "probe", "count")
HOW = ("graphs", "compile", "memory")
"""Settings that change how fast something is computed, and what is computed only by rounding, …"""
ROUNDING = ("precision", "auto")
"""… as does this one, unless a study sets it: then rounding is what it is about."""
BEFORE = {"margin": 0.0, "smoothing": 0.0, "gates_at": "activations"}
"""What configurations did that were written before they said so."""
UNTOLD = ("baseline",)
"""No study varies this but where samples are held out; rows from before it that it would have changed aren't kept."""
PARTS: dict[str, type] = {"train": TrainConfig, "extract": ExtractConfig, "finetune": TrainConfig}


@dataclass(frozen=True, kw_only=True)
class Job:
    """A network to train, extract, finetune or look at, and the line of a table that it belongs to."""

    label: str
    kind: str
    """vanilla; extract; finetune; curve, over thresholds ζ; prune, over levels of sparsity; probe; count."""
    recipe: str = "biased-mnist"
    rho: Rho = None
    protocol: str | None = None
    seed: int = 0
    preset: str = "balanced"
    """Of the extraction, and of the finetuning after it."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """To the extraction's configuration."""
    bias: str = "labels"
    """Where the extraction's b come from: "labels", "pseudo", or "noise" for wrong ones on purpose."""
    noise: float = 0.0
    unbiased: bool = False
    """Extract on the training set without its bias, which nobody has: what is there to be found in the weights."""
    redrawn: bool = False
    """Extract on the same training samples with as much bias, but drawn anew: the model knows no conflicting one."""
    held_out: float = 0.0
    """Share of each training cell that the mask is selected on, in place of val."""
    reestimate: bool = False
    """Estimate BatchNorm's statistics anew after the extraction."""
    of: str = "subnetwork"
    """What is finetuned or probed: the "subnetwork", or the "dense" model."""
    points: tuple[float, ...] = ()
    """Thresholds of a curve, or shares of units that pruning takes away."""
    strategy: str = ""
    """What pruning ranks units by: "random", "magnitude" or "scores"."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(f"kind={self.kind!r} is unknown; use {' or '.join(KINDS)}")
        if (self.unbiased or self.redrawn) and self.bias != "labels":
            raise BadInput(f"bias={self.bias!r} can't be had on data drawn anew, whose b are known; use 'labels'")
        if self.redrawn and self.protocol not in (None, "paper"):
            raise BadInput(f"protocol={self.protocol!r} draws val with the data, which would then train; use 'paper'")

    @property
    def side(self) -> str:
        """Which account of the paper it follows: the "authors", by their code, or the "paper", by its text."""
        return AUTHORS if self.protocol == AUTHORS else "paper"

    @property
    def extracts(self) -> bool:
        """Whether it needs an extraction."""
        return (
            self.kind in ("extract", "curve")
            or self.strategy == "scores"
            or (self.kind in ("finetune", "probe") and self.of == "subnetwork")
        )

    @property
    def data(self) -> tuple[Any, ...]:
        """What the data depend on; jobs that share it are done one after the other."""
        return self.recipe, self.protocol, self.rho, self.seed


def scaled_recipe(job: Job, scale: Scale) -> Recipe:
    """The recipe as this job and this scale change it."""
    made = recipe(job.recipe, rho=job.rho, protocol=job.protocol, seed=job.seed)
    shape = {**made.shape, **scale.shape.get(made.architecture, {})}
    return replace(made, train=replace(made.train, **scale.train), shape=shape)


def extract_config(job: Job, scale: Scale) -> ExtractConfig:
    """The preset, as the recipe, the job and the scale change it."""
    made = scaled_recipe(job, scale)
    base: ExtractConfig = getattr(ExtractConfig, job.preset)(**{**preset_changes(made, job.preset), "seed": job.seed})
    return replace(base, **{**job.changes, **scale.extract(base, job.changes)})


def finetune_config(job: Job, scale: Scale) -> TrainConfig:
    """The paper's finetuning, or ours: cells drawn evenly, as the recipe says."""
    made = scaled_recipe(job, scale)
    if job.preset != "balanced":
        return replace(preset_finetuning(made, job.preset), **scale.finetune)
    return TrainConfig.finetuning(**{**made.finetune_balanced, "seed": job.seed, **scale.finetune})


def configuration(job: Job, scale: Scale, start: str) -> dict[str, Any]:
    """All that the job's result depends on, as JSON; `start` says where the vanilla model's weights begin."""
    if job.kind == "count":
        return {"kind": "count", "recipe": job.recipe}
    out: dict[str, Any] = {"kind": job.kind, **vanilla_part(job, scale, start)}
    if job.extracts:
        out |= extract_part(job, scale)
    if job.kind == "finetune":
        out["finetune"] = asdict(finetune_config(job, scale))
    if job.kind == "prune":
        out["strategy"] = job.strategy
    if job.points:
        out["points"] = job.points
    return json.loads(json.dumps(out))


def vanilla_part(job: Job, scale: Scale, start: str) -> dict[str, Any]:
    """What the vanilla model depends on."""
    made = scaled_recipe(job, scale)
    return {
        "recipe": job.recipe,
        "rho": made.rho,
        "protocol": made.protocol,
        "seed": job.seed,
        "limit": scale.limit,
        "start": start,
        "shape": dict(made.shape),
        "train": asdict(made.train),
    }


def extract_part(job: Job, scale: Scale) -> dict[str, Any]:
    """What the extraction depends on beside the vanilla model."""
    bias = {"kind": job.bias} | ({"p": job.noise} if job.bias == "noise" else {})
    out = {"extract": asdict(extract_config(job, scale)), "bias": bias, "reestimate": job.reestimate}
    odd = {"unbiased": job.unbiased, "redrawn": job.redrawn, "held_out": job.held_out}
    return out | {name: value for name, value in odd.items() if value}  # without them the hash stays as it was


def vanilla_key(job: Job, scale: Scale, start: str) -> str:
    """Under which the cache has its vanilla model."""
    return config_hash(vanilla_part(job, scale, start))


def extract_key(job: Job, scale: Scale, start: str) -> str:
    """Under which the cache has its extraction."""
    return config_hash(vanilla_part(job, scale, start) | extract_part(job, scale))


def cached(job: Job, scale: Scale, start: str) -> list[str]:
    """The keys of what the job takes from the cache, or makes for it."""
    if job.kind == "count":
        return []
    found = [vanilla_key(job, scale, start)]
    if job.extracts:
        found.append(extract_key(without_reestimation(job), scale, start))
    return found


def without_reestimation(job: Job) -> Job:
    """The job whose extraction it takes: BatchNorm's statistics are estimated anew after it."""
    return replace(job, reestimate=False) if job.kind == "extract" else job


def config_hash(config: Mapping[str, Any], *, rounding: bool = True) -> str:
    """The hash of a configuration; without `rounding` that of all which differ by their precision alone.

    Fields that a configuration class got since are filled in with what leaves things as they were.
    """
    whole = dict(config)
    without = HOW if whole.get("held_out") else HOW + UNTOLD
    for name, kind in PARTS.items():
        if name in whole:
            defaults = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
            before = {key: v for key, v in BEFORE.items() if key in defaults}
            values = {**defaults, **before, **whole[name]}.items()
            whole[name] = {
                key: v
                for key, v in values
                if key not in without and (key, v) != ROUNDING and (rounding or key != ROUNDING[0])
            }
    text = json.dumps(whole, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
