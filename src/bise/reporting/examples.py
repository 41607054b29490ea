"""Samples to look at: inputs with the answer before and after."""

from __future__ import annotations

from typing import Any

from bise.base.markup import Html, foreign, tag
from bise.reporting.facts import Facts
from bise.reporting.parts import section
from bise.reporting.words import cell_text, group_text

FIRST_SAMPLES, FIRST_TEXTS = 28, 12


def samples(facts: Facts) -> Html | None:
    """Inputs to look at, with the answer before and after; those whose answer changed come first."""
    found = facts.samples.get("samples") or []
    if not found:
        return None
    present: dict[str, str] = {}
    for sample in found:
        present.setdefault(sample["group"], group_text(facts, sample["group"]))
    kinds = {"mended": "wrong before, right now", "broken": "right before, wrong now", "wrong": "wrong both times",
             "right": "right both times"}  # fmt: skip
    counts = {kind: sum(_kind(sample) == kind for sample in found) for kind in kinds}
    options = [tag("option", f"All {len(found)} samples", value="all")]
    options += [tag("option", f"{words} ({counts[k]})", value=k) for k, words in kinds.items() if counts[k]]
    options += [tag("option", words, value=group) for group, words in sorted(present.items(), key=lambda item: item[1])]
    wide = "image" not in found[0]
    return section(
        "samples",
        "Samples to look at",
        tag(
            "p",
            _flips(facts),
            cls="lead",
        ),
        tag(
            "div",
            tag("label", "Show ", for_="filter"),
            tag("select", options, id="filter", data_first=FIRST_TEXTS if wide else FIRST_SAMPLES),
            " ",
            tag("span", "", id="shown", cls="note", aria_live="polite"),
            id="filters",
            hidden=True,
        ),
        tag(
            "ul",
            [_sample(facts, sample) for sample in found],
            id="sample-list",
            cls="samples" + (" wide" if wide else ""),
        ),
        tag("p", tag("button", "Show more", id="more", type="button", hidden=True)),
    )


def _flips(facts: Facts) -> str:
    """How many answers changed in all: the samples alone don't show it, since they were picked for that."""
    counts, split = facts.samples.get("answers"), facts.samples["split"]
    how = f"From the {split} split; those whose answer changed come first, and are more here than in the data."
    if not counts:
        return how
    seen, total = facts.samples["looked_at"], facts.samples["of"]
    about = "about " if seen < total else ""
    by = f", as estimated from {seen:,} of them, each group counting by its size" if about else ""
    return (
        f"Of {total:,} samples, {about}{counts['mended']:,} were wrong before and are right now, and"
        f" {about}{counts['broken']:,} were right and are wrong now{by}. {how}"
    )


def _kind(sample: dict[str, Any]) -> str:
    before, after = sample["before"] == sample["y"], sample["after"] == sample["y"]
    return ("right" if after else "broken") if before else ("mended" if after else "wrong")


def _sample(facts: Facts, sample: dict[str, Any]) -> Html:
    words = cell_text(facts, sample["y"], tuple(sample["b"]))
    if str(sample.get("image", "")).startswith("data:image/png;base64,"):
        content = tag("img", src=sample["image"], alt=f"Sample {sample['index']}: {words}")
    elif "text" in sample:
        content = tag("blockquote", foreign(str(sample["text"])), dir="auto", tabindex=0)
    else:
        pairs = (sample.get("values") or {}).items()
        content = tag("dl", [[tag("dt", foreign(str(k))), tag("dd", foreign(str(v)))] for k, v in pairs])
    answers = []
    for label, key in (("before", "before"), ("now", "after")):
        good = sample[key] == sample["y"]
        answers.append(
            tag(
                "div", f"{label}: ",
                tag(
                    "span", foreign(facts.class_name(sample[key])), " ",
                    tag("span", "✓" if good else "✗", role="img", aria_label="right" if good else "wrong"),
                    cls="right" if good else "wrong",
                ),
            )
        )  # fmt: skip
    return tag(
        "li",
        content,
        tag("div", foreign(words), cls="what"),
        answers,
        data_group=sample["group"],
        data_kind=_kind(sample),
    )
