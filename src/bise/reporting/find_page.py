"""The page of candidates for a bias: for each its groups, how accuracy differs, samples to look at, what tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bise.base.markup import Html, foreign, tag
from bise.reporting.document import document
from bise.reporting.find_words import ALIKE, CANT_KNOW, TOLD, difference, headline
from bise.reporting.parts import section, table

OPEN = 3
"""Candidates whose samples are there to see at once."""
MOST_GROUPS = 16
"""Columns of a table of sizes; the largest groups."""


def find_page(summary: Mapping[str, Any], folder: str) -> str:
    """The whole page, without a script."""
    found = summary["find"]
    header = tag(
        "header",
        tag("div", tag("b", "BISE"), tag("span", "candidates ", foreign(folder)), cls="bar"),
        tag("h1", headline(found)),
        tag("p", _lead(found), cls="lead"),
    )
    candidates = [_candidate(i, summary, folder) for i in range(_count(found))]
    return document(folder, header, tag("main", _mind(), _overview(found), candidates, _left_out(found)))


def _count(found: Mapping[str, Any]) -> int:
    return len(found["candidates"])


def _lead(found: Mapping[str, Any]) -> str:
    return (
        f"The model has {100 * found['accuracy']:.1f} % of these samples right. Groups are compared within each class,"
        f" on samples that no group was fitted on. {found['looked_at']} groupings were measured, and the lower end of"
        " every interval holds for all of them together. Intervals are at 95 %."
    )


def _mind() -> Html:
    notes = [tag("li", f"{line[:1].upper()}{line[1:]}.") for line in CANT_KNOW]
    return tag(
        "section", tag("h2", "What this can’t know", id="mind"), tag("ul", notes), cls="mind", aria_labelledby="mind"
    )


def _overview(found: Mapping[str, Any]) -> Html | None:
    if not found["candidates"]:
        return None
    rows = [
        [
            tag("a", foreign(f"{number}. {one['name']}"), href=f"#candidate-{number}"),
            len(one["groups"]),
            [f"{100 * one['difference']:.0f}", tag("small", _range(one["interval"]))],
            f"{100 * one['spread']:.1f}",
            f"{one['echo']:.2f}",
        ]
        for number, one in enumerate(found["candidates"], 1)
    ]
    head = ["candidate", "groups", "largest difference, points", "spread, points", "repeats the answers"]
    return section(
        "overview",
        "Candidates",
        tag(
            "p",
            "“Largest difference” is between two groups of one class. “Spread” is the root mean square over classes, by"
            " the sizes of groups, less what chance adds. What repeats the model’s answers (1 is the same groups)"
            " differs by construction: it comes third at best, and counts for less before. Columns that law names, such"
            " as sex, race or age, come first where they differ.",
            cls="note",
        ),
        tag("div", table(None, head, rows, label="Candidates"), cls="card"),
    )


def _range(ends: Sequence[float]) -> str:
    return f"{100 * ends[0]:.0f} to {100 * ends[1]:.0f}"


def _candidate(place: int, summary: Mapping[str, Any], folder: str) -> Html:
    found = summary["find"]
    one, number, classes = found["candidates"][place], place + 1, found["classes"]
    samples = summary["samples"][place] if place < len(summary.get("samples") or []) else []
    about = f"{one['about'][:1].upper()}{one['about'][1:]}."
    echo = "These groups are nearly the model’s answers, so the difference is one by construction."
    also = f"Nearly the same groups: {', '.join(one['also'])}." if one["also"] else None
    return section(
        f"candidate-{number}",
        f"{number}. {one['name']}",
        tag("p", foreign(about), cls="lead"),
        tag("p", foreign(difference(one, classes))),
        tag("p", echo) if one["echo"] > ALIKE else None,
        tag("p", foreign(also), cls="note") if also else None,
        tag("div", tag("div", _sizes(one, classes, summary["target"]), cls="card"),
            tag("div", _told(one), cls="card"), cls="columns"),
        tag("details", tag("summary", "Samples of each group"), _samples(one, samples, classes), open=place < OPEN)
        if samples
        else None,
        tag("pre", f"bise extract … --bias-from {folder}:{number}"),
    )  # fmt: skip


def _sizes(one: Mapping[str, Any], classes: Sequence[str], target: str) -> Html:
    """Training samples of each group (row) and class (column)."""
    totals = [sum(row[k] for row in one["sizes"]) for k in range(len(one["groups"]))]
    largest = sorted(sorted(range(len(totals)), key=lambda k: -totals[k])[:MOST_GROUPS])
    rows = [[one["groups"][k], f"{totals[k]:,}", *(f"{row[k]:,}" for row in one["sizes"])] for k in largest]
    more = len(totals) - len(largest)
    caption = "Training samples" + (f"; {more} smaller groups aren’t shown" if more else "")
    return table(caption, ["group", "all", *(foreign(f"{target} {name}") for name in classes)], rows)


def _told(one: Mapping[str, Any]) -> Html:
    """What the groups go with."""
    told = [[name, f"{value:.2f}"] for name, value in one["goes_with"].items() if value >= TOLD][:8]
    if not told:
        return tag("p", "No column tells these groups, nor does the target.", cls="note")
    return table("What tells these groups (adjusted mutual information)", ["", "1 is the same"], told)


def _samples(one: Mapping[str, Any], samples: Sequence[Mapping[str, Any]], classes: Sequence[str]) -> list[Html]:
    out = []
    for group in dict.fromkeys(sample["group"] for sample in samples):
        mine = [sample for sample in samples if sample["group"] == group]
        wide = "image" not in mine[0]
        out.append(tag("h3", foreign(one["groups"][group]), cls="apart"))
        out.append(tag("ul", [_sample(s, classes) for s in mine], cls="samples" + (" wide" if wide else "")))
    return out


def _sample(sample: Mapping[str, Any], classes: Sequence[str]) -> Html:
    name = classes[sample["y"]]
    if str(sample.get("image", "")).startswith("data:image/png;base64,"):
        content = tag("img", src=sample["image"], alt=f"Sample {sample['index']}: {name}")
    elif "text" in sample:
        content = tag("blockquote", foreign(str(sample["text"])), dir="auto", tabindex=0)
    else:
        pairs = (sample.get("values") or {}).items()
        content = tag("dl", [[tag("dt", foreign(str(k))), tag("dd", foreign(str(v)))] for k, v in pairs])
    good = sample["answer"] == sample["y"]
    answer = classes[sample["answer"]] if sample["answer"] < len(classes) else str(sample["answer"])
    mark = tag("span", "✓" if good else "✗", role="img", aria_label="right" if good else "wrong")
    told = tag("span", foreign(answer), " ", mark, cls="right" if good else "wrong")
    return tag("li", content, tag("div", foreign(name), cls="what"), tag("div", "answer: ", told))


def _left_out(found: Mapping[str, Any]) -> Html | None:
    if not found["left_out"]:
        return None
    return section("left-out", "Left out", tag("ul", [tag("li", foreign(line)) for line in found["left_out"]]))
