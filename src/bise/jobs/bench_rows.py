"""One row of a comparison: a method on a data set with a seed, its figures on test, and what it cost."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bise.base.errors import BadInput, Lost, caution
from bise.data.core.cells import Cells
from bise.engine.inputs import Inputs
from bise.engine.validation import Validation
from bise.jobs.bench_problems import Problem
from bise.jobs.deployment import shrunk
from bise.measure.audits import audit
from bise.methods.shared.interface import Method, Pair, Setting, Start, Tally
from bise.network.outputs import device_of
from bise.network.size import size
from bise.network.subnetwork import Subnetwork
from bise.network.twin import named_tensors


@dataclass(frozen=True, kw_only=True)
class Block:
    """What the rows of one data set and seed share."""

    problem: Problem
    seed: int
    train: Any
    val: Any
    """What methods fit and select on, drawn by the comparison's rule."""
    test: Any
    cells: Cells
    """The labels of train; its b mean nothing where it has none."""
    vanilla: nn.Module
    setting: Setting


@dataclass
class Meter:
    """Seconds and the highest memory of what runs while it is open."""

    seconds: float = 0.0
    peak: int | None = None
    """Bytes: on a GPU those of torch, on a CPU those of this whole process."""


@contextmanager
def metered(device: torch.device) -> Iterator[Meter]:
    meter = Meter()
    _reset_peak(device)
    begun = time.perf_counter()
    yield meter
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    meter.seconds, meter.peak = time.perf_counter() - begun, _peak(device)


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # Linux alone can forget the highest one
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    factor = 1 if sys.platform == "darwin" else 1024
    return factor * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def row(method: Method, block: Block, *, settings: int, whole: bool = True) -> dict[str, Any]:
    """Train, measure on test, and count; a method that can't run has its reason in place of figures."""
    about = {"method": method.name, "dataset": block.problem.name, "seed": block.seed}
    if (reason := method.reason_against(block.train, block.val)) is not None:
        return about | {"skipped": reason}
    setting = replace(block.setting, tally=Tally())
    try:
        with metered(setting.device) as meter:
            model, config, tried = _best(method, block, setting, settings)
        found: dict[str, Any] = about | {"config": config, "settings": len(tried), "tried": tried}
        found |= figures(block, model)
    except BadInput as error:
        return about | {"skipped": " ".join(str(error).split())}
    except Lost:  # with another process; the others can't go on either
        raise
    except Exception as error:  # a method's code, or a user's, may fail in any way, and the others go on
        what = " ".join(str(error).split()) or "no message"
        caution(f"{method.name} failed on {block.problem.name}, seed {block.seed} ({type(error).__name__}: {what})")
        return about | {"failed": f"{type(error).__name__}: {what}"}
    found["cost"] |= {
        "seconds": meter.seconds if whole else None,  # of a part they would mislead
        "peak_bytes": meter.peak if whole else None,
        "samples": setting.tally.samples or (0 if method.changes == "last layer" else None),
        "labels": ["y", *method.needs],
    }
    return found


def _best(
    method: Method, block: Block, setting: Setting, settings: int
) -> tuple[nn.Module, dict[str, Any], list[dict[str, Any]]]:
    """(model and configuration of the best of the first so many settings, each with its score on val)."""
    changes = ({}, *method.tried)[:settings]
    best: tuple[float, dict[str, Any], nn.Module] | None = None
    tried = []
    for number, change in enumerate(changes):
        config = _config(method, block.problem, change)
        states = None if setting.states is None else setting.states / str(number)
        mine = _at_rate(replace(setting, states=states, key=f"{setting.key}/{number}"), change.get("rate", 1.0))
        model = method.run(_start(method, block), block.train, block.val, config, mine)
        if not isinstance(model, nn.Module):
            raise BadInput(f"{method.name} returned {type(model).__name__}; a method returns a torch module")
        model = model.to(setting.device).eval()
        score = _score(block, model, setting) if setting.selects else None
        tried.append({"changes": dict(change), "val": score})
        if best is None or (score is not None and score > best[0]):
            best = (score or 0.0, as_json(config), model)
    assert best is not None
    return best[2], best[1], tried


def _start(method: Method, block: Block) -> Start:
    """What a method of its kind starts from."""
    if method.starts == "vanilla":
        return block.vanilla
    if method.starts == "teacher":
        return Pair(teacher=block.vanilla, student=block.problem.students(block.seed))
    return block.problem.starts(block.seed)


def _at_rate(setting: Setting, factor: float) -> Setting:
    """The setting with other rates of learning."""
    train, finetune = (replace(budget, lr=budget.lr * factor) for budget in (setting.train, setting.finetune))
    return setting if factor == 1 else replace(setting, train=train, finetune=finetune)


def _config(method: Method, problem: Problem, change: Mapping[str, Any]) -> Any:
    """The method's settings, as the problem changes an extraction and the search one of the method's own."""
    config = method.config
    inner = {name: value for name, value in change.items() if name.startswith("extract.")}
    if problem.search and hasattr(config, "extract"):
        config = replace(config, extract=replace(config.extract, **problem.search))
    if inner:
        short = {name.removeprefix("extract."): value for name, value in inner.items()}
        config = replace(config, extract=replace(config.extract, **short))
    rest = {name: value for name, value in change.items() if name not in inner and name != "rate"}
    return replace(config, **rest) if rest else config


def as_json(config: Any) -> dict[str, Any]:
    """A configuration for the row."""
    return asdict(config) if is_dataclass(config) and not isinstance(config, type) else {}


def _score(block: Block, model: nn.Module, setting: Setting) -> float:
    judge = Validation(block.val, block.cells, Inputs(block.train, setting.device))
    network = model if isinstance(model, Subnetwork) else Subnetwork(model, ())
    return judge(network)[setting.selection]


def figures(block: Block, model: nn.Module) -> dict[str, Any]:
    """What `bise.audit` finds on test, and the size of the result beside the vanilla model's."""
    aligned = None if block.train.b is None else block.cells
    found = audit(model, block.test, aligned=aligned, probe=False, progress=block.setting.progress)
    inputs = Inputs(block.test, device_of(model))
    return {
        "figures": {
            "accuracy": found.accuracy,
            "unbiased": found.unbiased,
            "worst_group": found.worst_group,
            "aligned": found.aligned.accuracy,
            "conflicting": found.conflicting.accuracy,
            "information": [bias.information_predicted for bias in found.biases],
            "by_group": {name: round(value, 4) for name, value in found.by_group.items()},
            "n": found.n,
        },
        "cost": sizes(model, inputs) | {"weights_changed": changed(model, block.vanilla)},
    }


def sizes(model: nn.Module, inputs: Inputs) -> dict[str, Any]:
    """Parameters and MACs of one sample, closed units taken out."""
    plain = _without_closed(model, inputs) if isinstance(model, Subnetwork) else model
    counted = size(plain, inputs.example(1))
    return {"parameters": counted.parameters, "macs": counted.macs}


def _without_closed(sub: Subnetwork, inputs: Inputs) -> nn.Module:
    if all(mask.all() for mask in sub.masks.values()):
        return sub.bare()
    try:
        return shrunk(sub, inputs)[0]
    except Exception as error:  # the mask stands also where units can't be taken out
        caution(f"the closed units could not be taken out, so sizes are those of the dense network ({error})")
        return sub.bare()


def changed(model: nn.Module, vanilla: nn.Module) -> int:
    """How many of the result's weights are not the vanilla model's: parameters and BatchNorm's statistics alike."""
    plain = model.bare() if isinstance(model, Subnetwork) else model
    own = {name: t for name, t in named_tensors(vanilla).items() if t.is_floating_point()}
    count = 0
    for name, tensor in named_tensors(plain).items():
        if not tensor.is_floating_point():
            continue
        before = own.get(name)
        if before is None or before.shape != tensor.shape:
            count += tensor.numel()
        else:
            count += int((tensor.detach().cpu() != before.detach().cpu()).sum())
    return count


def vanilla_row(block: Block, meter: Meter | None, samples: int) -> dict[str, Any]:
    """The model that others start from; without a meter its training wasn't ours, or was stopped on the way."""
    found = figures(block, block.vanilla)
    found["cost"] |= {
        "seconds": None if meter is None else meter.seconds,
        "peak_bytes": None if meter is None else meter.peak,
        "samples": samples or None,
        "labels": ["y"],
    }
    return {"method": "vanilla", "dataset": block.problem.name, "seed": block.seed, **found}
