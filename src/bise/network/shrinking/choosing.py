"""Which widths are the fastest: a few are made and timed where the network is to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from bise.base.errors import BadInput
from bise.base.names import STREAMS
from bise.network.outputs import device_of
from bise.network.shrinking.widths import Widths
from bise.network.size import parameters
from bise.network.timing import timed

MULTIPLES = (1, 8, 32)
"""What align="auto" tries: vectors of CPUs and the tensor cores of GPUs take channels by eights, and tiles by more."""
ROUNDS = 5
HARDLY = 1.03
"""Candidates are hardly apart up to this ratio of their times."""
_INDEX = (torch.ops.aten.index_select.default, torch.ops.aten.index.Tensor)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One candidate, and how its time stands to that of the dense network."""

    align: int
    streams: str
    parameters: int
    index_operations: int
    ratios: dict[str, float]
    """{mode: time over that of the dense network}."""

    @property
    def worst(self) -> float:
        return max(self.ratios.values())

    def __str__(self) -> str:
        ratios = ", ".join(f"{ratio:.2f} of dense ({mode})" for mode, ratio in self.ratios.items())
        return f"align {self.align}, streams {self.streams}: {self.parameters:,} parameters, {ratios}"


def candidates(align: Any, streams: Any) -> list[Widths]:
    """The widths that these options allow, refused where they are none."""
    whole = isinstance(align, int) and not isinstance(align, bool) and align >= 1
    if align != "auto" and not whole:
        raise BadInput(f'align={align!r} is no multiple of channels; give a whole number from 1, or "auto"')
    if streams not in (None, *STREAMS):
        raise BadInput(f'streams={streams!r} is unknown; choose "narrow", "union" or "auto"')
    chosen = streams or ("auto" if align == "auto" else "narrow")
    unions = {"narrow": (False,), "union": (True,), "auto": (False, True)}[chosen]
    multiples = MULTIPLES if align == "auto" else (int(align),)
    return [Widths(multiple=multiple, union=union) for union in unions for multiple in multiples]


def fastest(
    choices: Sequence[Widths], made: Callable[[Widths], fx.GraphModule], dense: nn.Module, example: Any
) -> tuple[Widths, tuple[Tried, ...]]:
    """The fastest candidate, and all that were timed, the fastest first; one alone isn't timed.

    It is the one whose time over the dense network's is the smallest in the mode in which that is largest. Of
    candidates that are hardly apart it is the one with the fewest parameters, since times waver.
    """
    if len(choices) == 1:
        return choices[0], ()
    modes = ("eager", "CUDA graph") if device_of(dense).type == "cuda" else ("eager",)
    seen: dict[Any, Widths] = {}
    tried: dict[Widths, Tried] = {}
    for widths in choices:
        small = made(widths)
        if (shape := _shape(small)) in seen:
            continue
        seen[shape] = widths
        tried[widths] = Tried(
            align=widths.multiple,
            streams=widths.streams,
            parameters=parameters(small),
            index_operations=sum(node.target in _INDEX for node in small.graph.nodes),
            ratios={one.mode: one.ratio for one in timed(dense, small, example, modes, rounds=ROUNDS)},
        )
    limit = HARDLY * min(one.worst for one in tried.values())
    near = [widths for widths, one in tried.items() if one.worst <= limit]
    best = min(near, key=lambda widths: tried[widths].parameters)
    return best, tuple(sorted(tried.values(), key=lambda one: one.worst))


def _shape(small: fx.GraphModule) -> tuple[Any, ...]:
    """What two candidates have alike if they are the same network."""
    shapes = tuple((name, tuple(tensor.shape)) for name, tensor in small.state_dict().items())
    return shapes, tuple(str(node.target) for node in small.graph.nodes if node.op == "call_function")
