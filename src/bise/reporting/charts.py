"""Charts as SVG of about the width of a telephone, so that their text stays readable there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bise.base.markup import Html, tag

WIDTH = 360


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The plot area and its scales."""

    x: tuple[float, float]
    y: tuple[float, float]
    left: float = 44
    right: float = WIDTH - 12
    top: float = 10
    bottom: float = 160
    log_y: bool = False

    def at_x(self, value: float) -> float:
        low, high = self.x
        return self.left + (value - low) / ((high - low) or 1) * (self.right - self.left)

    def at_y(self, value: float) -> float:
        low, high = self.y
        if self.log_y:
            low, high, value = math.log(low), math.log(high), math.log(max(value, 1e-300))
        return self.bottom - (value - low) / ((high - low) or 1) * (self.bottom - self.top)


def svg(height: float, label: str, *children: Any, width: float = WIDTH, **attributes: Any) -> Html:
    return tag("svg", *children, viewBox=f"0 0 {width:g} {height:g}", role="img", aria_label=label, **attributes)


def text(x: float, y: float, content: Any, cls: str = "", anchor: str = "start") -> Html:
    return tag("text", content, x=round(x, 1), y=round(y, 1), cls=cls or None, text_anchor=anchor)


def segment(x1: float, y1: float, x2: float, y2: float, cls: str, **more: Any) -> Html:
    return tag("line", x1=round(x1, 1), y1=round(y1, 1), x2=round(x2, 1), y2=round(y2, 1), cls=cls, **more)


def line_chart(
    label: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    classes: Sequence[str],
    *,
    percent: bool = False,
    log: bool = False,
    x_label: str = "epoch",
    mark: float | None = None,
    mark_label: str = "",
    width: float = 300,
) -> Html:
    """Lines over x; `mark` is a vertical line with a label."""
    points = [point for line in series.values() for point in line]
    ys = [y for _, y in points]
    low, high = (0.0, 1.0) if percent else (min(ys), max(ys))
    if not percent and not log:
        low = min(0.0, low) if low < 0.5 * high else low - 0.1 * (high - low or 1)
        high = high + 0.05 * ((high - low) or 1)
    if log:
        low, high = max(low, 1e-12), max(high, low * 10)
    xs = [x for x, _ in points]
    frame = Frame(x=(min(xs), max(xs)), y=(low, high), right=width - 10, top=14, log_y=log)
    body: list[Any] = [axes(frame, percent=percent, x_label=x_label)]
    if mark is not None and frame.x[0] <= mark <= frame.x[1]:  # the model itself, at 0, is before the first epoch
        x = frame.at_x(mark)
        body.append(segment(x, frame.top - 10, x, frame.bottom, "mark"))
        after = x < (frame.left + frame.right) / 2
        body.append(text(x + (4 if after else -4), frame.top - 4, mark_label, "small", "start" if after else "end"))
    for (_, line), cls in zip(series.items(), classes, strict=False):
        placed = [(round(frame.at_x(x), 1), round(frame.at_y(y), 1)) for x, y in line]
        if len(placed) == 1:
            body.append(tag("circle", cx=placed[0][0], cy=placed[0][1], r=3, cls=f"dot {cls}"))
        else:
            body.append(tag("polyline", points=" ".join(f"{x:g},{y:g}" for x, y in placed), cls=f"series {cls}"))
    return svg(frame.bottom + 34, label, *body, width=width)


def axes(frame: Frame, *, percent: bool = False, x_label: str = "", x_percent: bool = False) -> Html:
    out: list[Any] = []
    for value in ticks(*frame.y, log=frame.log_y):
        y = frame.at_y(value)
        out.append(segment(frame.left, y, frame.right, y, "grid"))
        out.append(text(frame.left - 6, y + 3.5, f"{100 * value:g} %" if percent else short(value), "tick", "end"))
    for value in ticks(*frame.x, count=5):
        x = frame.at_x(value)
        words = f"{100 * value:g} %" if x_percent else short(value)
        out.append(text(x, frame.bottom + 14, words, "tick", "middle"))
    out.append(segment(frame.left, frame.bottom, frame.right, frame.bottom, "axis"))
    out.append(text((frame.left + frame.right) / 2, frame.bottom + 29, x_label, "tick", "middle"))
    return tag("g", *out)


def ticks(low: float, high: float, count: int = 4, log: bool = False) -> list[float]:
    """Round numbers between the ends."""
    if log:
        powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
        return [10.0**p for p in powers][:: max(1, len(powers) // 4)] or [low, high]
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    raw = span / count
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(step * i, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """A number with few characters: 12 k, 0.003."""
    rounded = float(f"{value:.3g}")  # first: 999,999 is 1 M, and no 1000 k
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(rounded) >= factor:
            return f"{rounded / (1e3 if unit == 'k' else factor):.3g} {unit}"
    return f"{value:.3g}" if abs(rounded) < 1000 else f"{value:.0f}"


def interval_chart(label: str, bands: Mapping[str, Sequence[tuple[str, str, float, float, float]]]) -> Html:
    """For each band rows of (name, class, value, low, high): a dot on its interval, and the figure beside it."""
    frame = Frame(x=(0, 1), y=(0, 1), left=92, right=WIDTH - 58, top=0, bottom=0)
    body: list[Any] = []
    y = 4.0
    rows: list[Any] = []
    for band, members in bands.items():
        rows.append(text(0, y + 11, band if len(band) <= 46 else f"{band[:22]}…{band[-22:]}", "band"))
        y += 18
        for name, cls, value, low, high in members:
            middle = y + 8
            rows.append(text(frame.left - 8, middle + 3.5, name, "tick", "end"))
            rows.append(segment(frame.left, middle, frame.right, middle, "grid"))
            rows.append(segment(frame.at_x(low), middle, frame.at_x(high), middle, f"interval {cls}"))
            rows.append(tag("circle", cx=round(frame.at_x(value), 1), cy=middle, r=4.5, cls=f"dot {cls}"))
            rows.append(text(WIDTH - 2, middle + 3.5, f"{100 * value:.1f} %", "value", "end"))
            y += 17
        y += 9
    for share in (0, 0.5, 1):
        x = frame.at_x(share)
        body.append(segment(x, 16, x, y - 4, "grid"))
        body.append(text(x, y + 8, f"{100 * share:g} %", "tick", "middle"))
    return svg(y + 14, label, *body, *rows)


def site_bars(label: str, sites: Sequence[tuple[str, int, int]]) -> Html:
    """(site, open, all) as bars: kept in colour, closed as an outline; the width is the share of its units."""
    left, right = 128, WIDTH - 66
    prefix = _shared_start([name for name, _, _ in sites])
    step = 20 if len(sites) <= 24 else 15
    body: list[Any] = []
    for row, (name, kept, total) in enumerate(sites):
        y = 4 + row * step
        shown = _abbreviated(name.removeprefix(prefix))
        width = (right - left) * kept / max(1, total)
        body.append(text(left - 8, y + 11, shown, "tick", "end"))
        body.append(tag("rect", x=left, y=y + 2, width=right - left, height=step - 8, cls="closed", rx=2))
        body.append(tag("rect", x=left, y=y + 2, width=round(width, 1), height=step - 8, cls="fill after", rx=2))
        body.append(text(WIDTH - 2, y + 11, f"{kept} / {total}", "value", "end"))
    return svg(8 + step * len(sites), label, *body)


def _shared_start(names: Sequence[str]) -> str:
    """The dotted parts that all names begin with, as in "bert.encoder.layer."; nothing where there is one name."""
    if len(names) < 2:
        return ""
    shared = 0
    for parts in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        shared += 1
    return "".join(f"{part}." for part in names[0].split(".")[:shared])


def _abbreviated(name: str, most: int = 21) -> str:
    """A dotted name in few letters, numbers kept, since layers often differ in those only: e.l.0.output.dense."""
    parts = name.split(".")
    for k in range(len(parts) - 1):
        if len(".".join(parts)) > most and not parts[k].isdecimal():
            parts[k] = parts[k][:1]
    name = ".".join(parts)
    return name if len(name) <= most else f"{name[: most - 13]}…{name[-12:]}"


def histogram(label: str, kept: Sequence[float], closed: Sequence[float], bins: int = 30) -> Html:
    """Scores in equal bins, closed units left of 0 and kept ones right of it."""
    values = [*kept, *closed]
    low, high = min(0.0, *values), max(0.0, *values)
    size = (high - low) / bins or 1.0
    # a bin's edge lies on 0, so that no bar holds kept and closed units
    first, last = math.floor(low / size + 1e-9), math.ceil(high / size - 1e-9)
    count = max(1, last - first)
    counts = [[0] * count, [0] * count]
    for which, part in enumerate((kept, closed)):
        for value in part:
            counts[which][min(count - 1, max(0, math.floor(value / size) - first))] += 1
    most = max(max(a + b for a, b in zip(*counts, strict=True)), 1)
    frame = Frame(x=(first * size, (first + count) * size), y=(0, most * 1.05))
    body: list[Any] = [axes(frame, x_label="score m (kept from 0 on)")]
    for k in range(count):
        bottom = 0
        for which, cls in ((1, "fill before"), (0, "fill after")):
            number = counts[which][k]
            if number:
                x, top = frame.at_x((first + k) * size), frame.at_y(bottom + number)
                width = max(1.0, frame.at_x((first + k + 1) * size) - x - 1)
                height = frame.at_y(bottom) - top
                body.append(
                    tag("rect", x=round(x, 1), y=round(top, 1), width=round(width, 1), height=round(height, 1), cls=cls)
                )
                bottom += number
    zero = frame.at_x(0)
    body.append(segment(zero, frame.top, zero, frame.bottom, "mark"))
    return svg(frame.bottom + 34, label, *body)
