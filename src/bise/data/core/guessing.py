"""Whether what is aligned can be told from a data set's own labels."""

from __future__ import annotations

import math

import torch

from bise.data.core.cells import Cells

NORMAL_99 = 2.3263
"""The 99 % quantile of the normal distribution."""


def guessed(cells: Cells) -> tuple[str, ...]:
    """The biases of which nobody said what is aligned, and that go with the target no more than chance has it.

    By the G-test, 2 N I(Y; B) against the 99 % quantile of χ² (Wilson and Hilferty, 1931).
    """
    if cells.alignment_given:
        return ()
    found = []
    for k, size in enumerate(cells.bias_classes):
        seen = cells.b[:, k] >= 0
        table = torch.bincount(cells.y[seen] * size + cells.b[seen, k], minlength=cells.classes * size).double()
        table = table.view(cells.classes, size)
        table = table[table.sum(1) > 0][:, table.sum(0) > 0]
        expected = table.sum(1, keepdim=True) * table.sum(0) / table.sum()
        statistic = 2 * float(torch.special.xlogy(table, table / expected).sum())
        freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
        spread = 2 / (9 * max(1, freedom))
        if freedom and statistic <= freedom * (1 - spread + NORMAL_99 * math.sqrt(spread)) ** 3:
            found.append(cells.columns[k + 1])
    return tuple(found)
