"""The page as a whole: head, headline, tiles, and the sections in order."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from bise.base.markup import Html, foreign, tag
from bise.reporting.assurance import reproduce, verified, words_used
from bise.reporting.courses import course
from bise.reporting.document import document
from bise.reporting.examples import samples
from bise.reporting.facts import Facts
from bise.reporting.fairness import fairness
from bise.reporting.fronts import front
from bise.reporting.leaning import evenly, headline, of_kind, within
from bise.reporting.outcome import ignorance
from bise.reporting.record import made_on, record
from bise.reporting.sections import accuracy, groups, removed
from bise.reporting.sliding import sliding
from bise.reporting.words import percent, warnings

SECTIONS = (
    accuracy, groups, fairness, sliding, samples, removed, front, course, verified, record, reproduce, words_used
)  # fmt: skip
"""The page from top to bottom: each takes the facts, and returns None where the run has nothing for it."""


def page(facts: Facts) -> str:
    """The whole of report.html."""
    script = (files("bise.reporting") / "page.js").read_text(encoding="utf-8")
    header = tag("header", _bar(facts), tag("h1", headline(facts)), _lead(facts), _tiles(facts))
    main = tag("main", _mind(facts), [part(facts) for part in SECTIONS])
    return document(facts.folder, header, main, script=script)


def _bar(facts: Facts) -> Html:
    return tag(
        "div",
        tag("b", "BISE"),
        tag("span", "run ", foreign(facts.folder), f", {made}" if (made := made_on(facts)) else None),
        tag("button", "Dark", id="theme", type="button", hidden=True, aria_label="Switch between light and dark"),
        cls="bar",
    )


def _lead(facts: Facts) -> Html | None:
    audited = facts.models.get("vanilla")
    if audited is None:
        return None
    groups = len(audited.get("by_group") or {})
    rho = facts.data.get("rho", facts.summary.get("rho"))
    shares = rho if isinstance(rho, list) else [rho] if rho is not None else []
    biased = ""
    if shares:
        first, *others = (f"the {name}" for name in facts.biases)
        had = " and ".join(
            [f"{percent(shares[0], 1)} of the samples had {first}"]
            + [f"{percent(share, 1)} {name}" for share, name in zip(shares[1:], others, strict=False)]
        )
        biased = (
            f" In training, {had} that goes with their {facts.target}: the one most over-represented there, unless the"
            " data’s maker names another."
        )
    n = audited["n"] - (audited.get("without_bias") or 0)
    measured = f"Measured on {n:,} test samples in {groups} groups of {facts.target} and {facts.bias}."
    return tag("p", measured + biased, cls="lead")


def _tiles(facts: Facts) -> Html | None:
    models = facts.models
    if "vanilla" not in models:
        return None
    found = within(facts, models["vanilla"])
    how = "" if found is None else f", {evenly(facts, found)}"
    wanted = (
        (f"Where {facts.misleads}{how}", lambda m: of_kind(facts, m, "conflicting")),
        (
            "Worst group, with the interval of that group by itself",
            lambda m: (m["worst_group"], m["interval"]["worst_group"]),
        ),
        ("Mean of all groups (unbiased)", lambda m: (m["unbiased"], m["interval"]["unbiased"])),
        (f"Where {facts.helps}{how}", lambda m: of_kind(facts, m, "aligned")),
    )
    return tag("ul", [_tile(title, read, facts) for title, read in wanted], cls="tiles")


def _tile(title: str, read: Any, facts: Facts) -> Html:
    models = facts.models
    value, interval = read(models["vanilla"])
    move: list[Any] = [tag("span", percent(value), cls="from")]
    lines = [("95 % intervals", ""), (f"{facts.called('vanilla')}: ", _range(interval))]
    if len(models) == 1:
        lines = [("95 % interval: ", _range(interval))]
    if "subnetwork" in models:
        value, interval = read(models["subnetwork"])
        move += [tag("span", "→", cls="arrow", role="img", aria_label="to"), tag("span", percent(value), cls="to")]
        lines.append((f"{facts.called('subnetwork')}: ", _range(interval)))
    for name in ("refitted", "finetuned", "dense_finetuned"):
        if name in models:
            value, interval = read(models[name])
            lines.append((f"{facts.called(name)}: ", f"{percent(value)} ({_range(interval)})"))
    return tag(
        "li",
        tag("p", title, cls="label"),
        tag("p", move, cls="move"),
        tag("p", [[name, tag("span", figures, cls="whole"), tag("br")] for name, figures in lines]),
        cls="tile",
    )


def _range(interval: Any) -> str:
    if not interval or interval[0] is None:
        return "–"
    return f"{100 * interval[0]:.0f} to {100 * interval[1]:.0f}"


def _mind(facts: Facts) -> Html | None:
    found = ignorance(facts) + warnings(facts)
    if not found:
        return None
    return tag(
        "section",
        tag("h2", "Mind this", id="mind"),
        tag("ul", [tag("li", foreign(text)) for text in found]),
        cls="mind",
        aria_labelledby="mind",
    )
