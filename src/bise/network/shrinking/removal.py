"""Shrinking: closed units removed physically, the same function to float64 rounding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

from bise.base.errors import BadInput
from bise.network.gates import Gated
from bise.network.outputs import call, device_of, nondeterminism, plain_output, tensors_in, to_device
from bise.network.shrinking.analysis import Analysis, Barrier
from bise.network.shrinking.capture import Captured, as_module, capture
from bise.network.shrinking.channel_rules import FULL_WIDTH
from bise.network.shrinking.choosing import candidates, fastest
from bise.network.shrinking.closing import closed_at_layers
from bise.network.shrinking.folding import fold
from bise.network.shrinking.report import ShrinkReport
from bise.network.shrinking.rewrite import Rewrite
from bise.network.shrinking.rules import RULES
from bise.network.shrinking.verify import (
    Differences,
    NotExact,
    OtherSize,
    as_float64,
    check,
    difference,
    in_float64,
    runs,
)
from bise.network.shrinking.widths import PLAIN, Widths
from bise.network.size import parameters
from bise.network.timing import timed
from bise.network.twin import duplicate


def shrink(
    sub: Gated,
    example: Any,
    *,
    align: int | Literal["auto"] = 1,
    streams: Literal["narrow", "union", "auto"] | None = None,
    fold_batchnorm: bool = False,
    on_barrier: Literal["keep", "raise"] = "keep",
) -> nn.Module:
    """A plain module without the closed units, checked against `sub` in float64; `.shrink_report` says how it went.

    `example` is a batch of at least two samples. `align` is the multiple that widths are filled up to with filters of
    zeros, and `streams` says whether each segment of a residual stream is as "narrow" as can be, or all of them keep
    the "union" of what any needs, so that sums need no index. "auto" times some of these on the example and keeps the
    fastest. With on_barrier="raise", an operation that has to keep closed channels is an error instead of an entry in
    the report.
    """
    choices = candidates(align, streams)
    example, masked = _checked(sub, example, on_barrier)
    masks: dict[int, Any] = {number: gate.mask for number, gate in enumerate(sub.gates)}
    for free in (True, False):
        try:
            captured = capture(sub, example, free_sizes=free)
        except BadInput:  # torch.export may not be able to solve for free sizes, and need not
            if not free:
                raise
            continue

        def made(widths: Widths, captured: Captured = captured) -> tuple[fx.GraphModule, set[str], tuple[Barrier, ...]]:
            small, derived, barriers = rewritten(captured, masks, widths)
            return small, derived | (fold(small) if fold_batchnorm else set()), barriers

        widths, tried = fastest(choices, lambda widths: _ready(*made(widths)[:2], sub), sub.bare(), example)
        small, derived, barriers = made(widths)
        if barriers and on_barrier == "raise":
            raise BadInput(f'{barriers[0]}; on_barrier="keep" leaves them there, and the result is still exact')
        try:
            differences = proof(masked, small, example, captured, fold_batchnorm, widths)
        except OtherSize:  # the model branches on sizes: then they can't be free
            if not free:
                raise
        else:
            break
    settle(small, derived, dtype_of(sub))
    report = ShrinkReport(
        parameters_before=sum(p.numel() for p in sub.network.parameters()),
        parameters_after=parameters(small),
        differences=dict(differences),  # plain, as a network that is saved with it has to load where bise isn't
        float32=difference(masked, small, example),
        noise=differences.noise,
        barriers=barriers,
        held=_held(captured),
        align=widths.multiple,
        streams=widths.streams,
        tried=tried,
        times=timed(sub.bare(), small, example, ("eager",), rounds=3),
    )
    object.__setattr__(small, "shrink_report", report)  # no tensor and no module: a note on it
    return small


def _checked(sub: Gated, example: Any, on_barrier: str) -> tuple[Any, Gated]:
    """The example where the network is, and a copy of the subnetwork, in eval mode and with its gates placed."""
    if on_barrier not in ("keep", "raise"):
        raise BadInput(f'on_barrier={on_barrier!r} is unknown; choose "keep" or "raise"')
    example = to_device(example, device_of(sub))
    if not all(t.isfinite().all() for t in tensors_in(example) if t.is_floating_point()):
        raise BadInput("the example holds NaN or infinity; give inputs as the network takes them")
    sub.place(example)
    masked: Gated = duplicate(sub)
    masked.eval()
    _check_runs_alike(masked, example)
    return example, masked


def _held(captured: Captured) -> tuple[str, ...]:
    """The sizes that inputs have to have, in words."""
    return tuple(
        f"{captured.keys[number] if captured.keys else 'x'} {' × '.join(map(str, dims.values()))}"
        for number, dims in captured.held.items()
    )


def _ready(small: fx.GraphModule, derived: set[str], sub: Gated) -> fx.GraphModule:
    """A candidate in the precision of the network, to be timed."""
    settle(small, derived, dtype_of(sub))
    return small


def _check_runs_alike(masked: Gated, example: Any) -> None:
    """Refuse a network that can't run on the example, or that answers otherwise a second time."""
    try:
        wavering = nondeterminism(masked, example)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:  # torch.export would say less clearly why
        what = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise BadInput(
            f"{type(masked.network).__name__} can't run on the example ({what}); check its shape and type"
        ) from error
    if wavering:
        raise BadInput(f"there is nothing to compare a shrunk network with: {wavering}")


def rewritten(
    captured: Captured, masks: Mapping[int, Tensor], widths: Widths = PLAIN
) -> tuple[fx.GraphModule, set[str], tuple[Barrier, ...]]:
    """(module, names of its folded constants, still in float64, barriers) for one capture under these masks."""
    on_cpu = {number: mask.cpu() for number, mask in masks.items()}
    net = Analysis(captured=captured, rules=RULES, barrier=FULL_WIDTH)
    net.run(on_cpu)
    barriers = tuple(net.barriers)
    if widths != PLAIN:
        net = Analysis(captured=closed_at_layers(net), rules=RULES, barrier=FULL_WIDTH, widths=widths)
        net.run(on_cpu)
    new = Rewrite(net)
    module = new.build().to(next(iter(captured.tensors.values())).device if captured.tensors else "cpu")
    names = set(dict(module.named_buffers()))
    return module, new.derived & names, barriers


def proof(
    masked: Gated, small: nn.Module, example: Any, captured: Captured, folded: bool, widths: Widths = PLAIN
) -> Differences:
    """{case: relative difference} between the masked network and the shrunk one in float64."""
    if captured.doubtful and device_of(masked).type != "cpu":
        check_sizes_on_cpu(masked, example)
        captured = replace(captured, doubtful=())
    precise, inputs = duplicate(masked).double(), as_float64(example)
    try:
        with torch.no_grad():
            usable = _finite(call(precise, inputs)) or not _finite(call(masked, example))
    except (RuntimeError, ValueError, TypeError):
        usable = False
    if not usable:
        # a model may make float32 of its inputs by itself, and then not know what to do with weights in float64, or
        # take a number for float32's largest that isn't: its graph stands in for it, if it is the model's in the
        # precision that it has
        graph = as_module(captured)
        check(masked, graph, example, captured, tolerance=torch.finfo(dtype_of(masked)).eps ** 0.5)
        return check(in_float64(graph), in_float64(small), inputs, captured)
    shrunk = in_float64(small)
    # or it may round to float32; then the check needs a graph captured in float64, casts and all
    ways: list[Callable[[], Differences]] = [
        lambda: check(precise, shrunk, inputs, captured),
        lambda: check(precise, in_float64_by_capture(precise, inputs, folded, widths), inputs, captured),
        lambda: check(precise, shrunk, inputs, captured, by_noise=True),
    ]
    refused: NotExact | None = None
    for way in ways:
        try:
            return way()
        except OtherSize:
            raise
        except NotExact as error:
            refused = error
    assert refused is not None
    raise refused


def _finite(output: Any) -> bool:
    return all(bool(t.isfinite().all()) for t in tensors_in(plain_output(output)))


def check_sizes_on_cpu(masked: Gated, example: Any) -> None:
    """Compare model and graph at sizes at which the model may not run: on a GPU, a position that no embedding has would
    end everything."""
    copied, x = duplicate(masked).cpu(), to_device(example, torch.device("cpu"))
    if not runs(copied, x):
        raise OtherSize("the model doesn't run on a CPU, where other sizes could be tried")
    captured = capture(copied, x)
    check(copied, as_module(captured), x, captured, tolerance=torch.finfo(dtype_of(masked)).eps ** 0.5)


def in_float64_by_capture(masked: Gated, example: Any, fold_batchnorm: bool, widths: Widths = PLAIN) -> nn.Module:
    """The shrunk network of a subnetwork that was turned to float64 before it was captured."""
    captured = capture(masked, example)
    masks = {number: gate.mask for number, gate in enumerate(masked.gates)}
    small, _, _ = rewritten(captured, masks, widths)  # type: ignore[arg-type]
    if fold_batchnorm:
        fold(small)
    return small


def settle(module: nn.Module, derived: set[str], dtype: torch.dtype) -> None:
    """Round folded constants, kept in float64 for the check, to the precision of the network."""
    for name in derived & set(dict(module.named_buffers())):  # folding may have used some up
        path, _, leaf = name.rpartition(".")
        owner = module.get_submodule(path)
        owner._buffers[leaf] = owner.get_buffer(leaf).to(dtype)


def dtype_of(module: nn.Module) -> torch.dtype:
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
