"""Arguments that take one of a few values."""

from __future__ import annotations

from typing import Any

from bise.base.errors import BadInput


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadInput(f"{name}={value!r} is unknown; use {' or '.join(repr(c) for c in choices)}")


def check_share(rho: float) -> None:
    if isinstance(rho, bool) or not isinstance(rho, (int, float)) or not 0 <= rho <= 1:
        raise BadInput(f"rho={rho} is no share of aligned samples; give a value from 0 to 1")


def check_number(name: str, value: Any) -> None:
    if not isinstance(value, (int, float)):
        raise BadInput(f"{name}={value!r} must be a number")


def check_shares_of_alignment(rho: Any) -> None:
    for share in rho if isinstance(rho, tuple) else () if rho is None else (rho,):
        check_number("rho", share)
        if not 0 < share < 1:
            raise BadInput(
                f"rho={share} has no closed form of weights; give a share between 0 and 1, or None to count it"
            )
