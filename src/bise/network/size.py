"""How big a network is: weights, multiply-accumulates by layer, sparsity, and latency side by side."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from bise.base.errors import BadInput
from bise.network.outputs import tensors_in
from bise.network.twin import duplicate

aten = torch.ops.aten


@dataclass(frozen=True, kw_only=True)
class Size:
    """Counts for one batch; MACs are multiply-accumulates of convolutions, linear layers and attention."""

    parameters: int
    macs: int
    by_layer: dict[str, int]
    """{layer: MACs}, in the order of the forward pass."""
    paper: int
    """By the paper's convention: MACs of convolutions and linear layers, plus two for each BatchNorm output, plus
    one for each input of the global average pooling."""

    fused: int
    """Parameters that are left when each BatchNorm is folded into the convolution before it, as the paper counts."""

    @property
    def flops(self) -> int:
        """Floating-point operations: two for each MAC."""
        return 2 * self.macs


def parameters(model: nn.Module) -> int:
    """Weights that the forward pass uses: parameters, and what shrinking or folding made of them."""
    made = ("bias_", "border_", "constant_", "folded_weight_")
    extra = (t.numel() for name, t in model.named_buffers() if name.startswith(made) and t.is_floating_point())
    return sum(p.numel() for p in model.parameters()) + sum(extra)


def size(model: nn.Module, example: Any) -> Size:
    """Count parameters and MACs of `model` for one batch like `example`, on the meta device where that works."""
    try:
        counter = _counted(duplicate(model).to("meta"), _to_meta(example))
    except (RuntimeError, NotImplementedError):  # the forward pass looks at values: then it has to be computed
        counter = _counted(duplicate(model), example)
    return Size(
        parameters=parameters(model),
        macs=sum(counter.macs.values()),
        by_layer=dict(counter.macs),
        paper=sum(n for name, n in counter.macs.items() if name not in counter.attention) + counter.extras,
        fused=parameters(model) + counter.fused,
    )


def _counted(model: nn.Module, x: Any) -> _Counter:
    model.eval()
    counter = _Counter(model)
    with torch.no_grad(), counter:
        model(**x) if isinstance(x, Mapping) else model(x)
    return counter


def _to_meta(x: Any) -> Any:
    if isinstance(x, Mapping):
        return {key: _to_meta(value) for key, value in x.items()}
    return x.to("meta") if isinstance(x, Tensor) else x


class _Counter(TorchDispatchMode):
    """Adds up MACs while a network runs, under the name of the weight that is used."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        tensors = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
        self.names = {t.untyped_storage()._cdata: name for name, t in tensors}
        self.macs: dict[str, int] = {}
        self.attention: set[str] = set()
        self.extras = 0
        self.fused = 0
        self.convolved: dict[int, tuple[Tensor, bool]] = {}  # holds the outputs, so that no storage is used again

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        count = _MACS.get(func)
        if func is aten.convolution.default:
            self.convolved[out.untyped_storage()._cdata] = (out, args[2] is not None)
        if count is not None:
            operands, macs = count(args, out)
            name = next((self.names[c] for t in operands if (c := t.untyped_storage()._cdata) in self.names), "")
            name = name.removesuffix(".weight") or "attention"
            if name == "attention" or func in _ATTENTION:
                self.attention.add(name)
            self.macs[name] = self.macs.get(name, 0) + macs
        elif func in _NORMS:
            self.extras += 2 * out[0].numel()
            _, biased = self.convolved.get(args[0].untyped_storage()._cdata, (None, None))
            if biased is not None:
                self.fused -= sum(t.numel() for t in args[1:3] if t is not None)
                self.fused += 0 if biased else args[0].shape[1]
        elif func in _POOLS and out.shape[2:].numel() == 1:
            self.extras += args[0].numel()
        elif func is aten.mean.dim and args[0].dim() == 4 and out.numel() == args[0].shape[:2].numel():
            self.extras += args[0].numel()  # what adaptive pooling to 1 × 1 runs as
        return out


def _convolution(args: Any, out: Tensor) -> tuple[Sequence[Tensor], int]:
    return (args[1],), out.numel() * args[1][0].numel()


def _addmm(args: Any, out: Tensor) -> tuple[Sequence[Tensor], int]:
    return (args[2], args[1]), args[1].shape[0] * args[1].shape[1] * args[2].shape[1]


def _mm(args: Any, out: Tensor) -> tuple[Sequence[Tensor], int]:
    return (args[1], args[0]), out.numel() * args[0].shape[-1]


def _attention(args: Any, _: Any) -> tuple[Sequence[Tensor], int]:
    query, key, value = args[:3]
    scores = query.shape[:-1].numel() * key.shape[-2]
    return (), scores * (query.shape[-1] + value.shape[-1])


_ATTENTION = {
    getattr(aten, f"_scaled_dot_product_{kind}").default
    for kind in ("flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention")
}
_MACS: dict[Any, Any] = {
    aten.convolution.default: _convolution,
    aten.addmm.default: _addmm,
    aten.mm.default: _mm,
    aten.bmm.default: _mm,
    **dict.fromkeys(_ATTENTION, _attention),
}
_NORMS = {aten.native_batch_norm.default, aten._native_batch_norm_legit_no_training.default} | {
    aten.cudnn_batch_norm.default
}
_POOLS = (aten._adaptive_avg_pool2d.default, aten.adaptive_avg_pool2d.default)


@dataclass(frozen=True, kw_only=True)
class Sparsity:
    """Shares of the network that are gone, in percent."""

    units: float
    """Closed units over all units that have a gate."""
    paper: float
    """As the paper counts: parameters pruned over those of the dense network, BatchNorm folded in both."""
    physical: float
    """Parameters that the shrunk network no longer has, over those of the dense one, BatchNorm as it is."""


def sparsity(masks: Mapping[str, Tensor], dense: Size, shrunk: Size) -> Sparsity:
    """The share that is gone, counted in three ways."""
    closed = sum(int((~mask).sum()) for mask in masks.values())
    units = sum(mask.numel() for mask in masks.values())
    return Sparsity(
        units=100 * closed / max(1, units),
        paper=100 * (1 - shrunk.fused / dense.fused),
        physical=100 * (1 - shrunk.parameters / dense.parameters),
    )


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Milliseconds for one batch of two networks that took turns, and the median of the ratios of neighbours."""

    first_ms: float
    second_ms: float
    ratio: float
    rounds: int
    batch: int
    device: str
    threads: int


def latency(first: Any, second: Any, example: Any, *, rounds: int = 15, warmup: int = 2) -> Latency:
    """Time two networks on one batch, alternating in one run, so that whatever else the machine does hits both."""
    if rounds < 1:
        raise BadInput(f"rounds={rounds} times nothing; give at least 1")
    tensor = next(t for t in tensors_in(example) if t.dim())
    times: tuple[list[float], list[float]] = ([], [])
    with torch.inference_mode():
        for number in range(warmup + rounds):
            order = (0, 1) if number % 2 else (1, 0)
            for which in order:
                seconds = _timed((first, second)[which], example, tensor.device)
                if number >= warmup:
                    times[which].append(seconds)
    return Latency(
        first_ms=1000 * statistics.median(times[0]),
        second_ms=1000 * statistics.median(times[1]),
        ratio=statistics.median(b / a for a, b in zip(*times, strict=True)),
        rounds=rounds,
        batch=tensor.shape[0],
        device=torch.cuda.get_device_name(tensor.device) if tensor.is_cuda else "cpu",
        threads=torch.get_num_threads(),
    )


def _timed(module: Any, x: Any, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    module(**x) if isinstance(x, Mapping) else module(x)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start
