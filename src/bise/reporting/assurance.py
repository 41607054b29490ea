"""What was promised and checked, how to do it again, and what the words mean."""

from __future__ import annotations

import json
from typing import Any

from bise.base.markup import Html, foreign, tag
from bise.reporting.facts import Facts
from bise.reporting.parts import section, table
from bise.reporting.words import commands, percent


def verified(facts: Facts) -> Html:
    """What was promised, and how it was checked in this run."""
    items: list[tuple[str, str, Any]] = []
    weights = facts.summary.get("weights") or {}
    if "before" in weights:
        same = weights["before"] == weights.get("after")
        text: Any = [
            "A SHA-256 over every weight and buffer, before and after, is ",
            "the same: " if same else "not the same: ",
            tag("code", str(weights.get("after"))),
        ]
        items.append(("done" if same else "failed", "The model’s weights are unchanged", text))
    elif "sha256" in weights:
        items.append(
            ("done", "The model’s weights have a fingerprint", ["SHA-256 ", tag("code", str(weights["sha256"]))])
        )
    if facts.masks:
        items.append(_exactness(facts))
        items.append(_selection(facts))
    if facts.fit:
        items.append(_refit(facts))
    audited = facts.models.get("vanilla")
    if audited is not None:
        how = (
            "as the training data or its maker says"
            if audited.get("alignment") == "given"
            else "measured on the test data"
        )
        text = f"{audited['n']:,} samples of the test split; which {facts.bias} helps is {how}."
        state, known = _apart(facts, "test", "train")
        items.append((state, "Judged on samples that were not trained on", f"{text} {known}"))
    for name, figures in facts.files.items():
        text = f"Run once and compared with the shrunk network: relative difference {figures['difference']:.0e}."
        items.append(("done", f"The exported file {name} gives the same answers", text))
    signs = {"done": "✓", "open": "○", "failed": "✗"}
    spoken = {"done": "checked", "open": "not checked", "failed": "failed"}
    return section(
        "verified",
        "What was promised, and checked",
        tag(
            "ul",
            [
                tag("li", tag("span", signs[state], role="img", aria_label=spoken[state]),
                    tag("div", tag("h3", foreign(title)), tag("p", text)), cls=state)
                for state, title, text in items
            ],
            cls="checks",
        ),
    )  # fmt: skip


def _exactness(facts: Facts) -> tuple[str, str, Any]:
    difference = facts.shrunk.get("difference_float64")
    title = "The shrunk network is the masked one"
    if difference is None:
        return (
            "open",
            title,
            ["Not shrunk; ", tag("code", f"bise shrink {facts.place}"), " does and checks it, or says why not."],
        )
    noise = facts.shrunk.get("noise") or 0.0
    most = facts.shrunk.get("allowed_float64") or 1e-10
    found = f"{difference:.0e}" if difference else "none"
    text = f"Largest relative difference of their outputs in float64: {found} (allowed: {most:.0e})."
    if noise:
        text += f" Noise in the last digit of the input alone moves the masked network by {noise:.0e}."
    return "done" if difference <= most else "failed", title, text


def _refit(facts: Facts) -> tuple[str, str, Any]:
    """That the refit changed one layer alone, how it was chosen, and whether it was taken."""
    fit = facts.fit
    same = fit["rest"]["before"] == fit["rest"]["after"]
    text: list[Any] = [
        "A SHA-256 over every tensor but those of ", tag("code", foreign(str(fit["layer"]))),
        f", before and after, is {'the same' if same else 'not the same'}: ", tag("code", str(fit["rest"]["after"])),
        f". Fitted on {' and '.join(f'{n:,} samples of {name}' for name, n in fit['samples'].items())};"
        f" the L2 weight {fit['l2']['chosen']:g} was the best on {fit['l2']['by']}.",
    ]  # fmt: skip
    if fit["val"]:
        before, after = (percent(fit["val"][key]["unbiased"], 1) for key in ("before", "after"))
        text.append(f" Mean of groups on the validation data: {before} before, {after} after.")
    if fit["refused"]:
        text.append(" It was worse there, so it was refused: the last layer is as it was.")
    return "done" if same else "failed", "The refitted network differs in its last layer alone", text


def _selection(facts: Facts) -> tuple[str, str, Any]:
    selection = facts.summary.get("selection") or {}
    stopped = f" The run ended at {facts.summary.get('stopped', 'the schedule’s end')}."
    if selection.get("kind") == "best":
        value = f" ({percent(selection.get('value'), 1)})" if selection.get("value") is not None else ""
        by = _judged_by(str(selection.get("on")))
        text = f"The best mask by {by}{value}, of epoch {selection.get('epoch')}."
        if selection.get("epoch") == 0:
            text = f"None was as good as the model itself by {by}{value}, so nothing is closed."
        elif selection.get("model") is not None:
            text += f" The model itself has {percent(selection['model'], 1)} there."
        text += _other_run(facts.summary.get("targets") or {}) + stopped
        found = [_apart(facts, "val", other) for other in ("test", "train")]
        state, known = min(found, key=lambda one: one[0] != "failed")
        return state, "The mask was selected on data that are neither training nor test data", f"{text} {known}"
    why = "There was no validation data to select by."
    if selection.get("val"):
        why = "None was judged on the validation data before the run ended."
    return "open", "The mask is the last one", why + stopped


def _judged_by(key: str) -> str:
    """What a mask was selected by, such as "val, unbiased", without the names of code."""
    words = {"unbiased": "the mean of all groups", "worst_group": "the worst group"}
    split, _, figure = key.partition(", ")
    where = "the validation data" if split == "val" else split
    return f"{words.get(figure, figure)} on {where}" if figure else where


def _apart(facts: Facts, one: str, other: str) -> tuple[str, str]:
    """Whether two splits are known to be the same, by their fingerprints; samples aren't compared one by one."""
    noted = facts.config.get("sha256") or {}
    if noted.get(one) and noted.get(one) == noted.get(other):
        return "failed", (
            f"The splits {one} and {other} have the same fingerprint in config.json, so they are most likely the same"
            " samples. Of a data set in code it holds some samples alone, as the summary says."
        )
    return "open", "The splits are taken as they were given, and not compared sample by sample."


def _other_run(targets: dict[str, Any]) -> str:
    """That a second run was made, where one was, and which of the two this is."""
    other = targets.get("other")
    if other is None:
        return ""

    def named(run: dict[str, Any]) -> str:
        return f"margin {run['margin']:g} and smoothing {run['smoothing']:g}"

    return f" It comes from the run with {named(targets)}; one with {named(other)} had {percent(other['value'], 1)}."


def reproduce(facts: Facts) -> Html:
    """Commands, configuration, machine."""
    machine = facts.config.get("machine") or {}
    config = {key: value for key, value in facts.config.items() if key not in ("machine", "schema")}
    lines = commands(facts)
    return section(
        "reproduce",
        "How to do it again",
        tag("pre", tag("code", "\n".join(lines))) if lines else None,
        tag("p", "The same seed gives the same result on the same machine with as many threads.", cls="note"),
        tag(
            "details",
            tag("summary", "The complete configuration"),
            tag("pre", tag("code", json.dumps(config, indent=2, ensure_ascii=False))),
        ),
        tag("details", tag("summary", "The machine"), table(None, ["", ""], [[k, str(v)] for k, v in machine.items()]))
        if machine
        else None,
    )


def words_used(facts: Facts) -> Html:
    words = {
        "target": f"what the model should tell: here, {facts.target}.",
        "bias": f"what it should not go by: here, {facts.bias}.",
        "aligned": "samples whose bias goes with their target: the one whose share there exceeds its share in all the"
        " training data by the largest factor, unless the data’s maker names another. It need not be the most frequent"
        " one. Going by the bias helps there.",
        "conflicting": "the others; going by the bias misleads there.",
        "group": "samples with the same target and the same bias.",
        "unbiased": "the mean over groups, so that a large group counts as much as a small one.",
        "95 % interval": "the range in which the true figure lies, in 95 of 100 such measurements. That of the worst"
        " group is of this group by itself: the lowest of many figures is too low by chance, and the more so the more"
        " groups there are and the smaller they are.",
        "unit, site, gate": "a neuron or filter; a layer of them; the switch that keeps or closes one.",
        "score, ζ": "what a gate learned; the threshold above which it stays open.",
        "refitted": "the last layer was fitted anew on what the gates leave, all groups counting evenly; every other"
        " weight is the model’s.",
        "finetuned": "the weights that remain were trained on, with the mask fixed.",
        "dense control": "the whole model, with nothing closed, trained on in the same way: what training alone does.",
        "demographic parity": f"each answer is given as often whatever the {facts.bias}. Its gap is the largest"
        " difference, over all answers.",
        "equalised odds": f"the same among samples of one {facts.target}, so that what differs is not what is true.",
        "true-positive gap": f"how much more often one {facts.target} is recognised with one {facts.bias} than with"
        " another.",
        "calibration": "whether a network is right as often as it is sure.",
        "mutual information": "how much one thing tells about another; 0: nothing.",
        "probe": "a simple classifier that tries to read the bias inside a network.",
    }
    return section(
        "words",
        "The words",
        tag("dl", [[tag("dt", word), tag("dd", text)] for word, text in words.items()], cls="words"),
    )
