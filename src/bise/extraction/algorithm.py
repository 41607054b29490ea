"""Algorithm 1: learn one score per unit with the weights frozen, and hand back the subnetwork they describe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput, caution
from bise.base.files import finite
from bise.data.core.cells import Cells
from bise.data.core.contract import Log, Progress, labels, unloaded
from bise.data.core.identity import warn_of_same
from bise.engine.checkpoints import EVERY, Checkpoint, key_of
from bise.engine.checks import check_kinds, check_outputs
from bise.engine.frozen import frozen_part
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.engine.precision import resolved
from bise.engine.processes import count, total
from bise.engine.storage import Memory
from bise.engine.validation import Validation, identity
from bise.extraction.budget import BUDGETS, wanted, with_budget
from bise.extraction.config import ExtractConfig
from bise.extraction.loop import Loop
from bise.extraction.margins import choose, learned_with_margins
from bise.extraction.problem import Problem
from bise.network.outputs import call, device_of
from bise.network.placement import one_bottleneck, place
from bise.network.shrinking.counting import Counter
from bise.network.size import latency
from bise.network.subnetwork import Subnetwork
from bise.network.twin import fingerprint


def extract(
    model: nn.Module,
    train: Any,
    *,
    val: Any = None,
    config: ExtractConfig | None = None,
    budget: float | Mapping[str, float] | None = None,
    sites: Sequence[str] | str | None = None,
    bottleneck: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    log: Log | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = EVERY,
) -> Subnetwork:
    """Find the subnetwork of `model` that doesn't lean on b, on its own weights and device; the model is not changed.

    A run whose `margin` or `smoothing` is chosen for it and gains little on `val` is repeated without them, and the
    better one is returned.

    Args:
        model: Any classifier of x that returns logits [N, C], one logit a sample, a tuple, or an object with
            `.logits`.
        train: A data set or DataLoader that yields (x, y, b), with some samples that conflict with the bias.
        val: An unbiased one. With it, the best mask on it is returned, and the last one stays at hand as `.last`;
            without it the last mask is returned.
        config: The settings; None is the default preset, `ExtractConfig()`.
        budget: A share of the model's MACs, or {"macs", "parameters" or "latency": share}: what the shrunk network may
            take.
        sites: Names or patterns of the sites that get gates; None finds them.
        bottleneck: The layer whose input z [N, d] the bias head reads, by its name; None finds the last linear layer.
        workers: Processes that read data that are not in memory; None is up to four for picture files.
        progress: Called with (label, done, total); `bise.Bars()` shows bars.
        log: Called with a row of figures for each epoch; `bise.to_mlflow()` makes such a function.
        checkpoint: A file that keeps the state. Where it exists already, the run goes on from there and ends as it
            would have without the stop; a repeated run has a file of its own beside it.
        checkpoint_every: Seconds from one state to the next.

    Returns:
        The subnetwork; what was done is in its `.record`.

    Raises:
        BadInput: No sample conflicts with the bias, no site or several bottlenecks are found, or data, settings or
            weights can't be worked with; the sentence says which.

    Example:
        >>> sub = bise.extract(model, train, val=val, config=config)
        >>> sub.units[0] < sub.units[1]  # open, all
        True
    """
    config = ExtractConfig() if config is None else config
    check_kinds(model, config, ExtractConfig)
    config = with_budget(config, budget)
    if torch.is_inference_mode_enabled():
        raise BadInput("bise.extract needs gradients, and runs under torch.inference_mode(); call it outside of that")
    kept = None if checkpoint is None else Path(checkpoint)
    train, val = unloaded(train), unloaded(val)
    warn_of_same({"train": train, "val": val}, [("train", "val")])

    def run(config: ExtractConfig, attempt: int) -> Subnetwork:
        again = attempt == 2
        return _learned(
            model,
            train,
            val,
            config=config,
            sites=sites,
            bottleneck=bottleneck,
            workers=workers,
            progress=_without_margins(progress) if again else progress,
            log=log and (lambda row: log({**row, "run": 2})) if again else log,
            checkpoint=kept and kept.with_name(f"{kept.stem}.again{kept.suffix}") if again else kept,
            checkpoint_every=checkpoint_every,
        )

    found = learned_with_margins(run, config)
    for note in found.record["notes"]:
        caution(note)
    return found


def _second(label: str) -> str:
    return f"{label}, run 2 of 2, without margins" if label == "extracting" else f"{label}, run 2"


def _without_margins(progress: Progress | None) -> Progress | None:
    """Says of a second run that it is one."""
    return progress and (lambda label, done, total: progress(_second(label), done, total))


def _learned(
    model: nn.Module,
    train: Any,
    val: Any,
    *,
    config: ExtractConfig,
    sites: Sequence[str] | str | None,
    bottleneck: str | None,
    workers: int | None,
    progress: Progress | None,
    log: Log | None,
    checkpoint: Path | None,
    checkpoint_every: float,
) -> Subnetwork:
    """One run of Algorithm 1."""
    started = time.perf_counter()
    memory, inputs, cells, validation, precision = _data(model, train, val, config, workers, progress)
    before = fingerprint(model)
    placement = place(model, inputs.example(), patterns=sites, gates_at=config.gates_at, norms=config.norms)
    updated = frozenset() if config.bn == "frozen" else batch_norm_tensors(model, config.bn)
    named = one_bottleneck(placement, model, bottleneck)
    sub = Subnetwork(model, placement.sites, bottleneck=named, owned=updated | placement.moved)
    _check_runs(sub, inputs, cells, validation)
    _prepare(sub, inputs, validation, config)
    counter, timed = _counted(sub, inputs, config)
    with _frozen_part_once(sub, inputs, validation, config, memory, precision) as (passed, judged):
        problem = Problem(
            sub=sub,
            inputs=passed,
            cells=cells,
            validation=judged,
            config=config,
            precision=precision,
            memory=memory.left,
            counter=counter,
            timed=timed,
        )
        kept = None
        if checkpoint is not None:
            whose = [[site.name for site in placement.sites], sub.bottleneck, before]
            # a budget counts where there is one: states of earlier versions, which knew none, go on
            given = {name: value for name, value in asdict(config).items() if value is not None or name not in BUDGETS}
            key = key_of(given, whose, *identity(train, cells, val, judged))
            kept = Checkpoint(checkpoint, key=key, every=checkpoint_every)
        notes = [*problem.notes(), *(f"no gate for {what}" for what in placement.left_out)]
        notes += [said] if (said := problem.nondeterminism()) else []
        loop = Loop(problem, choose(problem), notes=notes, progress=progress, log=log, checkpoint=kept)
        with torch.enable_grad():
            result = loop.run()
    result.record |= {
        "job": "extract",
        "config": finite(asdict(config)),
        "precision": precision,
        "weights_before": before,
        "weights_after": fingerprint(model),
        "left_out": list(placement.left_out),
        "seconds": time.perf_counter() - started,
    }
    if result.record["weights_after"] != before:
        raise RuntimeError("extraction changed the model's weights; this is a bug, please report it")
    return result


def _data(
    model: nn.Module, train: Any, val: Any, config: ExtractConfig, workers: int | None, progress: Progress | None
) -> tuple[Memory, Inputs, Cells, Validation | None, str]:
    """(memory that is left, inputs, cells, validation, precision): what is read before there is a network to gate."""
    cells = labels(train, progress=progress)
    cells.check_trainable()
    precision = resolved(config.precision, model)
    memory = Memory(config.memory, len(cells) + (len(val) if hasattr(val, "__len__") else 0), cells.biases)
    inputs = Inputs(train, device_of(model), budget=memory.left, workers=workers)
    memory.take(inputs.copied)
    if isinstance(model, Subnetwork):
        raise BadInput(
            "extract takes a model, and this is a subnetwork of one, whose gates would be gated again; give sub.bare(),"
            " the whole network"
        )
    validation = None
    if val is not None:
        validation = Validation(val, cells, inputs, progress, precision, memory.left)
        memory.take(validation.inputs.copied)
    return memory, inputs, cells, validation, precision


def _check_runs(sub: Subnetwork, inputs: Inputs, cells: Cells, validation: Validation | None) -> None:
    """Refuse a network that can't run on the first samples of either set, or has too few classes."""
    check_outputs(infer(sub, inputs, index=torch.arange(min(64, len(cells)))).logits, cells, split="train")
    if validation is None:
        return
    try:
        infer(sub, validation.inputs, index=torch.arange(min(2, len(validation.cells))))
    except RuntimeError as error:
        what = str(error).strip().partition("\n")[0]
        raise BadInput(f"val: the model can't run on its first samples ({what}); make x as in train") from error


def _prepare(sub: Subnetwork, inputs: Inputs, validation: Validation | None, config: ExtractConfig) -> None:
    """Set how samples are handed to the network: their layout in memory, and what is changed about them at random."""
    inputs.prefer_channels_last(lambda x: call(sub, x))
    if validation is not None:
        validation.inputs.channels_last = inputs.channels_last
    inputs.jitter_by(config.jitter)
    inputs.augments = config.augment


def _counted(
    sub: Subnetwork, inputs: Inputs, config: ExtractConfig
) -> tuple[Counter | None, Callable[[list[Tensor]], float] | None]:
    """What counts the shrunk network, and what measures its latency, where they are limited."""
    limits = wanted(config)
    if not limits:
        return None, None
    try:
        counter = Counter(sub, inputs.example(), inputs.example(1))
    except BadInput as error:
        raise BadInput(f"a budget is for a network that can be shrunk, and this one can't be: {error}") from error
    if "latency" not in limits:
        return counter, None
    dense, x = sub.bare(), inputs.example(config.batch_size)

    def timed(masks: list[Tensor]) -> float:
        ratio = latency(dense, counter.built(masks), x).ratio
        return (
            float(total(torch.tensor([ratio], dtype=torch.float64, device=inputs.device))[0]) / count()
        )  # several processes measure alike

    return counter, timed


@contextmanager
def _frozen_part_once(
    sub: Subnetwork,
    inputs: Inputs,
    validation: Validation | None,
    config: ExtractConfig,
    memory: Memory,
    precision: str,
) -> Iterator[tuple[Inputs, Validation | None]]:
    """While open, the network starts behind what no gate can change, on inputs that have passed it already."""
    if not config.cache or config.bn != "frozen" or inputs.changing:
        yield inputs, validation
        return
    held = [inputs] if validation is None else [inputs, validation.inputs]
    draws = config.total_steps(len(inputs)) * config.batch_size
    # half of what is left, since features on the device are worth more
    with frozen_part(sub, held, draws, memory.left // 2, precision) as passed:
        if passed is not held:
            memory.take(sum(inputs.x.nbytes for inputs in passed if inputs.x is not None))
        yield passed[0], None if validation is None else validation.on(passed[1])


def batch_norm_tensors(model: nn.Module, kind: str) -> frozenset[str]:
    """The names of BatchNorm's running statistics, and of β and γ where they are learned too."""
    names: list[str] = []
    for path, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            keys = [key for key, value in module._buffers.items() if value is not None]
            keys += [key for key, value in module._parameters.items() if value is not None and kind == "all"]
            names += [f"{path}.{key}" if path else key for key in keys]
    if not names:
        raise BadInput(f'bn={kind!r} needs BatchNorm layers, and {type(model).__name__} has none; use bn="frozen"')
    return frozenset(names)
