"""What `bise data check` says of a data set, in lines."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING

from bise.base.output import one_line

if TYPE_CHECKING:
    from bise.data.own.check import Check, SplitCheck


def check_lines(found: Check, width: int = 80) -> list[str]:
    """A check of a data set as lines of at most `width` columns."""
    lines: list[str] = []
    for name, split in found.splits.items():
        lines += [f"{name}: {split.samples:,} samples", *_cell_lines(split, width)]
        facts = [
            f"ρ({bias}) = {rho:.3f}, {conflicting:,} conflicting"
            for bias, rho, conflicting in zip(split.biases, split.rho, split.conflicting, strict=False)
        ]
        if split.imbalance is not None:
            facts.append(f"largest to smallest cell {split.imbalance:,.1f} to 1")
        if split.empty:
            shown = ", ".join("/".join(cell) for cell in split.empty_cells[:4]) + (", …" if split.empty > 4 else "")
            facts.append(f"{split.empty:,} empty cell{'s' * (split.empty > 1)}: {shown}")
        if split.without_bias:
            facts.append(f"{split.without_bias:,} rows without a bias label, which count for the target only")
        facts += [] if split.texts is None else split.texts.lines()
        lines += [line for fact in facts for line in _wrapped(fact, width, "  ")] + [""]
    for file, reason in list(found.unreadable.items())[:20]:
        lines += _wrapped(f"unreadable: {file} ({reason})", width)
    if len(found.unreadable) > 20:
        lines.append(f"… and {len(found.unreadable) - 20} more unreadable files (all of them with --json)")
    if found.opened is not None and not found.unreadable:
        lines.append(f"all {found.opened:,} pictures can be read")
    for warning in found.warnings:
        lines += _wrapped(f"warning: {warning}", width)
    for obstacle in found.obstacles:
        lines += _wrapped(f"obstacle: {obstacle}", width)
    lines.append("extraction can work on it" if found.works else "extraction can't work on it")
    return lines


def _cell_lines(split: SplitCheck, width: int, most: int = 12) -> list[str]:
    """Target × bias with names where that fits, else the cells in a list: the largest and the smallest."""
    named = [one_line(name) for name in (split.target, *split.biases)]
    if len(split.biases) == 1 and split.cells:
        counts = Counter({tuple(map(one_line, names)): count for names, count in split.cells})
        rows, columns = ([*map(one_line, names)] for names in split.names)
        head = f"{named[0]} \\ {named[1]}"
        first = max(len(text) for text in (head, *rows))
        widths = [max(len(c), *(len(f"{counts[(r, c)]:,}") for r in rows)) for c in columns]
        if 2 + first + sum(w + 2 for w in widths) <= width and len(rows) <= 20:
            out = ["  " + head.ljust(first) + "".join(f"  {c:>{w}}" for c, w in zip(columns, widths, strict=True))]
            for r in rows:
                cells = (f"  {counts[(r, c)]:>{w},}" for c, w in zip(columns, widths, strict=True))
                out.append("  " + r.ljust(first) + "".join(cells))
            return out
    filled = sorted(((count, names) for names, count in split.cells if count), key=lambda cell: -cell[0])
    kept = filled if len(filled) <= most else [*filled[: most // 2], None, *filled[-(most // 2) :]]
    lines = []
    for cell in kept:
        if cell is None:
            lines.append(f"  {'…':>9}  {len(filled) - most} more cells")
            continue
        each = (width - 13) // len(named) - 2
        text = ", ".join(
            f"{_abbreviated(column, each // 2 - 3)} = {_abbreviated(one_line(value), each // 2)}"
            for column, value in zip(named, cell[1], strict=True)
        )
        lines.append(f"  {cell[0]:>9,}  {_abbreviated(text, width - 13)}")
    return lines


def _abbreviated(text: str, width: int) -> str:
    """Both ends of a text that is too long: names that differ often do so at the end."""
    half = max(1, (width - 1) // 2)
    return text if len(text) <= width else f"{text[:half]}…{text[-half:]}"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
