"""The part of a network in front of its first gate: frozen, so its output is computed once for each sample."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from bise.engine.inputs import Inputs
from bise.engine.precision import autocast
from bise.gates import Subnetwork
from bise.models.outputs import call, logits_tensor


class _Reached(Exception):
    """The end of the prefix, with its output: the rest of the forward pass isn't needed."""

    def __init__(self, output: Tensor) -> None:
        self.output = output


@torch.no_grad()
def prefix(sub: Subnetwork, example: Any) -> list[nn.Module]:
    """The modules that run before any gate and through which everything passes, in order; the last one is the cut.

    Found by trial: each of them is made to hand on its input, and the network is fed the cut's output in place of x.
    If logits come out bit for bit the same, nothing behind the cut looks at x in another way.
    """
    if not isinstance(example, Tensor):
        return []
    sub.eval()
    order = _before_gates(sub, example)
    expected = logits_tensor(call(sub, example))
    for count in range(len(order), 0, -1):
        modules = order[:count]
        try:
            output = _until(sub, modules[-1], example)
            if not isinstance(output, Tensor) or len(output) != len(example):
                continue
            with skipping(modules):
                found = logits_tensor(call(sub, output))
        except Exception:  # the model's own code may fail in any way on an input it wasn't made for
            continue
        if torch.equal(found, expected):
            return modules
    return []


@contextmanager
def skipping(modules: list[nn.Module]) -> Iterator[None]:
    """While open, each of `modules` hands on its input."""
    for module in modules:
        module.forward = _through
    try:
        yield
    finally:
        for module in modules:
            del module.forward


@torch.no_grad()
def behind(sub: Subnetwork, modules: list[nn.Module], inputs: Inputs, precision: str) -> Inputs:
    """The outputs of the cut for all samples of `inputs`, as inputs of the network that skips `modules`."""
    store: Tensor | None = None
    done = 0
    with autocast(precision, inputs.device):
        for x, index in inputs.batches(torch.arange(len(inputs)), inputs.roomy_batch()):
            output = _until(sub, modules[-1], x)
            if store is None:
                layout = torch.channels_last if inputs.channels_last and output.dim() == 4 else torch.contiguous_format
                store = torch.empty(
                    len(inputs), *output.shape[1:], dtype=output.dtype, device=output.device, memory_format=layout
                )
            store[done : done + len(index)] = output
            done += len(index)
    assert store is not None
    made = Inputs(TensorDataset(store), inputs.device, checked=True)
    made.channels_last = inputs.channels_last and store.dim() == 4
    return made


@torch.no_grad()
def bytes_each(sub: Subnetwork, modules: list[nn.Module], example: Tensor, precision: str) -> int:
    """What the cut's output takes for one sample."""
    with autocast(precision, example.device):
        output = _until(sub, modules[-1], example)
    return output[0].numel() * output.element_size()


def _through(x: Tensor, *_: Any, **__: Any) -> Tensor:
    return x


def _before_gates(sub: Subnetwork, example: Tensor) -> list[nn.Module]:
    """The innermost modules whose forward pass ends before any gate is asked, in order, each of them run once."""
    order: list[nn.Module] = []
    reached = False

    def note(module: nn.Module, *_: Any) -> None:
        if not reached:
            order.append(module)

    def stop(*_: Any) -> None:
        nonlocal reached
        reached = True

    leaves = [m for m in sub.network.modules() if not any(True for _ in m.children())]
    handles = [leaf.register_forward_hook(note, prepend=True) for leaf in leaves]
    handles += [gate.register_forward_pre_hook(stop) for gate in sub.gates]
    try:
        call(sub, example)
    finally:
        for handle in handles:
            handle.remove()
    first_repeat = next((i for i, m in enumerate(order) if m in order[:i]), len(order))
    return order[:first_repeat]


def _until(sub: Subnetwork, module: nn.Module, x: Any) -> Any:
    """What `module` gives when the network runs on x, before a gate on it."""

    def catch(_: nn.Module, __: Any, output: Any) -> None:
        raise _Reached(output)

    handle = module.register_forward_hook(catch, prepend=True)
    try:
        call(sub, x)
    except _Reached as reached:
        return reached.output
    finally:
        handle.remove()
    return None
