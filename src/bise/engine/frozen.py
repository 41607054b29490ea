"""What frozen weights make needless: the part before the first gate again and again, and biases before BatchNorm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from bise.engine.inference import batchwise
from bise.engine.inputs import Inputs
from bise.engine.precision import autocast
from bise.network.outputs import call, logits_tensor
from bise.network.scaling import scaled_channels
from bise.network.subnetwork import Subnetwork


@contextmanager
def frozen_part(sub: Subnetwork, held: list[Inputs], draws: int, budget: int, precision: str) -> Iterator[list[Inputs]]:
    """While open, the network starts behind what no gate can change, on inputs that have passed it already.

    `held` are the inputs that it is run on, `draws` how often samples of the first are asked for: the outputs are
    kept where each is used twice or more on average and all of them fit into `budget` bytes.
    """
    example = held[0].example()
    with merged_biases(sub, example), frozen_norms(sub):
        often = all(inputs.x is not None for inputs in held) and draws >= 2 * len(held[0])
        modules = prefix(sub, example) if often else []
        each = bytes_each(sub, modules, example, precision) if modules else 0
        if not modules or each * sum(len(inputs) for inputs in held) > budget:
            modules, passed = [], held
        else:
            passed = [behind(sub, modules, inputs, precision) for inputs in held]
        with skipping(modules), cast_weights(sub, precision, held[0].channels_last):
            yield passed


class _Reached(Exception):
    """The end of the prefix, with its output: the rest of the forward pass isn't needed."""

    def __init__(self, output: Tensor) -> None:
        self.output = output


@torch.no_grad()
def prefix(sub: Subnetwork, example: Any) -> list[nn.Module]:
    """The modules that run before any gate and through which everything passes, in order; the last one is the cut."""
    if not isinstance(example, Tensor):
        return []
    sub.eval()
    found: list[nn.Module] = []
    order = _before_gates(sub, example.clone())
    for count in range(1, len(order) + 1):
        if not _is_cut(sub, order[:count], example):
            break
        found = order[:count]
    return found


def _is_cut(sub: Subnetwork, modules: list[nn.Module], example: Tensor) -> bool:
    """Whether the network may start behind `modules`: nothing else looks at x, and nothing else is done to it.

    Found by trial: each of them is made to hand on its input, and the network is fed v in place of x. It must give
    what it gives with v in place of the last one's output; for v as they come, and far from that, where a clamp or a
    skip connection can't hide.
    """
    try:
        output = _until(sub, modules[-1], example.clone())
        if not isinstance(output, Tensor) or len(output) != len(example):
            return False
        generator = torch.Generator(output.device).manual_seed(0)
        far = output.clone().normal_(std=100 * float(output.abs().max()), generator=generator)
        for v in (output, far):
            expected = _with_output(sub, modules[-1], v.clone(), example.clone())
            with skipping(modules):
                found = logits_tensor(call(sub, v.clone()))
            if found.shape != expected.shape or not _same(found, expected):
                return False
    except Exception:  # the model's own code may fail in any way on an input it wasn't made for
        return False
    return True


def _same(found: Tensor, expected: Tensor) -> bool:
    """Bit for bit on a CPU; some of cuDNN's algorithms add in an order that changes."""
    if not found.is_cuda:
        return torch.equal(found, expected)
    return torch.allclose(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def _with_output(sub: Subnetwork, module: nn.Module, output: Tensor, x: Tensor) -> Tensor:
    """The logits for x with `output` in place of what `module` gives the first time that it runs."""
    given = iter([output])
    handle = module.register_forward_hook(lambda *_: next(given, None), prepend=True)
    try:
        return logits_tensor(call(sub, x))
    finally:
        handle.remove()


@contextmanager
def skipping(modules: list[nn.Module]) -> Iterator[None]:
    """While open, each of `modules` hands on its input."""
    before = [vars(module).get("forward") for module in modules]
    for module in modules:
        module.forward = _through
    try:
        yield
    finally:
        for module, forward in zip(modules, before, strict=True):
            if forward is None:
                del module.forward
            else:
                module.forward = forward


@torch.no_grad()
def behind(sub: Subnetwork, modules: list[nn.Module], inputs: Inputs, precision: str) -> Inputs:
    """The outputs of the cut for all samples of `inputs`, as inputs of the network that skips `modules`."""
    store: Tensor | None = None
    done = 0
    with autocast(precision, inputs.device):
        order, size = torch.arange(len(inputs)), inputs.roomy_batch()
        for output, index in batchwise(partial(_until, sub, modules[-1]), inputs, order, size):
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


@contextmanager
def merged_biases(sub: Subnetwork, example: Any) -> Iterator[None]:
    """While open, the bias of a convolution in front of a frozen BatchNorm is part of that one's mean.

    On a GPU adding a bias is a pass of its own over the activations. Rounding differs in the last bit.
    """
    sub.eval()
    pairs = convolutions_and_norms(sub, example) if isinstance(example, Tensor) and example.is_cuda else []
    with shifted(pairs):
        yield


Pair = tuple[nn.Conv2d, nn.modules.batchnorm._BatchNorm]


@contextmanager
def shifted(pairs: list[Pair], by: list[Tensor] | None = None) -> Iterator[None]:
    """While open, the biases and the means behind them are larger by so much; without `by`, all biases are gone."""
    kept = [(norm._buffers["running_mean"], convolution._parameters["bias"]) for convolution, norm in pairs]
    for i, ((convolution, norm), (mean, bias)) in enumerate(zip(pairs, kept, strict=True)):
        assert mean is not None
        assert bias is not None
        more = -bias.detach() if by is None else by[i]
        norm._buffers["running_mean"] = mean + more
        convolution._parameters["bias"] = None if by is None else nn.Parameter(bias + more, requires_grad=False)
    try:
        yield
    finally:
        for (convolution, norm), (mean, bias) in zip(pairs, kept, strict=True):
            norm._buffers["running_mean"] = mean
            convolution._parameters["bias"] = bias


@contextmanager
def cast_weights(sub: Subnetwork, precision: str, channels_last: bool) -> Iterator[None]:
    """While open, convolutions and linear layers hold their weights in bf16, where that is the precision of a pass.

    Autocast would round the same fp32 weights the same way, and lay them out anew, in every step.
    """
    layers = [m for m in sub.network.modules() if type(m) in (nn.Conv2d, nn.Linear)] if precision == "bf16" else []
    kept = [{name: p for name, p in layer._parameters.items() if p is not None} for layer in layers]
    for layer, parameters in zip(layers, kept, strict=True):
        for name, parameter in parameters.items():
            whole = channels_last and parameter.dim() == 4
            layout = torch.channels_last if whole else torch.contiguous_format
            cast = parameter.detach().to(torch.bfloat16).contiguous(memory_format=layout)
            layer._parameters[name] = nn.Parameter(cast, requires_grad=False)
    try:
        yield
    finally:
        for layer, parameters in zip(layers, kept, strict=True):
            layer._parameters.update(parameters)


class _FrozenNorm(torch.autograd.Function):
    """BatchNorm on its statistics, for pictures on a GPU with their channels innermost, nothing of it learned."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, norm: nn.BatchNorm2d, scale: Tensor, constants: Tensor) -> Tensor:
        ctx.save_for_backward(scale, constants)
        mean, variance = norm.running_mean, norm.running_var
        return torch.batch_norm(x, norm.weight, norm.bias, mean, variance, False, 0.0, norm.eps, False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        scale, constants = ctx.saved_tensors
        grad = grads[0].contiguous(memory_format=torch.channels_last)
        return scaled_channels(grad, scale, constants), None, None, None


@contextmanager
def frozen_norms(sub: Subnetwork) -> Iterator[None]:
    """While open, gradients pass BatchNorm on a GPU by its own fast kernel; torch takes a broadcast product there."""
    norms = [m for m in sub.network.modules() if type(m) is nn.BatchNorm2d and _is_frozen(m)]
    for norm in norms:
        assert norm.running_var is not None
        scale = norm.weight.detach() / (norm.running_var + norm.eps).sqrt()
        constants = torch.stack([torch.zeros_like(scale), torch.ones_like(scale)])
        norm.forward = partial(_norm, norm, scale, constants)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward


def _is_frozen(norm: nn.BatchNorm2d) -> bool:
    fp32 = norm.affine and norm.weight.is_cuda and norm.weight.dtype == torch.float32
    plain = "forward" not in vars(norm)  # other libraries put theirs there
    return fp32 and plain and norm.running_var is not None and not norm.training


def _norm(norm: nn.BatchNorm2d, scale: Tensor, constants: Tensor, x: Tensor) -> Tensor:
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return _FrozenNorm.apply(x, norm, scale, constants)  # type: ignore[no-untyped-call]
    return type(norm).forward(norm, x)


@torch.no_grad()
def convolutions_and_norms(sub: Subnetwork, example: Tensor) -> list[Pair]:
    """Convolutions with a bias whose output goes into a BatchNorm that runs on its statistics, and nowhere else.

    That nothing else reads it is found by trial: a shift of bias and mean must leave the logits where they were.
    """
    produced: dict[int, tuple[nn.Conv2d, Tensor]] = {}
    used: dict[nn.Module, int] = {}
    sizes: dict[nn.Module, float] = {}
    pairs: list[Pair] = []

    def note(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        used[module] = used.get(module, 0) + 1
        if isinstance(module, nn.Conv2d) and module._parameters.get("bias") is not None:
            produced[id(output)] = (module, output)  # holding the tensor keeps its id from being used again
            sizes[module] = float(output.abs().max())
        elif isinstance(module, nn.modules.batchnorm._BatchNorm) and args and id(args[0]) in produced:
            pairs.append((produced[id(args[0])][0], module))

    kinds = (nn.Conv2d, nn.modules.batchnorm._BatchNorm)
    handles = [m.register_forward_hook(note) for m in sub.network.modules() if isinstance(m, kinds)]
    try:
        expected = logits_tensor(call(sub, example.clone()))
    finally:
        for handle in handles:
            handle.remove()
    pairs = [
        (convolution, norm)
        for convolution, norm in pairs
        if used[convolution] == used[norm] == 1 and norm.running_mean is not None and not norm.training
    ]

    def free(some: list[Pair]) -> bool:
        by = []
        for convolution, norm in some:
            assert norm.running_mean is not None
            generator = torch.Generator(example.device).manual_seed(0)
            shift = torch.empty_like(norm.running_mean).normal_(std=1 + sizes[convolution], generator=generator)
            by.append(shift)
        with shifted(some, by):
            found = logits_tensor(call(sub, example.clone()))
        return torch.allclose(found, expected, rtol=0, atol=1e-3 * float(expected.abs().max()))

    return pairs if free(pairs) else [pair for pair in pairs if free([pair])]


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
