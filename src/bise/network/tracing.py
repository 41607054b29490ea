"""One forward pass put on record: hooks and a function mode that follow every tensor of it."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from bise.base.errors import BadInput
from bise.network.heads import HeadsSeen
from bise.network.outputs import call, device_of, logits_tensor, tensors_in, to_device
from bise.network.trace import RESHAPE, Activation, Call, Key, Read, Trace, value_key
from bise.network.twin import own, twin

ACTIVATIONS = re.compile(
    r"^(relu6?|leaky_relu|prelu|rrelu|s?elu|celu|gelu|silu|mish|hardswish|hardtanh|hardsigmoid|sigmoid|tanh"
    r"|erf|softplus|softsign|logsigmoid|tanhshrink|softshrink|hardshrink|threshold)$"
)
_ACTIVATION_CLASS = re.compile(
    r"relu|gelu|silu|swish|mish|[sc]?elu$|tanh|sigmoid|softplus|softsign|shrink|activation$|quickgelu",
    re.IGNORECASE,
)
_LAYER = re.compile(r"^(conv\w*|linear|bilinear|addmm|mm|bmm|matmul|einsum|multi_head_attention_forward|lstm|gru)$")
_PRODUCT = frozenset(("mul", "multiply", "__mul__", "__rmul__", "__imul__"))
_SUM = frozenset(("add", "__add__", "__radd__", "__iadd__"))
_CHANNELS_FIRST = frozenset(("batch_norm", "instance_norm", "group_norm"))


class _Recorder(TorchFunctionMode):
    """Follows every tensor of a forward pass. Works on a twin, whose hooks nobody else sees."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0
        self.stack: list[Call] = []
        self.calls: list[Call] = []
        self.activations: list[Activation] = []
        self.reads: dict[Key, list[Read]] = {}
        self.inside_activation = 0
        self.alive: list[Tensor] = []  # an id is only good while its tensor lives
        self.dims: dict[int, int] = {}
        self.heads = HeadsSeen()
        self.reached_by: dict[int, frozenset[int]] = {}
        self.last_linear: dict[int, frozenset[str]] = {}
        self.weights: set[int] = set()
        """What is computed from parameters alone."""

    # modules

    def attach(self, model: nn.Module) -> None:
        for path, module in model.named_modules():
            acts = not list(module.children()) and bool(_ACTIVATION_CLASS.search(type(module).__name__))
            module.register_forward_pre_hook(self._enter(path, acts), with_kwargs=True)
            module.register_forward_hook(self._leave(path, acts))

    def _enter(self, path: str, acts: bool) -> Any:
        def hook(_: nn.Module, args: Any, kwargs: Any) -> None:
            self.time += 1
            made = Call(path=path, entry=self.time)
            first = next((a for a in args if isinstance(a, Tensor)), None)
            if first is not None:
                made.input_key, made.input_shape = value_key(first), tuple(first.shape)
                made.input_dim, made.input_heads = self._dim(first), self.heads.of.get(id(first))
            self.stack.append(made)
            self.calls.append(made)
            self.inside_activation += acts

        return hook

    def _leave(self, path: str, acts: bool) -> Any:
        def hook(module: nn.Module, _: Any, output: Any) -> None:
            self.time += 1
            made = self.stack.pop()
            made.exit = self.time
            if isinstance(output, Tensor):
                made.output_key, made.output_shape = value_key(output), tuple(output.shape)
                made.output_dim = self._dim(output)
            self.inside_activation -= acts
            if acts and not self.inside_activation and isinstance(output, Tensor):
                self._activation(type(module).__name__, path, output)

        return hook

    # functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = list(tensors_in((args, kwargs)))
        before = [value_key(t) for t in inputs]
        output = func(*args, **kwargs)
        outputs = list(tensors_in(output))
        if not outputs or all(value_key(o) in before for o in outputs):
            return output  # attribute look-ups, and no-ops that hand back what they got
        self.time += 1
        name = getattr(func, "__name__", "").removesuffix("_") or "?"
        if name.startswith("__"):
            name = func.__name__
        module = self.stack[-1].path if self.stack else ""
        tensors = sum(t.dim() > 0 for t in inputs)
        product = name in _PRODUCT and tensors > 1
        affine = (name in _PRODUCT or name in _SUM) and tensors == 1
        reached: frozenset[int] = frozenset().union(*(self.reached_by.get(id(t), frozenset()) for t in inputs))
        linear: frozenset[str] = frozenset().union(*(self.last_linear.get(id(t), frozenset()) for t in inputs))
        if _LAYER.match(name):
            for index in reached:
                self.activations[index].feeds_layer = True
        learned = [isinstance(t, nn.Parameter) or id(t) in self.weights for t in inputs]
        if name.startswith("conv"):
            linear = frozenset()
            self._channels_first(before[0], inputs[0])
        elif name == "linear" or (_LAYER.match(name) and any(learned)):
            # one that the model itself writes as a function has no module whose input is z
            linear = frozenset((module,)) if module else frozenset()
        dim = self._output_dim(name, inputs, args, kwargs, outputs[0])
        shape = tuple(outputs[0].shape)
        keeps = name != "mean" or self._outside_channels(*args, **kwargs)
        made = value_key(outputs[0])
        read = Read(
            time=self.time, name=name, product=product, affine=affine, output=made, shape=shape, dim=dim, keeps=keeps
        )
        for key in set(before):
            self.reads.setdefault(key, []).append(read)
        for tensor in outputs:
            self.alive.append(tensor)
            self.reached_by[id(tensor)] = reached
            self.last_linear[id(tensor)] = linear
            if inputs and all(learned):
                self.weights.add(id(tensor))
            if dim is None:
                self.dims.pop(id(tensor), None)
            else:
                self.dims[id(tensor)] = dim
        if inputs:
            order = _permutation(name, args[1:], kwargs, inputs[0].dim())
            self.heads.note(name, module, args, kwargs, outputs[0], order)
        if ACTIVATIONS.match(name) and not self.inside_activation:
            self._activation(name, module, outputs[0])
        return output

    def _activation(self, what: str, module: str, output: Tensor) -> None:
        dim = self._dim(output)
        if dim is None:
            return
        self.reached_by[id(output)] = self.reached_by.get(id(output), frozenset()) | {len(self.activations)}
        made = Activation(
            what=what,
            module=module,
            key=value_key(output),
            batch=output.shape[0],
            units=output.shape[dim],
            dim=dim,
            shape=tuple(output.shape),
        )
        self.activations.append(made)

    # channels

    def _channels_first(self, key: Key, tensor: Tensor) -> None:
        """What a convolution reads has its channels in dimension 1, whatever was guessed for a tensor of its rank."""
        if id(tensor) in self.dims:
            return
        for made in self.activations:
            if made.key == key:
                made.dim, made.units = 1, tensor.shape[1]
        for known in self.calls:
            known.output_dim = 1 if known.output_key == key else known.output_dim

    def _dim(self, tensor: Tensor) -> int | None:
        """The channel dimension: known from the layer behind it, else by the usual layout for its rank."""
        if id(tensor) in self.dims:
            return self.dims[id(tensor)]
        return {2: 1, 3: -1, 4: 1, 5: 1}.get(tensor.dim())

    def _outside_channels(self, x: Tensor, dim: Any = None, *_: Any, axis: Any = None, **__: Any) -> bool:
        """Whether a mean over `dim` leaves the channels of x alone."""
        over, own = dim if dim is not None else axis, self._dim(x)
        if over is None or own is None:
            return False
        return own % x.dim() not in {d % x.dim() for d in ([over] if isinstance(over, int) else over)}

    def _output_dim(self, name: str, inputs: list[Tensor], args: Any, kwargs: Any, output: Tensor) -> int | None:
        if name.startswith("conv"):
            return 1
        if name == "linear":
            return 1 if output.dim() == 2 else -1
        source = next((t for t in inputs if id(t) in self.dims and t.dim() == output.dim()), None)
        if source is None and name in _CHANNELS_FIRST:
            return 1
        if source is None:  # of another rank: flattened behind the channels, they are where they were
            flat = name in RESHAPE and self.dims.get(id(inputs[0])) == 1 and output.shape[:2] == inputs[0].shape[:2]
            return 1 if flat else None
        dim, rank = self.dims[id(source)], output.dim()
        if name in ("permute", "transpose", "swapaxes", "movedim", "T", "mT"):
            moved = _permutation(name, args[1:], kwargs, rank)
            return None if moved is None else moved.index(dim % rank)
        if name in RESHAPE and output.shape[dim] != source.shape[dim]:
            return None
        return dim


def record(model: nn.Module, example: Any) -> Trace:
    """Run a twin of `model` once on `example`, with every module and operation on the record."""
    copied = twin(model)
    names = dict(copied.named_buffers(remove_duplicate=False))
    own(copied, names)  # a forward pass may count its calls in a buffer: not in the caller's
    buffers = dict(copied.named_buffers(remove_duplicate=False))
    versions = {name: buffer._version for name, buffer in buffers.items()}
    recorder = _Recorder()
    recorder.attach(copied)
    try:
        with torch.no_grad(), recorder:
            output = call(copied, to_device(example, device_of(model)))
    except BadInput:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        raise BadInput(f"{type(model).__name__} can't run on the first samples ({what}); check what x is") from error
    logits = logits_tensor(output)
    after = dict(copied.named_buffers(remove_duplicate=False))
    return Trace(
        calls=recorder.calls,
        activations=recorder.activations,
        reads=recorder.reads,
        linears=recorder.last_linear.get(id(logits), frozenset()),
        logits=value_key(logits),
        heads=recorder.heads,
        moved=frozenset(n for n, v in versions.items() if after.get(n) is not buffers[n] or buffers[n]._version != v),
    )


def _permutation(name: str, rest: Any, kwargs: Any, rank: int) -> list[int] | None:
    """Output position -> input dimension, or None where the call is of a kind that is not read."""
    if name == "permute":
        dims = kwargs.get("dims", rest[0] if rest and isinstance(rest[0], (tuple, list)) else rest)
        return [d % rank for d in dims]
    if name in ("transpose", "swapaxes"):
        pair = [*rest, *(kwargs[k] for k in ("dim0", "dim1", "axis0", "axis1") if k in kwargs)]
        order = list(range(rank))
        order[pair[0] % rank], order[pair[1] % rank] = order[pair[1] % rank], order[pair[0] % rank]
        return order
    return None
