"""The whole path on data that ships with a dependency: a biased digit classifier, and the fair one inside it.

Data, widths and epochs were chosen on seeds 100 to 102, test set included. `benchmarks/demo.py` has other seeds.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from bise.data.core.contract import Progress, labels
from bise.data.core.identity import hashes, identities
from bise.data.sets.digits import coloured_digits
from bise.engine.checkpoints import EVERY
from bise.engine.config import TrainConfig
from bise.extraction.config import ExtractConfig
from bise.jobs.pipeline import (
    Work,
    extraction,
    finetuning,
    finish,
    origin_of,
    refitting_too,
    shrinking,
    silent,
    train_vanilla,
)
from bise.jobs.steps import evidence
from bise.methods.refit.config import RefitConfig
from bise.network.architectures.small import digit_net
from bise.network.saving import load
from bise.runs.folder import Run, note_job

RHO = 0.985


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How each network of the demo is made."""

    train: TrainConfig
    extract: ExtractConfig
    refit: RefitConfig
    finetune: TrainConfig


def look(seed: int, rho: float) -> dict[str, Any]:
    """What the digits look like: turned copies and noisy backgrounds, else the few conflicting ones are learned by
    heart, and the others teach colour alone; darker than the palette, else white strokes are hard to see on some."""
    return {"seed": seed, "rho": rho, "copies": 16, "turned": 1.0, "noise": 0.1, "brightness": 0.8}


def settings(seed: int, *, epochs: tuple[int, int] = (5, 4), upsilon: int = 5) -> Settings:
    """The demo's; fewer `epochs`, of the model and of the finetuning, and fewer at each temperature make a trial."""
    return Settings(
        train=TrainConfig(epochs=epochs[0], lr=0.05, schedule="cosine", seed=seed),
        extract=ExtractConfig(seed=seed, upsilon=upsilon),
        refit=RefitConfig(seed=seed),
        finetune=TrainConfig.finetuning(epochs=epochs[1], lr=0.01, schedule="cosine", jitter=1.0, seed=seed),
    )


def demo(
    out: str | Path,
    *,
    seed: int = 0,
    rho: float = RHO,
    progress: Progress | None = None,
    tensorboard: bool = False,
    resume: bool = False,
    every: float = EVERY,
) -> dict[str, Any]:
    """Train, audit, extract, refit, finetune with the dense control, shrink; returns the summary."""
    progress = progress or silent
    chosen, digits = settings(seed), look(seed, rho)
    data: dict[str, Any] = coloured_digits(**digits)
    cells = labels(data["train"])
    cells.check_trainable()
    known = identities(data)
    whole = {
        "command": f"bise demo --seed {seed} --rho {rho:g}",
        "source": {
            "model": "demo:digits",
            "model_arguments": {},
            "weights": "model.safetensors",
            "data": "demo:digits",
            "data_arguments": digits,
        },
        "seed": seed,
        "rho": rho,
        "train": asdict(chosen.train),
        "preset": "balanced",
        "extract": asdict(chosen.extract),
        "refit": asdict(chosen.refit),
        "bottleneck": None,
        "sites": None,
        "device": "cpu",
        "sha256": hashes(known),
    }
    with Run(out, whole, job="demo", resume=resume, every=every, tensorboard=tensorboard) as run:
        if run.finished is not None:
            return run.finished
        work = Work(**data, cells=cells, known=known, run=run, progress=progress)
        return _path(work, chosen)


def _path(work: Work, chosen: Settings) -> dict[str, Any]:
    """What bise train, extract, refit, finetune and shrink would do in turn, as one job."""
    started = time.perf_counter()
    model = train_vanilla(work, digit_net(chosen.train.seed), chosen.train, torch.device("cpu"))
    sub, summary = extraction(work, model, chosen.extract)
    summary |= refitting_too(work, model, sub, chosen.refit)
    note_job(work.folder, "finetune", {"finetune": asdict(chosen.finetune)} | origin_of(model, sub, work.known))
    summary |= finetuning(work, sub, model, chosen.finetune)
    endings = (".pt2", ".onnx") if find_spec("onnxscript") and find_spec("onnxruntime") else (".pt2",)
    for name in ("subnetwork", *(["refitted"] if "refitted" in summary else []), "finetuned"):
        files = [work.folder / f"{name}{ending}" for ending in endings]
        summary |= shrinking(work, summary, name, load(work.folder / name, model), files)
    summary["seconds"] = time.perf_counter() - started
    finish(work, summary, evidence(work.folder, model, sub, work.val, work.test, work.cells, work.progress))
    return summary
