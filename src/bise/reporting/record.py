"""What the page is about, for who has to rely on it: date, versions, and the fingerprints of model and data."""

from __future__ import annotations

from datetime import date
from typing import Any

from bise.base.markup import Html, foreign, tag
from bise.reporting.facts import Facts
from bise.reporting.parts import section, table

PARTS = {
    "start": "the weights that training began with",
    "weights": "the model’s weights",
    "train": "training data",
    "val": "validation data",
    "test": "test data",
}
"""What a run's fingerprints are of."""


def made_on(facts: Facts) -> str:
    """The day on which the run was begun, "19 November 2026"; empty where an earlier version didn't note it."""
    noted = (facts.config.get("machine") or {}).get("date")
    try:
        day = date.fromisoformat(str(noted))
    except ValueError:
        return ""
    return f"{day.day} {day:%B} {day.year}"


def record(facts: Facts) -> Html | None:
    """Date, versions, fingerprints."""
    machine: dict[str, Any] = facts.config.get("machine") or {}
    prints = {key: value for key, value in (facts.config.get("sha256") or {}).items() if key in PARTS}
    weights = facts.summary.get("weights") or {}
    if "weights" not in prints and (weights.get("before") or weights.get("sha256")):
        prints = {"weights": weights.get("before") or weights["sha256"]} | prints
    if not machine and not prints:
        return None
    about = [["date", made_on(facts) or "not noted"]]
    about += [[name, foreign(str(machine[key]))] for key, name in _VERSIONS.items() if machine.get(key)]
    rows = [[PARTS[key], _printed(prints[key])] for key in PARTS if key in prints]
    return section(
        "record",
        "Date, versions, data",
        tag(
            "p",
            "A fingerprint (SHA-256) is another one as soon as a single value is: data with the same fingerprint are"
            " the same data, and a model with the same one is the same model.",
            cls="lead",
        ),
        tag(
            "div",
            tag("div", table("When, and with what", ["", ""], about), cls="card wrapped"),
            tag("div", table("Fingerprints", ["of", "SHA-256"], rows), cls="card prints") if rows else None,
            cls="columns",
        ),
    )


_VERSIONS = {"bise": "bise", "torch": "torch", "python": "Python", "system": "system", "gpu": "GPU"}


def _printed(value: Any) -> Html | str:
    return tag("code", str(value)) if value else "not known"
