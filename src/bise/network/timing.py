"""Two networks side by side in the modes in which people run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bise.base.errors import BadInput
from bise.base.slower import EAGER, SLOWER
from bise.network.outputs import call, device_of, tensors_in
from bise.network.size import latency

GRAPH, COMPILED = "CUDA graph", "torch.compile"
MODES = (EAGER, GRAPH, COMPILED)
_WARM = 3


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Milliseconds for one batch, the dense network and the shrunk one taking turns."""

    mode: str
    dense_ms: float
    shrunk_ms: float
    ratio: float
    batch: int
    device: str

    def __str__(self) -> str:
        return (
            f"{self.dense_ms:.2f} → {self.shrunk_ms:.2f} ms for a batch of {self.batch} ({self.mode}, {self.device})"
            f"{self.warning}"
        )

    @property
    def warning(self) -> str:
        """What has to be said of a network that lost time; nothing of others."""
        return f": slower than dense by {100 * (self.ratio - 1):.0f} %" if self.ratio >= SLOWER else ""


def timed(
    dense: nn.Module, small: nn.Module, example: Any, modes: Sequence[str] = (EAGER,), *, rounds: int = 15
) -> tuple[Timed, ...]:
    """Both networks on one batch in each of these modes; in those of a GPU only there."""
    if unknown := sorted(set(modes) - set(MODES)):
        raise BadInput(f"mode {unknown[0]!r} is unknown; choose from {', '.join(MODES)}")
    out = []
    for mode in modes:
        if mode == GRAPH and device_of(dense).type != "cuda":
            continue
        with torch.inference_mode():
            pair = [_RUNNERS[mode](network, example) for network in (dense, small)]
        seen = latency(pair[0], pair[1], example, rounds=rounds)
        out.append(
            Timed(
                mode=mode,
                dense_ms=seen.first_ms,
                shrunk_ms=seen.second_ms,
                ratio=seen.ratio,
                batch=seen.batch,
                device=seen.device,
            )
        )
    return tuple(out)


def _eager(network: nn.Module, _: Any) -> Any:
    return network


def _graph(network: nn.Module, example: Any) -> Callable[..., None]:
    """The network recorded once on this batch, to be replayed without what Python costs."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM):
            call(network, example)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = list(tensors_in(call(network, example)))

    def replay(*_: Any, **__: Any) -> None:
        graph.replay()

    replay.kept = kept  # type: ignore[attr-defined]
    return replay


def _compiled(network: nn.Module, example: Any) -> Any:
    compiled: Any = torch.compile(network, dynamic=False)
    for _ in range(_WARM):
        call(compiled, example)
    return compiled


_RUNNERS: dict[str, Callable[[nn.Module, Any], Any]] = {EAGER: _eager, GRAPH: _graph, COMPILED: _compiled}
