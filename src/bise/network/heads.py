"""Attention heads in a forward pass: which dimension of a tensor holds them, as far as they stay apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

PLAIN = NonDynamicallyQuantizableLinear
"""What torch's own attention projects with."""

SAME = frozenset(("contiguous", "clone", "dropout", "feature_dropout", "to", "type", "type_as", "float", "half"))
"""Operations that leave every number at its place."""
MATMUL = frozenset(("matmul", "__matmul__", "bmm"))
TURNED = frozenset(("permute", "transpose", "swapaxes"))
MERGED = frozenset(("view", "reshape", "flatten"))


class InputGate(nn.Module):
    """What multiplies the input of a layer, by a hook of its own."""


class Projection(PLAIN):
    """The output projection of torch's own attention, which reads its weight and never calls it.

    A gate on its input is then one on the columns of its weight: with gates of 0 and 1 that is the same bit for bit,
    and the attention keeps to whichever of its kernels it would take.
    """

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        weight: Any = self._parameters["weight"]
        for hook in self._forward_pre_hooks.values():
            if isinstance(getattr(hook, "__self__", None), InputGate):
                (weight,) = hook(self, (weight,))
        return cast(Tensor, weight)

    def forward(self, x: Tensor) -> Tensor:
        """Where somebody calls it after all, its hooks have seen x."""
        return F.linear(x, cast(Tensor, self._parameters["weight"]), self.bias)


@dataclass(frozen=True, kw_only=True)
class Heads:
    """Heads, or groups of heads that share their key and value, along a dimension of a tensor."""

    units: int
    dim: int
    """Counts from the front."""
    each: int
    """How many consecutive entries of the dimension a unit owns: a group has several heads, and behind the reshape each
    head has all its channels."""
    origin: int = 0
    """Which attention it is the output of."""


class HeadsSeen:
    """Follows the outputs of attention through a forward pass, until its heads are concatenated."""

    def __init__(self) -> None:
        self.of: dict[int, Heads] = {}
        self.attentions: list[str] = []
        """The module that each attention is computed in."""
        self.in_modules: dict[str, tuple[int, int]] = {}
        """{torch's own attention: (heads, channels of each)}, which projects their outputs in the same function."""
        self._softmax: set[int] = set()
        self._copies: dict[int, tuple[int, int]] = {}
        """{tensor: (dimension, copies of each entry)}: keys and values of grouped queries, before attention reads them;
        copies along a dimension of their own while that is there."""

    def note(self, name: str, module: str, args: Any, kwargs: Any, output: Tensor, order: list[int] | None) -> None:
        """An operation that gave `output`; `order` are its input's dimensions where it is a permutation of them."""
        inputs = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        if not inputs:
            return
        first = inputs[0]
        self._copied(name, args, first, output)
        if name == "multi_head_attention_forward":
            count = int(kwargs["num_heads"] if "num_heads" in kwargs else args[4])
            self.in_modules[module] = count, output.shape[-1] // count
        elif name == "scaled_dot_product_attention" and output.dim() > 3:
            groups = output.shape[-3] // inputs[2].shape[-3]  # more than one where it repeats them itself
            self._attended(module, inputs[2], output, groups)
        elif name in MATMUL and id(first) in self._softmax and output.dim() > 3:
            self._attended(module, inputs[1], output, 1)
        elif name == "softmax" or (id(first) in self._softmax and output.shape == first.shape):
            self._softmax.add(id(output))
        elif (heads := self.of.get(id(first))) is not None:
            moved = _moved(name, heads, first, output, order)
            if moved is not None:
                self.of[id(output)] = moved

    def _attended(self, module: str, values: Tensor, output: Tensor, groups: int) -> None:
        """Attention's output [..., heads, length, channels]; `groups` heads read the same values."""
        dim, count = output.dim() - 3, output.shape[-3]
        place, copies = self._copies.get(id(values), (dim, 1))
        each = groups * (copies if place == dim else 1)
        self.of[id(output)] = Heads(units=count // each, dim=dim, each=each, origin=len(self.attentions))
        self.attentions.append(module)

    def _copied(self, name: str, args: Any, first: Tensor, output: Tensor) -> None:
        if name == "expand" and output.dim() == first.dim():
            grown = [d for d in range(1, output.dim()) if output.shape[d] != first.shape[d]]
            if len(grown) == 1:
                self._copies[id(output)] = (grown[0], output.shape[grown[0]])
        elif name == "repeat_interleave" and output.dim() == first.dim():
            grown = [d for d in range(output.dim()) if output.shape[d] != first.shape[d]]
            if len(grown) == 1 and isinstance(args[1], int):
                self._copies[id(output)] = (grown[0], args[1])
        elif id(first) in self._copies:
            dim, copies = self._copies[id(first)]
            if name in SAME and output.shape == first.shape:
                self._copies[id(output)] = (dim, copies)
            elif name in MERGED:
                merged = (*first.shape[: dim - 1], first.shape[dim - 1] * copies, *first.shape[dim + 1 :])
                if tuple(output.shape) == merged:
                    self._copies[id(output)] = (dim - 1, copies)


def _moved(name: str, heads: Heads, first: Tensor, output: Tensor, order: list[int] | None) -> Heads | None:
    """Where the heads are behind one more operation; None where they are mixed."""
    if name in SAME and output.shape == first.shape:
        return heads
    if name in TURNED and order is not None:
        return replace(heads, dim=order.index(heads.dim))
    if name not in MERGED:
        return None
    before, after = first.shape, output.shape
    behind = before[heads.dim + 1 :]
    for dim in range(output.dim()):
        if prod(after[:dim]) == prod(before[: heads.dim]) and after[dim] % before[heads.dim] == 0:
            spread = after[dim] // before[heads.dim]
            if spread in (1, prod(behind)) and prod(after[dim + 1 :]) * spread == prod(behind):
                return replace(heads, dim=dim, each=heads.each * spread)
    return None
