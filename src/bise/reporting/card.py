"""A model card: README.md with metadata for a hub, figures by group with intervals, limits, and where it comes from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bise.base.errors import BadInput
from bise.base.output import CONTROL, one_line
from bise.base.version import VERSION
from bise.reporting.facts import MODELS, Facts
from bise.reporting.leaning import headline
from bise.reporting.words import group_text, warnings

MARK = "<!-- model card by bise -->"
"""In every card of ours, by which it is known as one that may be written again."""
FIGURES = {
    "accuracy": ("accuracy", "all samples"),
    "unbiased": ("unbiased_accuracy", "mean of the groups"),
    "worst_group": ("worst_group_accuracy", "worst group"),
}
"""{figure of an audit: (the type of its metric, what the card calls it)}"""
WORDS = {
    "vanilla": "the model before any extraction",
    "subnetwork": "a part of a trained model, whose weights are the model's own",
    "refitted": "a part of a trained model, with its last layer fitted again",
    "finetuned": "a part of a trained model, with the weights that remain trained further",
    "dense_finetuned": "the whole of a trained model, finetuned as its part was",
}
PARTS = ("subnetwork", "refitted", "finetuned")
"""Those of them that a mask was chosen for."""
TASKS = {"text": "text-classification", "image": "image-classification", "features": "tabular-classification"}
_SPECIAL = frozenset("\\`*_{}[]<>#|!~&$")


def card(facts: Facts, of: str | None = None, form: str | None = None) -> str:
    """The card of one of a run's networks, by default of the last that was made; `form` is that of its folder."""
    of = _chosen(facts, of)
    metadata = _metadata(facts, of, form)
    parts = [
        "---",
        *(f"{key}: {_yaml(value)}" for key, value in metadata.items()),
        "---",
        MARK,
        "",
        f"# {_plain(facts.folder)}",
        "",
        f"A classifier of {_plain(facts.target)}: {WORDS[of]}.{_purpose(facts) if of in PARTS else ''}",
        "",
        _plain(headline(facts)),
        "",
        *_figures(facts, of),
        *_limits(facts, of),
        *_loading(form),
        *_origin(facts, of, form),
    ]
    return "\n".join(parts) + "\n"


def _purpose(facts: Facts) -> str:
    return (
        " Bias-Invariant Subnetwork Extraction chose the units that it keeps, so that it should lean less on"
        f" {_plain(facts.bias)}."
    )


def _chosen(facts: Facts, of: str | None) -> str:
    found = [name for name in MODELS if name in facts.models and name != "dense_finetuned"]
    if not found:
        raise BadInput(f"{facts.folder} has no figures on a test split, and a card without any says nothing; audit it")
    if of is None:
        return found[-1]
    if of not in facts.models:
        raise BadInput(f"{facts.folder} has no figures of {of!r}; it has those of {', '.join(found)}")
    return of


# metadata


def _metadata(facts: Facts, of: str, form: str | None) -> dict[str, Any]:
    """What stands above the card, each value as JSON, which is YAML too."""
    task = _task(facts)
    content: dict[str, Any] = {
        "tags": ["bise", "fairness", "bias-mitigation", "pruning"],
        "model-index": [{"name": facts.folder, "results": [_result(facts, of, task)]}],
    }
    if form == "transformers":
        content["library_name"] = "transformers"
    if task != "other":
        content["pipeline_tag"] = task
    model = str((facts.config.get("source") or {}).get("model") or "")
    if model.startswith("hf:") and not Path(model.removeprefix("hf:")).is_absolute():
        content["base_model"] = model.removeprefix("hf:")
    return content


def _yaml(value: Any) -> str:
    """A value as JSON, which is YAML too once the characters are escaped that end a line there, or can't stand."""
    return CONTROL.sub(_escaped, json.dumps(value, ensure_ascii=False))


def _escaped(match: re.Match[str]) -> str:
    half = "\ud800" <= match[0] <= "\udfff"  # of a pair, as in the name of a file that isn't text: no character
    return "\\ufffd" if half else f"\\u{ord(match[0]):04x}"


def _task(facts: Facts) -> str:
    source = facts.config.get("source") or {}
    own = source.get("own") or {}
    found = next((TASKS[key] for key in TASKS if key in own), None)
    if found is None and "size" in own:  # a folder of pictures
        return TASKS["image"]
    return found or "other"


def _result(facts: Facts, of: str, task: str) -> dict[str, Any]:
    audit, name = facts.models[of], _data_name(facts)
    return {
        "task": {"type": task},
        "dataset": {"type": _identifier(name), "name": name, "split": "test"},
        "metrics": [
            {
                "type": kind,
                "value": _rounded(audit[figure]),
                "name": f"accuracy, {words}" if figure != "accuracy" else "accuracy",
                "args": {"interval_95": [_rounded(end) for end in audit["interval"][figure]], "n": audit["n"]},
            }
            for figure, (kind, words) in FIGURES.items()
        ],
    }


def _data_name(facts: Facts) -> str:
    """What the data are called, without where they lie on the maker's machine."""
    data = str((facts.config.get("source") or {}).get("data") or "unnamed")
    if data.startswith("hf:") and not Path(data.removeprefix("hf:")).is_absolute():
        return data.removeprefix("hf:")
    return one_line(Path(data).name) or "unnamed"


def _identifier(name: str) -> str:
    """As the hub takes a data set's identifier: an owner at most, and no spaces or other signs."""
    parts = name.partition(":")[0].split("/")[-2:]
    return "/".join(re.sub(r"[^A-Za-z0-9_.-]+", "-", part) or "-" for part in parts)


def _rounded(value: float) -> float:
    return round(float(value), 4)


# text


def _plain(text: object) -> str:
    """A text of others as Markdown shows it literally, on one line."""
    return "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in one_line(str(text)))


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _between(value: float | None, interval: Any) -> str:
    if not interval or interval[0] is None:
        return _percent(value)
    return f"{_percent(value)} ({_percent(interval[0])} to {_percent(interval[1])})"


def _figures(facts: Facts, of: str) -> list[str]:
    """Two tables: the figures of an audit, and every group, before and after."""
    before, after = facts.models.get("vanilla"), facts.models[of]
    both = [after] if before is None or of == "vanilla" else [before, after]
    head = ["this model"] if len(both) == 1 else ["before", "this model"]
    rows = [[words, *(_between(one[key], one["interval"][key]) for one in both)] for key, (_, words) in FIGURES.items()]
    rows += [
        [words, *(_between(one[key]["accuracy"], one[key]["interval"]) for one in both)]
        for key, words in (("aligned", f"where {facts.helps}"), ("conflicting", f"where {facts.misleads}"))
        if all(one.get(key) for one in both)
    ]
    groups = [
        [
            group_text(facts, name),
            str(n),
            *(_between(one["by_group"].get(name), one["interval_by_group"].get(name)) for one in both),
        ]
        for name, n in (after.get("n_by_group") or {}).items()
    ]
    return [
        "## Figures",
        "",
        f"Accuracy in % on {after['n']:,} test samples of {_plain(_data_name(facts))}, with 95 % intervals.",
        "",
        *_table(["accuracy", *head], rows),
        "",
        "## Groups",
        "",
        "The worst group's interval is that of this group by itself: the lowest of many is too low by chance.",
        "",
        *_table(["group", "n", *head], groups),
        "",
    ]


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cell if cell == '---' else _plain(cell) for cell in line)} |" for line in lines]


def _limits(facts: Facts, of: str) -> list[str]:
    said = [
        "The figures hold for data like the test samples; groups elsewhere may be others.",
        "Fairness here means accuracy across the groups in the table. It says nothing of groups that nobody labelled.",
        *warnings(facts),
    ]
    if of == "subnetwork" and facts.weights_kept:
        said.append("No weight was changed, so what the kept units learned of other biases is still in them.")
    return ["## Limits", "", *(f"- {_plain(line)}" for line in said), ""]


def _loading(form: str | None) -> list[str]:
    if form is None:
        return []
    how = {
        "transformers": [
            "from transformers import AutoConfig, AutoModelForImageClassification, AutoModelForSequenceClassification",
            "",
            'pictures = "ForImageClassification" in AutoConfig.from_pretrained(FOLDER).architectures[0]',
            "kind = AutoModelForImageClassification if pictures else AutoModelForSequenceClassification",
            "model = kind.from_pretrained(FOLDER)",
        ],
        "operations": ["import bise", "", "model = bise.load_pretrained(FOLDER)"],
    }[form]
    return ["## Loading", "", "```python", *how, "```", ""]


def _origin(facts: Facts, of: str, form: str | None) -> list[str]:
    """What made it, by versions and hashes; no path of the maker's machine."""
    config, summary = facts.config, facts.summary
    machine, weights = config.get("machine") or {}, summary.get("weights") or {}
    rows = [
        ["made by", f"bise {machine.get('bise', VERSION)}, torch {machine.get('torch', 'unknown')}"],
        ["settings", str(config.get("preset") or "unnamed")],
        ["seed", str((config.get("extract") or {}).get("seed", "unknown"))],
        ["weights before (SHA-256)", str(weights.get("before", "unknown"))],
        ["weights after extraction (SHA-256)", str(weights.get("after", "unknown"))],
        *([f"{name} data (SHA-256)", str(value)] for name, value in _hashes(config)),
    ]
    sub = summary.get("subnetwork") or {}
    if units := sub.get("units"):
        rows.append(["units kept", f"{units['open']:,} of {units['all']:,}"])
    if sizes := facts.shrunk.get("parameters"):
        rows.append(["parameters", f"{sizes['shrunk']:,} of {sizes['dense']:,}"])
    written = (facts.models[of].get("shrunk") or {}).get("folder") or {}
    if form is not None and written.get("form") == form == "transformers":
        rows.append(["parameters in this form", f"{written['parameters']:,}: {written['why']}"])
    return [
        "## Where it comes from",
        "",
        *_table(["", ""], rows),
        "",
        "The method: de Moura Matos et al., *Bias In, Bias Out? Finding Unbiased Subnetworks in Vanilla Models*, CVPR"
        " 2026. The licence of the model that it was made from holds for this one; name it in the metadata.",
    ]


def _hashes(config: dict[str, Any]) -> list[tuple[str, str]]:
    noted = config.get("sha256") or {}
    return [(name, str(noted[name])) for name in ("train", "val", "test") if noted.get(name)]
