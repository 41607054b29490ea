"""Fairness in figures that need no code: gaps between groups, what is still known of the bias, and calibration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bise.base.markup import Html, foreign, join, tag
from bise.reporting.facts import Facts
from bise.reporting.outcome import WHOLE, is_ignorant
from bise.reporting.parts import section, table
from bise.reporting.words import group_text, percent

MOST_ROWS = 12
"""Of classes or groups in a table; the others are folded behind it."""
MOST_FOLDED = 500
"""Groups that the folded table holds at most."""
NOTHING = "says nothing"


def fairness(facts: Facts) -> Html | None:
    """Gaps, information, probe and calibration of every network, greyed where a network knows nothing."""
    models = facts.models
    if not models or not any(audit.get("biases") for audit in models.values()):
        return None
    count = max(len(audit.get("biases") or []) for audit in models.values())
    cards = [tag("div", _gaps(facts, k), cls="card") for k in range(count)]
    return section(
        "fairness",
        "Fairness in figures",
        tag(
            "p",
            f"Does it matter for the answer which {facts.bias} a sample has? A gap of 0 points means that it doesn’t;"
            " 100 is as far apart as can be. Small figures are 95 % intervals; where one begins at 0, there may be no"
            " gap.",
            cls="lead",
        ),
        void(facts),
        tag("div", cards, cls="stack"),
        tag(
            "div",
            tag("div", _known(facts), cls="card"),
            tag("div", _calibration(facts), cls="card"),
            cls="columns" if len(models) < 3 else "stack apart",
        ),
    )


def void(facts: Facts) -> Html | None:
    """Why figures are grey."""
    names = [WHOLE.get(name, name) for name, audit in facts.models.items() if is_ignorant(audit)]
    if not names:
        return None
    which = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    verb = "knows" if len(names) == 1 else "know"
    text = (
        f"Figures in grey say nothing: {which} {verb} nothing of {facts.target}. What gives all samples the same answer"
        " or guesses treats all groups alike, and is no fairer for that."
    )
    return tag("p", text, cls="void-note")


def _head(facts: Facts) -> list[Any]:
    return ["", *(facts.called(name) for name in facts.models)]


def _gaps(facts: Facts, k: int) -> Html:
    """The three kinds of gap for one bias, and between whom the largest are."""
    name = facts.biases[k] if k < len(facts.biases) else f"bias {k + 1}"
    found = {
        key: (audit.get("biases") or [])[k] if k < len(audit.get("biases") or []) else {}
        for key, audit in facts.models.items()
    }
    rows = [
        [_row("how often an answer is given", "demographic parity"), *_cells(facts, found, "demographic_parity")],
        [_row("how often it is right or wrong", "equalised odds"), *_cells(facts, found, "equalized_odds")],
    ]
    classes = sorted({int(y) for part in found.values() for y in part.get("true_positive_gaps") or {}})
    by_class = [
        [_row([foreign(f"{facts.target} {facts.class_name(y)}"), " recognised"], "true-positive gap"),
         *_cells(facts, found, "true_positive", str(y))]
        for y in classes
    ]  # fmt: skip
    caption = f"Gaps between groups of {name}, in percentage points"
    rest = by_class[MOST_ROWS:]
    return join(
        _titled(caption, _head(facts), [*rows, *by_class[:MOST_ROWS]]),
        tag("details", tag("summary", f"{len(rest)} more classes"), table(None, _head(facts), rest)) if rest else None,
        tag("ul", [tag("li", text) for text in _where(facts, found, k)], cls="where"),
    )


def _titled(title: str, head: list[Any], rows: list[list[Any]]) -> Html:
    """A table under a heading, which stays in sight where the table is wider than a telephone."""
    return join(tag("h3", foreign(title)), table(None, head, rows, label=title))


def _row(title: Any, small: str) -> Html:
    return join(title, tag("small", small))


def _cells(facts: Facts, found: Mapping[str, dict[str, Any]], kind: str, y: str | None = None) -> list[Html]:
    """A figure for each network."""
    out = []
    for key, audit in facts.models.items():
        gap = _gap(found[key], kind, y)
        old = found[key].get("true_positive_gaps" if y is not None else f"{kind}_difference")
        value = gap.get("value") if gap else (old or {}).get(y) if y is not None else old
        out.append(_points(value, gap.get("interval"), nothing=is_ignorant(audit)))
    return out


def _gap(bias: dict[str, Any], kind: str, y: str | None = None) -> dict[str, Any]:
    """A gap with its interval and place; empty in the run of an earlier version, and where there is none."""
    gap = (bias.get("gaps") or {}).get(kind)
    gap = (gap or {}).get(y) if y is not None else gap
    return gap or {}


def _points(value: float | None, interval: Any, *, nothing: bool) -> Html:
    if value is None:
        return Html("–")
    if nothing:
        return tag("span", f"{100 * value:.1f}", tag("small", NOTHING), cls="void")
    if not interval or interval[0] is None:
        return join(f"{100 * value:.1f}")
    return join(f"{100 * value:.1f}", tag("small", f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f}"))


def _where(facts: Facts, found: Mapping[str, dict[str, Any]], k: int) -> list[Any]:
    """Between whom the largest gaps are, of the model and of the subnetwork, as a sentence each."""
    out: list[Any] = []
    for key in ("vanilla", "subnetwork"):
        if key not in found or is_ignorant(facts.models[key]):
            continue
        said = []
        for kind in ("demographic_parity", "equalized_odds"):
            gap = _gap(found[key], kind)
            if gap and gap["value"] and (text := _between(facts, gap, k)) not in said:
                said.append(text)
        out += [[tag("b", f"{facts.called(key).capitalize()}: "), foreign(text)] for text in said]
    return out


def _between(facts: Facts, gap: dict[str, Any], k: int) -> str:
    bias = facts.biases[k] if k < len(facts.biases) else "bias"
    answer, target = facts.class_name(gap["answer"]), facts.target
    one, other = (f"{bias} {facts.bias_name(k, gap[end])}" for end in ("high", "low"))
    first, second = (percent(rate) for rate in gap["rates"])
    if gap["kind"] == "given":
        return f"{target} {answer} is the answer to {first} of the samples with {one}, and to {second} with {other}."
    if gap["kind"] == "right":
        return f"{target} {answer} is recognised in {first} of such samples with {one}, and in {second} with {other}."
    return f"{first} of other samples with {one} are taken for {target} {answer}, and {second} with {other}."


def _known(facts: Facts) -> Html:
    """How much the answers still tell about each bias, and how well a probe reads it."""
    audits = facts.models.values()
    rows: list[list[Any]] = []
    for k in range(max(len(audit.get("biases") or []) for audit in audits)):
        found = [(audit, (audit.get("biases") or [])[k : k + 1]) for audit in audits]
        of = f" of {facts.biases[k]}" if len(facts.biases) > 1 and k < len(facts.biases) else ""
        rows += [
            [_row(foreign(f"the answers tell{of}"), "mutual information"), *(_told(*one) for one in found)],
            [_row(foreign(f"the true {facts.target} tells{of}"), "mutual information"), *(_true(b) for _, b in found)],
            [_row(foreign(f"a probe reads{of or ' it'}"), "inside the network"), *(_probed(b) for _, b in found)],
        ]
    about = (
        f"The mutual information says how much the answers tell about {facts.bias}, in nats: 0 is nothing. A probe is a"
        " simple classifier that reads what the network makes of a sample before it answers; all groups count evenly."
        " “Constant” is how often one and the same answer would be right."
    )
    return join(_titled(f"What it still knows of {facts.bias}", _head(facts), rows), tag("p", about, cls="note"))


def _told(audit: dict[str, Any], biases: list[dict[str, Any]]) -> Any:
    if not biases:
        return "–"
    value = f"{biases[0]['information_predicted']:.3f}"
    return tag("span", value, tag("small", NOTHING), cls="void") if is_ignorant(audit) else value


def _true(biases: list[dict[str, Any]]) -> str:
    return f"{biases[0]['information_actual']:.3f}" if biases else "–"


def _probed(biases: list[dict[str, Any]]) -> Any:
    probe = biases[0].get("probe") if biases else None
    if not probe:
        return "–"
    return join(percent(probe.get("accuracy")), tag("small", f"constant: {percent(probe.get('chance'))}"))


def _calibration(facts: Facts) -> Html | None:
    """How much too sure each network is, group by group; where there are many, the worst come first."""
    models = facts.models
    found = {key: audit.get("sureness_by_group") or {} for key, audit in models.items()}
    names = list(dict.fromkeys(name for part in found.values() for name in part))
    if not names:
        return None
    first = next(iter(found.values()))
    if len(names) > MOST_ROWS:
        names.sort(key=lambda name: -abs((first.get(name) or {}).get("too_sure") or 0))
    rows = [[group_text(facts, name), *(_too_sure(part.get(name)) for part in found.values())] for name in names]
    worst = f", the {MOST_ROWS} worst of {len(rows):,} groups" if len(rows) > MOST_ROWS else ""
    rest = rows[MOST_ROWS : MOST_ROWS + MOST_FOLDED]
    about = (
        "A network that is 90\u202f% sure should be right nine times in ten. This is how sure it is on average, less"
        " how often it is right: above 0 it is too sure, below 0 not sure enough."
    )
    return join(
        _titled(f"Too sure by how many points: calibration{worst}", _head(facts), rows[:MOST_ROWS]),
        tag("p", about, cls="note"),
        tag("details", tag("summary", f"{len(rest):,} more groups"), table(None, _head(facts), rest)) if rest else None,
    )


def _too_sure(found: dict[str, Any] | None) -> Html:
    if not found:
        return Html("–")
    low, high = (_signed(end) for end in found["interval"])
    return join(_signed(found["too_sure"]), tag("small", f"{low} to {high}"))


def _signed(value: float) -> str:
    return f"{round(100 * value, 1) + 0.0:.1f}".replace("-", "−")  # no −0.0
