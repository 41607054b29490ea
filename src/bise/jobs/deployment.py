"""From a subnetwork to files: shrink it, measure dense against shrunk, write ONNX and .pt2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from bise.jobs.runtime import RUNTIME, in_onnx_runtime
from bise.network.outputs import device_of
from bise.network.shrinking.verify import allowed
from bise.network.size import latency, size, sparsity
from bise.network.subnetwork import Subnetwork
from bise.network.timing import timed

BATCHES = (1, 256)
"""Batch sizes at which latency is measured."""
MOST_PARAMETERS = 300_000_000
"""Beyond this an extraction doesn't shrink by itself, since the check holds the network twice in float64."""
PLAIN: dict[str, Any] = {"align": 1, "streams": None}
EXAMPLE = 8
"""Samples on which shrunk and masked network are compared."""


def deploy(
    sub: Subnetwork,
    data: Any,
    files: Sequence[Path],
    progress: Progress,
    widths: Mapping[str, Any] = PLAIN,
    modes: Sequence[str] = (),
) -> dict[str, Any]:
    """Shrink `sub`, compare it with its dense network, write `files`; returns the figures for `summary.json`.

    Sizes are for one sample of `data`. Latency is that of dense and shrunk taking turns, on the device of `sub`, and in
    other modes too where these are named.
    """
    inputs = Inputs(data, device_of(sub))
    for path in files:
        check_target(path)
    progress("shrinking", 0, 1)
    small, figures = shrunk(sub, inputs, **widths)
    dense = sub.bare()
    times: dict[str, Any] = {}
    others: list[dict[str, Any]] = []
    for batch in BATCHES:
        order = torch.arange(batch) % len(inputs)
        x = next(inputs.batches(order, batch))[0]
        times[str(batch)] = asdict(latency(dense, small, x))
        others += [asdict(one) for one in timed(dense, small, x, [m for m in modes if m != RUNTIME])]
        if RUNTIME in modes:
            others.append(asdict(in_onnx_runtime(dense, small, x, inputs.example(EXAMPLE))))
    written = {path.name: _written(small, path, inputs.example(EXAMPLE), data) for path in files}
    progress("shrinking", 1, 1)
    return figures | {"latency_by_batch": times, "latency_by_mode": others, "files": written}


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


def shrunk(sub: Subnetwork, inputs: Inputs, align: Any = 1, streams: Any = None) -> tuple[nn.Module, dict[str, Any]]:
    """`sub` without its closed units, and what `summary.json` tells of that: sizes for one sample, and the check."""
    small = sub.shrink(inputs.example(EXAMPLE), align=align, streams=streams)
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
        **({"tried": [asdict(one) for one in report.tried]} if report.tried else {}),
        **({} if (report.align, report.streams) == (1, "narrow") else {"widths": widths_of(report)}),
    }


def widths_of(report: Any) -> dict[str, Any]:
    """The options that make these widths again."""
    return {"align": report.align, "streams": report.streams}


def _written(small: nn.Module, path: Path, example: Any, data: Any) -> dict[str, Any]:
    """Write one file, and the tokenizer beside it where there is one."""
    texts = sentences_of(data)
    whole = {"path": str(path.resolve())}
    if texts is None or texts.coder.file is None:
        return {"difference": export(small, path, example, data=data)} | whole
    difference = export(small, path, example, data=data, texts=texts)
    return {"difference": difference, "tokenizer": tokenizer_file(path).name} | whole
