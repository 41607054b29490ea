"""The scores while they are learned: one flat vector over all sites, and what it does to the subnetwork's gates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

from bise.network.gates import Gate, slope
from bise.network.outputs import call
from bise.network.placement import Site
from bise.network.subnetwork import Subnetwork
from bise.network.twin import named_tensors

Snapshot = tuple[Tensor, dict[str, Tensor]]
"""Scores, and the tensors that the subnetwork owns, as they were once."""


class Scores:
    """m of every unit of `sub` as one vector [units], which starts at 0; `raw` is the largest |∂L/∂gate| seen.

    Everything lives in tensors that keep their place, so that a step can be recorded and replayed.
    """

    def __init__(self, sub: Subnetwork, device: torch.device) -> None:
        self.sub = sub
        self.sizes = [site.units for site in sub.sites]
        self.flat = torch.zeros(sum(self.sizes), device=device, dtype=torch.float32)
        self.velocity = torch.zeros_like(self.flat)
        self.raw = torch.zeros_like(self.flat)
        self.site = torch.repeat_interleave(torch.tensor(self.sizes)).to(device)
        """[units]: the site of each unit."""

    def pieces(self, vector: Tensor) -> Iterator[tuple[Site, Gate, Tensor]]:
        """`vector` [units] cut up by site."""
        gates = (cast(Gate, gate) for gate in self.sub.gates)
        return zip(self.sub.sites, gates, vector.split(self.sizes), strict=True)

    def hold(self) -> Tensor:
        """Put gate values 1{m ≥ 0} that ask for a gradient into the network, and return them as one vector."""
        values = (self.flat >= 0).to(self.flat.dtype).requires_grad_()
        for _, gate, piece in self.pieces(values):
            gate.live = piece
        return values

    def release(self) -> None:
        for _, gate, _ in self.pieces(self.flat):
            gate.live = None

    @torch.no_grad()
    def set_mask(self, scores: Tensor | None = None) -> None:
        """Write `scores`, or the present ones, and their mask into the subnetwork."""
        self.release()
        for _, gate, piece in self.pieces(self.flat if scores is None else scores):
            gate.scores.copy_(piece)
            gate.mask.copy_(piece >= 0)

    @torch.no_grad()
    def step(self, gradient: Tensor, tau: Tensor, *, lr: float, momentum: float, weight_decay: float) -> None:
        """One step of SGD on the scores by `gradient`, that of the loss towards the gate values (equation 2)."""
        torch.maximum(self.raw, gradient.abs(), out=self.raw)
        towards_scores = gradient * slope(self.flat, tau)
        self.velocity.mul_(momentum).add_(towards_scores.add_(self.flat, alpha=weight_decay))
        self.flat.sub_(self.velocity, alpha=lr)

    def untouched(self) -> list[str]:
        """The sites that no gradient has reached: a part of the model under no_grad, or units that are all dead."""
        return [site.name for site, _, piece in self.pieces(self.raw) if not piece.any()]

    def owned(self) -> dict[str, Tensor]:
        """The tensors that the subnetwork owns: BatchNorm's, where those are updated or learned."""
        everything = named_tensors(self.sub.network)
        return {name: everything[name] for name in self.sub.owned}

    def snapshot(self) -> Snapshot:
        """A copy of the scores and of what the subnetwork owns."""
        return self.flat.detach().clone(), {name: tensor.detach().clone() for name, tensor in self.owned().items()}

    @torch.no_grad()
    def restore(self, snapshot: Snapshot) -> None:
        """Make the scores, and what the subnetwork owns, what they were then."""
        self.flat.copy_(snapshot[0])
        owned = self.owned()
        for name, tensor in snapshot[1].items():
            owned[name].copy_(tensor)

    def by_site(self) -> dict[str, Tensor]:
        """{site: scores} as they are now."""
        return {site.name: piece for site, _, piece in self.pieces(self.flat.detach())}

    @torch.no_grad()
    def keep_open(self) -> None:
        """No site closes wholly: its best unit is held at 0, which is open, and loses the push behind it.

        Departure from the paper: a wholly closed site passes no gradient, so the scores before it would be stuck.
        """
        top = self.flat.new_full((len(self.sizes),), -torch.inf).scatter_reduce(0, self.site, self.flat, "amax")
        held = (top < 0)[self.site] & (self.flat == top[self.site])
        self.flat.masked_fill_(held, 0)
        self.velocity.copy_(torch.where(held, self.velocity.clamp_max(0), self.velocity))

    def closed(self, sites: list[str]) -> list[str]:
        """Which of `sites` have no open gate left."""
        pieces = self.pieces(self.flat.detach())
        return [site.name for site, _, piece in pieces if site.name in sites and not (piece >= 0).any()]


@torch.no_grad()
def cuts(sub: Subnetwork, example: Any) -> list[str]:
    """The sites that everything passes: with one of them closed, all inputs give the same bottleneck.

    Inside a residual branch a closed site is no collapse, since the stream goes on beside it.
    """
    found = []
    with sub.features() as caught:
        for site, module in zip(sub.sites, sub.gates, strict=True):
            gate = cast(Gate, module)
            gate.live = torch.zeros(site.units, device=gate.mask.device)
            call(sub, example)
            gate.live = None
            if torch.allclose(caught[0], caught[0][:1].expand_as(caught[0])):
                found.append(site.name)
    return found
