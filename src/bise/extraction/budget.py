"""A budget for the shrunk network: a cost of every open unit, whose weight is found anew after each epoch.

The cost term is λ Σ_i p_i 1{m_i ≥ 0}: p_i is what the shrunk network would lose without unit i, λ the least weight at
which it fits. Its proximal step takes λ p_i from the score of every open unit, and never closes a site's best one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bise.base.errors import BadInput
from bise.extraction.config import ExtractConfig
from bise.extraction.scores import Scores
from bise.network.shrinking.counting import Counter

BELOW = 1e-6
"""How far below 0 the score of a unit is at least that the cost has closed."""
LEAST = 1e-9
"""The least price: units that save nothing by themselves close last, where nothing else is left."""
ANNEALED = 0.5
"""By this part of the schedule the budget has narrowed to what was asked for, from the whole model on."""
MEASURED = 20
"""So often a mask is cut further whose latency was measured and doesn't fit yet."""

NAMES = {"macs": "MACs", "parameters": "parameters", "latency": "latency"}
"""What can be limited, and what it is called."""
BUDGETS = tuple(f"max_{kind}" for kind in NAMES)
"""Their options."""
Shares = dict[str, float]
"""{"macs", "parameters" or "latency": share of the whole model}."""


class Budget:
    """What the shrunk network may cost, and what closes units until it does.

    Latency is measured on the shrunk network once at each temperature, and at the end. Between measurements it is taken
    to change as the MACs do.
    """

    def __init__(
        self, scores: Scores, wanted: Shares, counter: Counter, timed: Callable[[list[Tensor]], float] | None = None
    ) -> None:
        self.scores, self.wanted, self.counter, self.timed = scores, wanted, counter, timed
        dense = counter([torch.ones(units, dtype=torch.bool) for units in scores.sizes])
        self.dense = {"macs": dense.macs, "parameters": dense.parameters}
        self.prices = torch.zeros(len(scores.sizes), dtype=torch.float64)
        """[sites]: p of each site's units."""
        self.correction = torch.ones(1, dtype=torch.float64)
        """Share of the latency over share of the MACs, as it was measured last."""
        self.priced = 0
        """Temperatures that prices were found for."""
        self._check_possible()

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps of it."""
        return {"prices": self.prices, "correction": self.correction}

    # what masks cost

    def masks(self, flat: Tensor) -> list[Tensor]:
        """A mask for each site, of the scores `flat` [units]."""
        return [piece >= 0 for piece in flat.detach().cpu().split(self.scores.sizes)]

    def shares(self, masks: list[Tensor]) -> Shares:
        """What the shrunk network is of the whole model, for each thing that is limited."""
        found = self.counter(masks)
        macs = found.macs / max(1, self.dense["macs"])
        every = {
            "macs": macs,
            "parameters": found.parameters / max(1, self.dense["parameters"]),
            "latency": macs * float(self.correction),
        }
        return {kind: every[kind] for kind in self.wanted}

    def fits(self, shares: Mapping[str, float], allowed: Mapping[str, float] | None = None) -> bool:
        """Whether this is within what is allowed: the budget, or what it is on the way there."""
        return all(share <= (allowed or self.wanted)[kind] for kind, share in shares.items())

    def allowed(self, progress: float) -> Shares:
        """The budget on the way, narrowed by the same factor in each epoch; `progress` is that of the schedule."""
        part = min(1.0, progress / ANNEALED)
        return {kind: share if part == 1.0 else share**part for kind, share in self.wanted.items()}

    def price(self, phase: int) -> None:
        """Once before each temperature: find p, and measure the latency where that is limited."""
        if self.priced > phase:
            return
        flat = self.scores.flat.detach().cpu()
        masks = self.masks(flat)
        if self.timed is not None:
            self._correct(masks)
        here = self._cost(masks)
        for site, (mask, piece) in enumerate(zip(masks, flat.split(self.scores.sizes), strict=True)):
            if len(mask) > 1:
                self.prices[site] = max(LEAST, self._price(masks, site, mask, piece, here))
        self.priced = phase + 1

    def _price(self, masks: list[Tensor], site: int, mask: Tensor, piece: Tensor, here: float) -> float:
        """What one unit of a site saves; where one alone saves nothing, as in a group of channels, what all save."""
        opens = int(mask.sum()) < 2  # a site's last unit stays: then one more tells the price
        among = torch.where(mask, -torch.inf, piece) if opens else torch.where(mask, piece, torch.inf)
        other = mask.clone()
        other[among.argmax() if opens else among.argmin()] = opens
        there = self._cost([*masks[:site], other, *masks[site + 1 :]])
        if there != here or opens:
            return there - here if opens else here - there
        best = torch.zeros_like(mask)
        best[piece.argmax()] = True
        return (here - self._cost([*masks[:site], best, *masks[site + 1 :]])) / (int(mask.sum()) - 1)

    def _cost(self, masks: list[Tensor]) -> float:
        """Σ over what is limited of its share, in units of its budget."""
        return sum(share / self.wanted[kind] for kind, share in self.shares(masks).items())

    def _correct(self, masks: list[Tensor]) -> float:
        """Measure the shrunk network's latency, from which the correction follows; returns its share."""
        assert self.timed is not None
        share = self.timed(masks)
        self.correction.fill_(share / max(1e-12, self.counter(masks).macs / max(1, self.dense["macs"])))
        return share

    # closing units

    @torch.no_grad()
    def close(self, allowed: Shares) -> tuple[Shares, float]:
        """Close the units of least score over price until the shrunk network fits; (its shares, λ)."""
        masks = self.masks(self.scores.flat)
        shares = self.shares(masks)
        if self.fits(shares, allowed):
            return shares, 0.0
        flat = self.scores.flat.detach().cpu().double()
        price = self.prices.repeat_interleave(torch.tensor(self.scores.sizes))
        order = self._order(flat, price)
        if not len(order):
            return shares, 0.0
        count, shares = self._least(flat, order, price, allowed)
        weight = float(flat[order[count - 1]] / price[order[count - 1]])
        closed = torch.zeros(len(flat), dtype=torch.bool)
        closed[order[:count]] = True
        lower = flat - weight * price
        moved = torch.where(closed, lower.clamp_max(-BELOW), torch.where(flat >= 0, lower.clamp_min(0), flat))
        closed = closed.to(self.scores.flat.device)
        self.scores.flat.copy_(moved)
        self.scores.velocity.copy_(torch.where(closed, self.scores.velocity.clamp_min(0), self.scores.velocity))
        return shares, weight

    def _order(self, flat: Tensor, price: Tensor) -> Tensor:
        """The units that may close, those first whose score is least for their price."""
        best = torch.zeros(len(flat), dtype=torch.bool)
        start = 0
        for units in self.scores.sizes:
            best[start + int(flat[start : start + units].argmax())] = True
            start += units
        may = ((flat >= 0) & (price > 0) & ~best).nonzero().flatten()  # a site of one unit has no price
        return may[(flat[may] / price[may]).argsort(stable=True)]

    def _least(self, flat: Tensor, order: Tensor, price: Tensor, allowed: Shares) -> tuple[int, Shares]:
        """How many of `order` at least have to close, and the shares then; all of them where even that is too few."""
        saved = price[order].cumsum(0)  # where to look: the prices say it about, and the counts exactly
        found: dict[int, Shares] = {}

        def excess(count: int) -> float:
            masked = flat.clone()
            masked[order[:count]] = -1.0
            found[count] = self.shares(self.masks(masked))
            return max(share / allowed[kind] for kind, share in found[count].items()) - 1

        low, high = 0, len(order)
        above, below = excess(low), excess(high)
        guess = True
        while high - low > 1 and below <= 0:
            middle = (low + high) // 2
            if guess:
                at = float(saved[low - 1]) if low else 0.0
                wanted = at + (float(saved[high - 1]) - at) * above / (above - below)
                middle = min(max(int(torch.searchsorted(saved, wanted)) + 1, low + 1), high - 1)
            guess = not guess
            now = excess(middle)
            low, high, above, below = (low, middle, above, now) if now <= 0 else (middle, high, now, below)
        return high, found[high]

    def settle(self) -> Shares:
        """Cut the present scores to the budget, latency as it is measured; returns the shares."""
        for _ in range(MEASURED):
            shares, _ = self.close(self.wanted)
            if not self.fits(shares):
                break
            if self.timed is None:
                return shares
            measured = self._correct(self.masks(self.scores.flat))
            if measured <= self.wanted["latency"]:
                return shares | {"latency": measured}
        raise BadInput(
            f"no mask was found within {_said(self.wanted)} (now {_said(shares)}, with each site's best unit open);"
            " give a larger budget"
        )

    # what is refused, and what is told

    def _check_possible(self) -> None:
        """Refuse a budget below what remains with all but one unit of each site closed."""
        masks = [torch.zeros(units, dtype=torch.bool) for units in self.scores.sizes]
        for site, mask in enumerate(masks):
            mask[site % len(mask)] = True  # others at each site: the best ones of two need not share a channel
        if self.timed is not None:
            self._correct(masks)
        for kind, share in self.shares(masks).items():
            if share > self.wanted[kind]:
                least = math.ceil(share * 1000) / 1000
                remedy = f"give at least {least:g}, or put gates on more of the network with sites=[…]"
                raise BadInput(
                    f"max_{kind}={self.wanted[kind]:g} can't be reached: with all but one unit of each site closed,"
                    f" {share:.1%} of the model's {NAMES[kind]} remain; "
                    + (remedy if least < 1 else "limit something else, since shrinking gains nothing here")
                )
        self.correction.fill_(1.0)

    def as_dict(self, shares: Shares) -> dict[str, Any]:
        """What a record tells of it."""
        found = self.counter(self.masks(self.scores.flat))
        return {
            "asked": self.wanted,
            "shares": shares,
            "macs": {"dense": self.dense["macs"], "shrunk": found.macs},
            "parameters": {"dense": self.dense["parameters"], "shrunk": found.parameters},
        }


def _said(shares: Mapping[str, float]) -> str:
    return " and ".join(f"{share:.1%} of the {NAMES[kind]}" for kind, share in shares.items())


def wanted(config: ExtractConfig) -> Shares:
    """{kind: share} of what a configuration limits."""
    limits = {kind: getattr(config, f"max_{kind}") for kind in NAMES}
    return {kind: share for kind, share in limits.items() if share is not None}


def with_budget(config: ExtractConfig, budget: Any) -> ExtractConfig:
    """The configuration with the limits of a budget: a share of the MACs, or {kind: share}."""
    if budget is None:
        return config
    given = dict(budget) if isinstance(budget, Mapping) else {"macs": budget}
    if odd := [kind for kind in given if kind not in NAMES]:
        raise BadInput(f"budget: {odd[0]!r} can't be limited; give shares of {', '.join(map(repr, NAMES))}")
    if wanted(config):
        raise BadInput("both budget and config limit the shrunk network; give one of them")
    return replace(config, **{f"max_{kind}": share for kind, share in given.items()})
