"""Dense and shrunk in ONNX Runtime, from files that are written for it and gone afterwards."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bise.jobs.exporting import export
from bise.network.size import latency
from bise.network.timing import Timed

RUNTIME = "ONNX Runtime"


def in_onnx_runtime(dense: nn.Module, small: nn.Module, x: Any, example: Any, rounds: int = 15) -> Timed:
    """Both networks on one batch on the CPU, with as many threads as torch has."""
    values = x if isinstance(x, Mapping) else {"x": x}
    feed = {name: value.cpu().numpy() for name, value in values.items()}
    with tempfile.TemporaryDirectory(prefix="bise-") as folder:
        pair = [
            _session(network, Path(folder) / f"{n}.onnx", example, feed) for n, network in enumerate((dense, small))
        ]
        on_cpu = {name: torch.from_numpy(value) for name, value in feed.items()}
        seen = latency(pair[0], pair[1], on_cpu, rounds=rounds)
    return Timed(
        mode=RUNTIME,
        dense_ms=seen.first_ms,
        shrunk_ms=seen.second_ms,
        ratio=seen.ratio,
        batch=seen.batch,
        device="cpu",
    )


def _session(network: nn.Module, path: Path, example: Any, feed: Mapping[str, Any]) -> Callable[..., None]:
    """What runs the network's file on this batch; export says it if onnxruntime is missing."""
    export(network, path, example)
    import onnxruntime  # type: ignore[import-not-found,import-untyped,unused-ignore]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = {one.name for one in session.get_inputs()}
    given = {name: value for name, value in feed.items() if name in names}

    def run(**_: Any) -> None:
        session.run(None, given)

    return run
