"""Runs side by side: what each network of each has on test, what was set otherwise, and whether it may be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bise.base.errors import BadInput
from bise.base.files import write_bytes
from bise.base.markup import Html, foreign, tag
from bise.base.names import VANILLA
from bise.measure.standing import REASON, told
from bise.reporting.document import document
from bise.reporting.facts import Facts, read_facts
from bise.reporting.leaning import of_kind
from bise.reporting.outcome import WHOLE, is_ignorant, on_page
from bise.reporting.parts import section, table
from bise.reporting.words import percent
from bise.reporting.writing import check_place

FIGURES = {
    "accuracy": "accuracy",
    "unbiased": "mean of groups",
    "worst_group": "worst group",
    "aligned": "aligned",
    "conflicting": "conflicting",
}
"""{figure of an audit: what the page calls it}"""
SETTINGS = ("preset", "extract", "finetune", "refit", "bottleneck", "sites", "seed")
"""Parts of a configuration whose differences are shown."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One network of one run."""

    run: str
    name: str
    """In the run's summary, and as --of takes it."""
    network: str
    """What pages call it."""
    figures: dict[str, float | None]
    """By the names of `FIGURES`; shares of 1, over all samples of a kind, as `bise audit` prints them."""
    intervals: dict[str, tuple[float, float] | None]
    shown: dict[str, tuple[float | None, tuple[float, float] | None]]
    """The same with their intervals as the run's own page shows them: of a kind, each class counts evenly there."""
    units: tuple[int, int] | None
    """(open, all), of a network with gates."""
    parameters: int | None
    """Of what is left of it when the closed units are out, where that was counted."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    runs: tuple[str, ...]
    lines: tuple[Line, ...]
    settings: dict[str, tuple[str, ...]]
    """{setting: its value in each run}, of those that differ."""
    notes: tuple[str, ...]
    """Why figures of one can't be held against those of another."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "runs": list(self.runs),
            "networks": [{key: value for key, value in vars(line).items() if key != "shown"} for line in self.lines],
            "settings": {name: list(values) for name, values in self.settings.items()},
            "notes": list(self.notes),
        }


def compared(folders: Sequence[Path]) -> Comparison:
    """What the runs' own files say of them; nothing else is opened, and nothing called."""
    if len(folders) < 2:
        raise BadInput("one run alone can't be compared; name two or more")
    found = []
    for folder in folders:
        try:
            facts = read_facts(folder)
            lines = _lines(facts, str(folder)), _settings(facts)
            found.append((replace(facts, metrics=[], samples={}, thresholds={}, scores={}, masks={}), *lines))
        except BadInput:
            raise
        except Exception as error:  # dozens of values are taken as the jobs write them; a file may hold any others
            what = f"{type(error).__name__}: {error}"
            raise BadInput(
                f"{folder} holds something else than bise writes ({what}); take back what was edited"
            ) from error
    names = tuple(map(str, folders))
    rows = _side_by_side([settings for _, _, settings in found])
    return Comparison(
        runs=names,
        lines=tuple(line for _, lines, _ in found for line in lines),
        settings={name: values for name, values in rows.items() if len(set(values)) > 1},
        notes=tuple(_notes([(name, facts) for name, (facts, _, _) in zip(names, found, strict=True)])),
    )


def _lines(facts: Facts, run: str) -> list[Line]:
    lines = []
    whole = facts.summary.get("subnetwork") or {}
    for name, audit in facts.models.items():
        units = audit.get("units")
        cut = "zeta" in audit  # by another mask than the subnetwork's
        own = audit.get("shrunk") or {} if cut else audit.get("shrunk") or whole.get("shrunk") or facts.shrunk
        sizes = own.get("parameters") or {}
        lines.append(
            Line(
                run=run,
                name=name,
                network="model" if name == VANILLA else facts.called(name),
                figures={key: _figure(audit, key)[0] for key in FIGURES},
                intervals={key: _figure(audit, key)[1] for key in FIGURES},
                shown={key: _as_on_page(facts, audit, key) for key in FIGURES},
                units=(int(units["open"]), int(units["all"])) if units else None,
                parameters=sizes.get("shrunk" if units else "dense"),
            )
        )
    return lines


def _figure(audit: Mapping[str, Any], key: str) -> tuple[float | None, tuple[float, float] | None]:
    """A figure with its interval; of aligned and conflicting samples they stand below."""
    part = audit[key] if isinstance(audit.get(key), dict) else None
    value = audit.get(key) if part is None else part["accuracy"]
    interval = (audit.get("interval") or {}).get(key) if part is None else part["interval"]
    known = interval if interval and None not in interval else None
    return (None if value is None else float(value)), known and (float(known[0]), float(known[1]))


def _as_on_page(facts: Facts, audit: dict[str, Any], key: str) -> tuple[float | None, tuple[float, float] | None]:
    if key not in ("aligned", "conflicting"):
        return _figure(audit, key)
    value, interval = of_kind(facts, audit, key)
    return value, None if not interval or None in interval else (float(interval[0]), float(interval[1]))


def _settings(facts: Facts) -> dict[str, dict[str, str]]:
    """{part: {setting: value}} of all that the run was given for its masks and what came after."""
    given = facts.config | {"finetune": facts.finetune.get("finetune"), "refit": facts.refit.get("refit")}
    given["finetune"] = given["finetune"] and given["finetune"] | {"zeta": facts.finetune.get("zeta", 0.5)}
    values = {part: given[part] for part in SETTINGS if given.get(part) is not None}
    return {
        part: {f"{part} {name}": str(one) for name, one in value.items()}
        if isinstance(value, dict)
        else {part: str(value)}
        for part, value in values.items()
    }


def _side_by_side(runs: Sequence[Mapping[str, Mapping[str, str]]]) -> dict[str, tuple[str, ...]]:
    """{setting: its value in each run}; of what only some runs have, that they do."""
    rows: dict[str, tuple[str, ...]] = {}
    for part in SETTINGS:
        if not all(part in run for run in runs):
            rows[part] = tuple("–" if part not in run else run[part].get(part, "done") for run in runs)
            continue
        names = dict.fromkeys(name for run in runs for name in run[part])
        rows |= {name: tuple(run[part].get(name, "–") for run in runs) for name in names}
    return rows


def _notes(runs: Sequence[tuple[str, Facts]]) -> list[str]:
    first, base = runs[0]
    notes = [f"{name} was audited on no test data, so it has no figures" for name, facts in runs if not facts.models]
    tests = {name: (facts.config.get("sha256") or {}).get("test") for name, facts in runs if facts.models}
    if unknown := [name for name, sha256 in tests.items() if sha256 is None]:
        notes.append(
            f"on which test data {' and '.join(unknown)} was audited isn't noted, so see that they are the same"
        )
    if len({sha256 for sha256 in tests.values() if sha256 is not None}) > 1:
        notes.append(
            "these runs were audited on different test data, so their figures can't be held against each other"
        )
    for name, facts in runs[1:]:
        for what, mine, theirs in (("target", base.target, facts.target), ("bias", base.bias, facts.bias)):
            if mine != theirs:
                notes.append(f"the {what} is {mine} in {first} and {theirs} in {name}")
    for name, facts in runs:
        for network, audit in facts.models.items():
            stands = audit.get("standing") or {}
            if stands.get("says"):
                notes.append(f"in {name}, {told(WHOLE.get(network, network), stands, facts.bias)}")
    if any(is_ignorant(audit) for _, facts in runs for audit in facts.models.values()):
        notes.append(REASON)
    weights = {(facts.summary.get("weights") or {}).get("before") for _, facts in runs}
    if len(weights - {None}) > 1:
        notes.append("these runs are of different models: the weights that they began with have other hashes")
    return notes


def write_comparison(found: Comparison, out: Path) -> Path:
    """Write the page."""
    check_place(out, chosen=True)
    write_bytes(out.resolve(), comparison_page(found).encode("utf-8", "replace"))
    return out


def comparison_page(found: Comparison) -> str:
    """One page without a script, which loads nothing."""
    header = tag(
        "header",
        tag("div", tag("b", "BISE"), tag("span", f"{len(found.runs)} runs"), cls="bar"),
        tag("h1", "Runs side by side"),
        tag(
            "p",
            "How often each network is right on its run’s test data, with 95 % intervals. Aligned are samples where the"
            " bias helps, conflicting those where it misleads; of both, each class counts evenly, as on each run’s own"
            " page.",
            cls="lead",
        ),
    )
    main = tag("main", _mind(found), _figures(found), _differences(found))
    return document(f"{len(found.runs)} runs side by side", header, main)


def _mind(found: Comparison) -> Html | None:
    if not found.notes:
        return None
    notes = [tag("li", foreign(on_page(note))) for note in found.notes]
    return tag("section", tag("h2", "Mind this", id="mind"), tag("ul", notes), cls="mind", aria_labelledby="mind")


def _figures(found: Comparison) -> Html:
    head = ["run", "network", *FIGURES.values(), "units kept", "parameters"]
    rows = [
        [
            line.run,
            line.network,
            *(_cell(*line.shown[key]) for key in FIGURES),
            "–" if line.units is None else f"{line.units[0]:,} of {line.units[1]:,}",
            "–" if line.parameters is None else f"{line.parameters:,}",
        ]
        for line in found.lines
    ]
    return section("figures", "What each network has", tag("div", table(None, head, rows), cls="card"))


def _cell(value: float | None, interval: tuple[float, float] | None) -> list[Any]:
    if value is None or interval is None:
        return [percent(value, 1)]
    return [percent(value, 1), tag("small", f" {100 * interval[0]:.0f} to {100 * interval[1]:.0f}")]


def _differences(found: Comparison) -> Html | None:
    if not found.settings:
        return None
    rows = [[name, *(foreign(value) for value in values)] for name, values in found.settings.items()]
    shown = table(None, ["setting", *(foreign(run) for run in found.runs)], rows)
    return section("settings", "What was set otherwise", tag("div", shown, cls="card"))
