"""The two themes: one dictionary each, from which the style sheet and the tests take their colours."""

from __future__ import annotations

LIGHT = {
    "bg": "#faf9f6",
    "card": "#ffffff",
    "ink": "#1c2127",
    "muted": "#555d66",
    "line": "#e2dfd7",
    "grid": "#ebe8e1",
    "accent": "#0b6b66",
    "before": "#b4510b",
    "after": "#0a7a73",
    "refit": "#8a3fa0",
    "tuned": "#2f5fb0",
    "dense": "#69717c",
    "mind": "#fdf3dc",
    "bad": "#a8321c",
}
DARK = {
    "bg": "#131619",
    "card": "#1a1e22",
    "ink": "#ebe9e4",
    "muted": "#a7adb5",
    "line": "#30363d",
    "grid": "#272c32",
    "accent": "#5fd0c6",
    "before": "#f2a65f",
    "after": "#4cc4ba",
    "refit": "#d79be8",
    "tuned": "#8ab2f7",
    "dense": "#9aa3ad",
    "mind": "#2f2817",
    "bad": "#ff9a85",
}
STEPS = 20
"""A heat map's colours, from 0 % to 100 %."""
_STOPS = {"light": ("#ef9c6c", "#f7f1e6", "#74c3b8"), "dark": ("#8a3c10", "#2b2f33", "#0c6761")}
_INK = {"light": "#1c2127", "dark": "#f4f2ee"}


def heat(theme: str) -> list[tuple[str, str]]:
    """(background, ink) of each step: orange where a group is mostly wrong, teal where it is mostly right."""
    low, middle, high = _STOPS[theme]
    out = []
    for step in range(STEPS + 1):
        t = step / STEPS
        mixed = mix(low, middle, 2 * t) if t < 0.5 else mix(middle, high, 2 * t - 1)
        out.append((mixed, _INK[theme]))
    return out


def step_of(value: float) -> int:
    return min(STEPS, max(0, round(value * STEPS)))


def mix(first: str, second: str, share: float) -> str:
    pairs = zip(_channels(first), _channels(second), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def contrast(first: str, second: str) -> float:
    """WCAG's ratio of two colours, 1 to 21."""
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in _channels(colour))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def theme_css() -> str:
    """Both themes as custom properties: by the reader's system, or by the page's switch."""
    light, dark = _properties(LIGHT, "light"), _properties(DARK, "dark")
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
        + "".join(f".h{step}{{background:var(--h{step});color:var(--heat-ink)}}" for step in range(STEPS + 1))
    )


def _properties(colours: dict[str, str], theme: str) -> str:
    steps = heat(theme)
    return (
        "".join(f"--{name}:{value};" for name, value in colours.items())
        + "".join(f"--h{step}:{background};" for step, (background, _) in enumerate(steps))
        + f"--heat-ink:{steps[0][1]};"
    )
