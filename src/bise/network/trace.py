"""What one forward pass did: which module made which tensor, who consumed it, and where a gate could sit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from torch import Tensor

from bise.network.heads import Heads, HeadsSeen

_POOLING = re.compile(r"^((adaptive_)?(max|avg)_pool[123]d|(feature_)?(alpha_)?dropout[123]?d?|interpolate|mean)$")
RESHAPE = frozenset(("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand"))

Key = tuple[int, int]
"""A value: the tensor's identity and its version, since in-place operations give one tensor several values."""


def value_key(tensor: Tensor) -> Key:
    return id(tensor), tensor._version


@dataclass(kw_only=True)
class Call:
    """One call of a module of the model."""

    path: str
    entry: int
    exit: int = -1
    input_key: Key | None = None
    output_key: Key | None = None
    input_shape: tuple[int, ...] | None = None
    output_shape: tuple[int, ...] | None = None
    input_dim: int | None = None
    output_dim: int | None = None
    input_heads: Heads | None = None


@dataclass(kw_only=True)
class Activation:
    """One application of a nonlinearity."""

    what: str
    module: str
    key: Key
    batch: int
    units: int
    dim: int
    shape: tuple[int, ...]
    feeds_layer: bool = False


@dataclass(frozen=True, kw_only=True)
class Read:
    """One operation that reads a tensor."""

    time: int
    name: str
    product: bool
    """Whether it multiplies the tensor with another one."""
    affine: bool
    """Whether it adds a number or multiplies with one."""
    output: Key
    shape: tuple[int, ...]
    dim: int | None
    keeps: bool
    """Whether the channels are still there, and no mean over them."""


@dataclass(kw_only=True)
class Trace:
    calls: list[Call]
    activations: list[Activation]
    reads: dict[Key, list[Read]]
    linears: frozenset[str]
    """Linear layers that reach the logits with no other linear layer between."""
    moved: frozenset[str]
    """Buffers that the forward pass itself updates, in eval mode."""
    logits: Key
    heads: HeadsSeen = field(default_factory=HeadsSeen)

    def scales(self, activation: Activation) -> bool:
        """Whether it only multiplies other tensors, as in squeeze-and-excite: a scale, not a unit."""
        reads = self.reads.get(activation.key, [])
        return bool(reads) and all(read.product for read in reads)

    def gated(self, activation: Activation) -> Activation | None:
        """The product with another tensor of the same shape, as in gated MLPs, or a swish written out: there the units
        are. None where it is a scale: over positions, or of units that have a gate of their own."""
        reads = self.reads.get(activation.key, [])
        if len(reads) != 1 or reads[0].shape != activation.shape or reads[0].dim != activation.dim:
            return None
        (read,) = reads
        units = [a for a in self.activations if a is not activation and not self.scales(a)]
        if any(other is read for a in units for other in self.reads.get(a.key, [])):
            return None
        return replace(activation, key=read.output)

    def written_out(self, activation: Activation) -> Activation:
        """The product in which a GELU written out ends, x / 2 · (1 + erf(x / √2)) or with tanh; else what was given."""
        factor = activation
        while len(reads := self.reads.get(factor.key, [])) == 1 and reads[0].affine:
            factor = replace(activation, key=reads[0].output)
        if activation.what not in ("erf", "tanh") or factor is activation or not self.scales(factor):
            return activation
        return self.gated(factor) or activation

    def last_linears(self) -> list[str]:
        order = [c.path for c in self.calls]
        return sorted(self.linears, key=order.index)

    def single(self) -> Iterator[Call]:
        """Calls of modules that run once, the root aside: a hook there fires for this tensor alone."""
        counts: dict[str, int] = {}
        for c in self.calls:
            counts[c.path] = counts.get(c.path, 0) + 1
        return (c for c in self.calls if c.path and counts[c.path] == 1)

    def hook_for(self, key: Key) -> str | None:
        """The innermost module whose output is this tensor, unread until then; else the one that alone reads it
        as its first input, with ":in"."""
        reads = self.reads.get(key, [])
        makers = [c for c in self.single() if c.output_key == key and all(r.time > c.exit for r in reads)]
        if makers:
            return min(makers, key=lambda c: c.exit).path
        readers = [c for c in self.single() if c.input_key == key and all(c.entry < r.time < c.exit for r in reads)]
        return max(readers, key=lambda c: c.entry).path + ":in" if readers and reads else None

    def projections(self) -> Iterator[tuple[str, Heads]]:
        """(module, heads) of each layer that alone reads the concatenated heads of an attention."""
        found: dict[Key, Call] = {}
        for c in self.single():
            if c.input_key is None or c.input_heads is None or c.input_heads.dim != len(c.input_shape or ()) - 1:
                continue
            if all(c.entry < read.time < c.exit for read in self.reads.get(c.input_key, [])):
                found[c.input_key] = c  # the innermost is entered last
        return ((c.path, c.input_heads) for c in found.values() if c.input_heads is not None)

    def hook_past(self, activation: Activation) -> tuple[str, int, int] | None:
        """(module, channel dimension, features a unit) of the first hook at or after this tensor.

        A gate of 0 or 1 commutes with pooling, dropout and resizing, and with flattening, after which each unit
        owns a run of features: models that write these as functions are gated behind them.
        """
        key, dim, width = activation.key, activation.dim, activation.units
        while (where := self.hook_for(key)) is None:
            reads = self.reads.get(key, [])
            if len(reads) != 1 or not reads[0].keeps:
                return None
            (read,) = reads
            pooled = bool(_POOLING.match(read.name)) and read.dim == dim
            flattened = (
                (read.name in RESHAPE or read.name == "mean")
                and dim == 1
                and len(read.shape) == 2
                and read.shape[0] == activation.batch
                and read.shape[1] % activation.units == 0
            )
            if not pooled and not flattened:
                return None
            key, dim, width = read.output, 1 if flattened else dim, read.shape[1 if flattened else dim]
        return where, dim, width // activation.units
