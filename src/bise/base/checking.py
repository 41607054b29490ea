"""Arguments that take one of a few values."""

from __future__ import annotations

from bise.base.errors import BadInput


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadInput(f"{name}={value!r} is unknown; use {' or '.join(repr(c) for c in choices)}")


def check_share(rho: float) -> None:
    if isinstance(rho, bool) or not isinstance(rho, (int, float)) or not 0 <= rho <= 1:
        raise BadInput(f"rho={rho} is no share of aligned samples; give a value from 0 to 1")
