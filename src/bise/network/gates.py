"""Scores, gates and the subnetwork: a twin of the model with one gate per unit."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from bise.base.errors import BadInput
from bise.network.heads import InputGate
from bise.network.masked_norm import masked_layer_norm
from bise.network.placement import Site
from bise.network.scaling import ScaledChannels


def slope(scores: Tensor, tau: Tensor | float) -> Tensor:
    """σ'(m/τ)/τ, the derivative that stands behind 1{m ≥ 0} (equation 2).

    Written with e^−|m/τ|, so that both tails underflow alike and nothing overflows.
    """
    tail = torch.exp(-(scores / tau).abs())
    return tail / (1 + tail).square() / tau


class Gate(InputGate):
    """The gate of one site; `live` holds values that are being learned, otherwise the mask rules."""

    scores: Tensor
    mask: Tensor
    constants: Tensor

    def __init__(self, site: Site, scores: Tensor, mask: Tensor) -> None:
        super().__init__()
        self.site = site
        self.register_buffer("scores", scores)
        self.register_buffer("mask", mask)
        constants = torch.stack(
            [torch.zeros(site.units, dtype=torch.float32), torch.ones(site.units, dtype=torch.float32)]
        ).to(scores.device)
        self.register_buffer("constants", constants, persistent=False)
        self.live: Tensor | None = None

    def forward(self, h: Tensor) -> Tensor:
        """ĥ = h · gate along the channel dimension; an open gate multiplies by exactly 1."""
        value = self.mask if self.live is None else self.live
        site = self.site
        if not -h.dim() <= site.dim < h.dim() or h.shape[site.dim] != site.units * site.spread:
            raise BadInput(
                f"{site.name}: {site.units} units are said to lie in dimension {site.dim}, and a tensor of shape"
                f" {tuple(h.shape)} came; place the gates on an example of this model"
            )
        pictures = h.is_cuda and h.dim() == 4 and self.site.dim == 1 and self.site.spread == 1
        if pictures and h.dtype != torch.float64 and h.is_contiguous(memory_format=torch.channels_last):
            return ScaledChannels.apply(h, value.float(), self.constants.float())  # type: ignore[no-untyped-call]
        value = value.to(h.dtype)
        if self.site.spread > 1:
            value = value.repeat_interleave(self.site.spread)
        shape = [1] * h.dim()
        shape[self.site.dim] = -1
        return h * value.view(shape)

    def on_output(self, _: nn.Module, __: Any, output: Tensor) -> Tensor:
        return cast(Tensor, self(output))

    def on_input(self, _: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        first = next(i for i, value in enumerate(args) if isinstance(value, Tensor))
        return (*args[:first], self(args[first]), *args[first + 1 :])

    def on_norm(self, norm: nn.LayerNorm, args: tuple[Any, ...], output: Tensor) -> Tensor:
        """What the LayerNorm gives that knows the mask, which takes no gradient there."""
        live = self.mask if self.live is None else self.live.detach() > 0
        return masked_layer_norm(args[0], live, norm.weight, norm.bias, norm.eps).to(output.dtype)


def threshold(zeta: float) -> float:
    """The score at which σ(m) = ζ; exactly 0 at ζ = 0.5, so that the cut there is m ≥ 0."""
    if not 0 <= zeta <= 1:
        raise BadInput(f"zeta={zeta} is no threshold; give a value from 0 to 1")
    return -math.inf if zeta == 0 else math.inf if zeta == 1 else math.log(zeta) - math.log1p(-zeta)


class Gated(nn.Module):
    """A network with gates on it, as shrinking knows it."""

    network: nn.Module
    gates: nn.ModuleList

    def place(self, example: Any) -> None:
        """Put gates that wait for an example where it shows their channels to be."""

    def bare(self) -> nn.Module:
        """The network without its gates."""
        raise NotImplementedError
