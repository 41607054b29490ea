"""What shrinking would leave under many masks: one capture, and for each mask the shrunk graph itself, counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from bise.base.errors import BadInput
from bise.network.gates import Gated
from bise.network.outputs import device_of, to_device
from bise.network.shrinking.capture import Captured, capture
from bise.network.shrinking.removal import dtype_of, rewritten, settle
from bise.network.size import Size, size


class Counter:
    """Sizes of `sub` without the units that masks close, for `one` sample; `example` is a batch of two or more.

    Nothing is estimated: every count makes the shrunk network as `shrink` does, and leaves out its check alone.
    """

    def __init__(self, sub: Gated, example: Any, one: Any) -> None:
        device = device_of(sub)
        self.one, self.dtype = to_device(one, device), dtype_of(sub)
        self.captured = _captured(sub, to_device(example, device))
        self._counted: dict[bytes, Size] = {}

    def built(self, masks: Sequence[Tensor]) -> nn.Module:
        """The shrunk network under these masks [units], one for each gate."""
        small, derived, _ = rewritten(self.captured, dict(enumerate(masks)))
        settle(small, derived, self.dtype)
        return small

    def __call__(self, masks: Sequence[Tensor]) -> Size:
        """Its size; that of masks that were asked for before, from memory."""
        key = b"".join(mask.cpu().numpy().tobytes() for mask in masks)
        if key not in self._counted:
            self._counted[key] = size(self.built(masks), self.one)
        return self._counted[key]


def _captured(sub: Gated, example: Any) -> Captured:
    """The graph that `shrink` would take."""
    try:
        return capture(sub, example)
    except BadInput:  # torch.export may not be able to solve for free sizes, and need not
        return capture(sub, example, free_sizes=False)
