"""What came of it, for the headline: does a network know anything, was anything closed, what does the mask give."""

from __future__ import annotations

from typing import Any

from bise.measure.groups import Estimate
from bise.measure.standing import CHANCE, CONSTANT, IGNORANT, explained, told
from bise.reporting.facts import Facts
from bise.reporting.words import percent

WHOLE = {
    "vanilla": "the model",
    "subnetwork": "the subnetwork",
    "refitted": "the refitted network",
    "finetuned": "the finetuned network",
    "dense_finetuned": "the dense control",
}
"""What sentences call the networks of a summary."""


def is_ignorant(audit: dict[str, Any] | None) -> bool:
    """Whether a network knows nothing, so that its figures of fairness say nothing."""
    return ((audit or {}).get("standing") or {}).get("state") in IGNORANT


def ignorance(facts: Facts) -> list[str]:
    """A sentence for each network that knows little or nothing, and the causes of a model that does."""
    out = []
    for key, audit in facts.models.items():
        found = audit.get("standing") or {}
        if not found.get("says"):
            continue
        subject = WHOLE.get(key, key)
        whole = explained(subject, found, facts.bias) if key == "vanilla" else f"{told(subject, found, facts.bias)}."
        out.append(on_page(whole))
    seen = facts.summary.get("standing_on_train") or {}
    if seen.get("says") and not facts.models:
        out.append(on_page(f"on training samples, {explained('the model', seen, facts.bias)}"))
    return out


def nothing_known(facts: Facts, audit: dict[str, Any], subject: str) -> str:
    """The headline of a network whose answers are no better than guesses."""
    found = audit["standing"]
    share, guess = percent(found["mean_of_classes"]), percent(found["guessing"])
    if found["state"] == CONSTANT:
        said = f"{subject} gives every sample the same answer, “{found['answer']}”: it is no classifier."
    else:
        worse = "worse than guesses" if found["state"] != CHANCE else "no better than guesses"
        said = f"{subject} knows nothing of {facts.target}: its answers are {worse}."
    return f"{said} It is right on {share}, each {facts.target} counting evenly, and guessing makes {guess}."


def is_whole(facts: Facts) -> bool:
    """Whether the subnetwork is the model itself, with nothing closed."""
    if facts.masks:
        return all(all(mask) for mask in facts.masks.values())
    units = (facts.summary.get("subnetwork") or {}).get("units")
    if units:
        return bool(units["open"] == units["all"])
    selection = facts.summary.get("selection") or {}
    return bool(selection.get("kind") == "best" and selection.get("epoch") == 0)


def nothing_closed(facts: Facts) -> str:
    said = "No subnetwork was found that does better, so nothing was closed: what comes out is the model itself."
    if (facts.summary.get("selection") or {}).get("constant"):
        said += " Masks that gave every sample the same answer were refused."
    return said


def size_not_fairness(tuned: Estimate, dense: Estimate, where: str, alike: float) -> str:
    """That the mask gives size, where the dense control is level with the finetuned subnetwork or ahead of it."""
    if tuned.value - dense.value > alike:
        return ""
    how = "does better" if dense.interval[0] > tuned.interval[1] else "does as well"
    return (
        f"The whole model, finetuned in the same way, {how}: {percent(dense.value)} {where}, the finetuned subnetwork"
        f" {percent(tuned.value)}. So the mask gives a smaller network here, not a fairer one."
    )


def on_page(sentence: str) -> str:
    """With a capital, and with each percent sign kept on the line of its number."""
    return sentence[:1].upper() + sentence[1:].replace(" %", "\u202f%") + ("" if sentence.endswith(".") else ".")
