"""From a subnetwork to files: shrink it, measure dense against shrunk, write ONNX and .pt2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bise.base.errors import caution
from bise.data.core.contract import Progress
from bise.data.core.tokens import sentences_of
from bise.engine.inputs import Inputs
from bise.jobs.exporting import check_target, export, tokenizer_file
from bise.network.outputs import device_of
from bise.network.shrinking.verify import allowed
from bise.network.size import latency, size, sparsity
from bise.network.subnetwork import Subnetwork

BATCHES = (1, 256)
"""Batch sizes at which latency is measured."""
MOST_PARAMETERS = 300_000_000
"""Beyond this an extraction doesn't shrink by itself, since the check holds the network twice in float64."""
EXAMPLE = 8
"""Samples on which shrunk and masked network are compared."""


def deploy(sub: Subnetwork, data: Any, files: Sequence[Path], progress: Progress) -> dict[str, Any]:
    """Shrink `sub`, compare it with its dense network, write `files`; returns the figures for `summary.json`.

    Sizes are for one sample of `data`. Latency is that of dense and shrunk taking turns, on the device of `sub`.
    """
    inputs = Inputs(data, device_of(sub))
    for path in files:
        check_target(path)
    progress("shrinking", 0, 1)
    small, figures = shrunk(sub, inputs)
    dense = sub.bare()
    times = {}
    for batch in BATCHES:
        order = torch.arange(batch) % len(inputs)
        x = next(inputs.batches(order, batch))[0]
        times[str(batch)] = asdict(latency(dense, small, x))
    written = {path.name: _written(small, path, inputs.example(EXAMPLE), data) for path in files}
    progress("shrinking", 1, 1)
    return figures | {"latency_by_batch": times, "files": written}


def sizes(sub: Subnetwork, data: Any, progress: Progress) -> dict[str, Any]:
    """What is left when the closed units are taken out; the extraction stands also where that can't be done."""
    if sum(p.numel() for p in sub.network.parameters()) > MOST_PARAMETERS:
        return {}
    progress("shrinking", 0, 1)
    try:
        figures = shrunk(sub, Inputs(data, device_of(sub)))[1]
    except Exception as error:
        why = (str(error).strip().splitlines() or ["no message"])[0]
        note = f"the closed units could not be taken out, so sizes are not known ({type(error).__name__}: {why})"
        caution(note)
        sub.record["notes"].append(note)
        return {}
    finally:
        progress("shrinking", 1, 1)
    return {"shrunk": figures}


def shrunk(sub: Subnetwork, inputs: Inputs) -> tuple[nn.Module, dict[str, Any]]:
    """`sub` without its closed units, and what `summary.json` tells of that: sizes for one sample, and the check."""
    small = sub.shrink(inputs.example(EXAMPLE))
    one = inputs.example(1)
    before, after = size(sub.bare(), one), size(small, one)
    report: Any = small.shrink_report
    return small, {
        "parameters": {"dense": before.parameters, "shrunk": after.parameters},
        "macs": {"dense": before.macs, "shrunk": after.macs},
        "macs_paper": {"dense": before.paper, "shrunk": after.paper},
        "macs_by_layer": {"dense": before.by_layer, "shrunk": after.by_layer},
        "sparsity_percent": asdict(sparsity(sub.masks, before, after)),
        "difference_float64": max(report.differences.values()),
        "difference_float32": report.float32,
        **({"noise": report.noise, "allowed_float64": allowed(report.noise)} if report.noise else {}),
        "barriers": [str(barrier) for barrier in report.barriers],
    }


def _written(small: nn.Module, path: Path, example: Any, data: Any) -> dict[str, Any]:
    """Write one file, and the tokenizer beside it where there is one."""
    texts = sentences_of(data)
    whole = {"path": str(path.resolve())}
    if texts is None or texts.coder.file is None:
        return {"difference": export(small, path, example, data=data)} | whole
    difference = export(small, path, example, data=data, texts=texts)
    return {"difference": difference, "tokenizer": tokenizer_file(path).name} | whole
