"""Random numbers that belong to a sample: a function of (seed, sample, stream), whatever the batch and the device."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


# SplitMix64 (Steele, Lea and Flood 2014): its increment and the two factors of its mixer
_STEP, _FIRST, _SECOND = (_signed(v) for v in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_BITS = 23  # k + ½ is then exact in float32, so that neither 0 nor 1 comes out


def _mix(z: Tensor) -> Tensor:
    """SplitMix64's output function on int64, which wraps around as uint64 does; shifts are made logical by a mask."""
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _FIRST
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _SECOND
    return z ^ ((z >> 31) & ((1 << 33) - 1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """The random numbers of some samples: `index` [n] of int64, on the device where the numbers are wanted."""

    seed: int
    index: Tensor

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, part: slice | Tensor) -> Draws:
        return Draws(seed=self.seed, index=self.index[part])

    def hashed(self, stream: int, *shape: int) -> Tensor:
        """[n, *shape] of 64 random bits: each sample and stream is a SplitMix64 sequence with a start of its own."""
        origin = torch.tensor([_signed((self.seed * 0x10001 + stream) % (1 << 64))], device=self.index.device)
        start = _mix(_mix(origin * _STEP) + self.index * _STEP)
        steps = torch.arange(1, math.prod(shape) + 1, device=self.index.device) * _STEP
        return _mix(_mix(start)[:, None] + steps).view(len(self), *shape)

    def uniform(self, stream: int, *shape: int) -> Tensor:
        """[n, *shape] in (0, 1)."""
        top = (self.hashed(stream, *shape) >> (64 - _BITS)) & ((1 << _BITS) - 1)
        return (top.float() + 0.5) / (1 << _BITS)

    def normal(self, stream: int, *shape: int) -> Tensor:
        """[n, *shape] with mean 0 and variance 1, within ±5.3."""
        return torch.erfinv(2 * self.uniform(stream, *shape) - 1) * math.sqrt(2)

    def between(self, stream: int, low: float, high: float, *shape: int) -> Tensor:
        """[n, *shape], uniform from low to high."""
        return low + (high - low) * self.uniform(stream, *shape)
