"""The sentences of the page: what to mind, what groups are called, how to do it again."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bise.base.options import said
from bise.engine.config import TrainConfig
from bise.extraction.config import PRESETS, ExtractConfig
from bise.methods.refit.config import RefitConfig
from bise.reporting.facts import Facts, place_of
from bise.runs.trust import is_key

FEW = 20
"""Samples below which a group's figure is uncertain."""


def percent(value: float | None, digits: int = 0) -> str:
    """A share as a percentage, its sign kept on the line; a dash where there is none."""
    return "–" if value is None else f"{100 * value:.{digits}f}\u202f%"


def warnings(facts: Facts) -> list[str]:
    """What a reader should mind, in plain words."""
    out: list[str] = []
    summary, data = facts.summary, facts.data
    selection = summary.get("selection") or {}
    if selection.get("kind") == "last":
        how = "without validation data"
        if selection.get("val"):
            how = "before any was judged on the validation data"
        out.append(f"The mask was chosen {how}: it is the one of the last epoch, which need not be the best.")
    small = data.get("small_cells") or {}
    if small.get("count") or small.get("none"):
        out.append(_small(facts, small))
    notes = [in_plain_words(str(note)) for note in summary.get("notes") or []]
    if data.get("without_bias"):
        notes = [note for note in notes if "training samples lack a bias label" not in note]  # it says the same
        out.append(
            f"{data['without_bias']:,} of {data['train']:,} training samples have no label for"
            f" {' or '.join(facts.biases)};"
            f" they count for the {facts.target} only."
        )
    if "pseudo" in data:
        out.append(_pseudo(data["pseudo"], facts.bias))
    audited = facts.models.get("vanilla", {})
    if audited.get("without_bias"):
        which = " or ".join(facts.biases)
        out.append(f"{audited['without_bias']:,} test samples have no label for {which} and are in no group.")
    if audited.get("alignment") == "measured":
        out.append(f"Which {facts.bias} helps was measured on the test samples themselves, not on the training data.")
    few = [n for n in (audited.get("n_by_group") or {}).values() if n < FEW]
    if few:
        out.append(
            f"Test groups with fewer than {FEW} samples: {len(few)} of {len(audited['n_by_group'])}, so the worst"
            " group's figure is uncertain."
        )
    out += _at_chance(facts)
    barriers = facts.shrunk.get("barriers") or []
    if barriers:
        out.append(
            f"{len(barriers)} operation{'s' * (len(barriers) > 1)} could not be shrunk and kept closed units at full"
            f" width: {'; '.join(str(b) for b in barriers[:5])}."
        )
    weights = summary.get("weights") or {}
    if "before" in weights and weights["before"] != weights.get("after"):
        out.append("The model's weights are not the ones from before; this should never happen, please report it.")
    if (facts.config.get("extract") or {}).get("bn", "frozen") != "frozen":
        out.append("The subnetwork has BatchNorm statistics of its own; its other weights are the model’s.")
    out += [note[:1].upper() + note[1:] + "." for note in notes]
    if str(facts.config.get("command", "")).startswith("bise demo"):
        out.append(
            "This is the demo. Its data and settings were chosen by the gain, on seeds 100 to 102: a show-piece, not an"
            " estimate of what to expect elsewhere."
        )
    return out


ADVICE = re.compile(
    r"; `last` has the last mask.*? among masks alone|\. Use collapse=.*|; use mi=.*|; keep_worse=.*"
    r"|; give more by upsilon=.*",
    re.DOTALL,
)
"""What a note says to who writes code."""


def in_plain_words(note: str) -> str:
    """A note of the run for who writes none: without advice on options, and with val by its name."""
    plain = re.sub(r"\b(on|of) val\b", r"\1 the validation data", ADVICE.sub("", note))
    return re.sub(r"(?<=\d) ?%", "\u202f%", plain)


def _at_chance(facts: Facts) -> list[str]:
    """A sentence for each network that is no surer than one that gives every sample the same answer.

    Of runs that an earlier version audited, which kept no standing.
    """
    out = []
    for key, which in (
        ("subnetwork", "subnetwork"),
        ("refitted", "refitted network"),
        ("finetuned", "finetuned network"),
    ):
        found = facts.models.get(key) or {}
        if "standing" in found:
            continue
        cells = [cell_of(facts, name) for name in found.get("by_group") or ()]
        if not cells or None in cells:
            continue
        same = max(Counter(cell[0] for cell in cells if cell is not None).values()) / len(cells)
        if same < 1 and found["interval"]["unbiased"][0] <= same:
            out.append(
                f"The {which} is right on {percent(found['unbiased'])} as the mean of all groups, and one that"
                f" gives every sample the same answer on {percent(same)}: it can’t be told from that."
            )
    return out


def _small(facts: Facts, small: Mapping[str, Any]) -> str:
    """Of the training groups that conflict, those with few samples or none."""
    few, none = small["count"], small.get("none", 0)
    text = f"Of the {small['of'] + none:,} training groups in which {facts.misleads}, "
    said = [f"{few:,} {'has' if few == 1 else 'have'} fewer than {small['fewer_than']} samples"] if few else []
    said += [f"{none:,} {'has' if none == 1 else 'have'} none"] if none else []
    text += f"{' and '.join(said)}, so little could be learned from them."
    names = ", ".join(f"{group_text(facts, n)} ({k})" for n, k in list(small.get("smallest", {}).items())[:3])
    return f"{text} The smallest: {names}." if names else text


def _pseudo(quality: Mapping[str, float], bias: str) -> str:
    text = f"No labels of {bias} were used: they are guesses of a model that was trained briefly."
    if quality.get("recall") is None:
        return text + " There are no true labels to compare the guesses with."
    return (
        f"{text} Against the true labels they find {percent(quality['recall'])} of the conflicting samples, and"
        f" {percent(quality['precision'])} of those they mark are such."
    )


def group_text(facts: Facts, name: str) -> str:
    """A group's name from the summary, with the labels' own names: "digit 3, colour red"."""
    cell = cell_of(facts, name)
    return name if cell is None else cell_text(facts, *cell)


def cell_text(facts: Facts, y: int, b: tuple[int, ...]) -> str:
    """The same of a cell by its numbers."""
    labels = [f"{bias} {facts.bias_name(k, v)}" for k, (bias, v) in enumerate(zip(_biases(facts, b), b, strict=True))]
    return ", ".join([f"{facts.target} {facts.class_name(y)}", *labels])


def _biases(facts: Facts, b: tuple[int, ...]) -> list[str]:
    named = facts.biases
    return named if len(named) == len(b) else [f"bias {k + 1}" for k in range(len(b))] if len(b) > 1 else ["bias"]


def cell_of(facts: Facts, name: str) -> tuple[int, tuple[int, ...]] | None:
    """(y, (b, …)) of a cell by its name, as the summary lists it or as "y=3 b=(1, 0)"; None for any other group."""
    listed = (facts.data.get("cells") or {}).get(name)
    if listed:
        return listed[0], tuple(listed[1:])
    if facts.data.get("target") == "y":  # then these are labels, of too many cells to be listed
        return None
    left, _, right = name.partition(" b=")
    try:
        y = int(left.removeprefix("y="))
        return y, tuple(int(part) for part in right.strip("()").split(",") if part.strip())
    except ValueError:
        return None


def commands(facts: Facts) -> list[str]:
    """The commands that make this run again, by its configuration."""
    config = facts.config
    if "command" in config:
        made = f"{config['command']} --out {facts.place}"
        refit = [_refit_command(facts, facts.place)] if _refitted_apart(facts) else []
        return [made, *refit, *_front_command(facts, facts.place)]
    source = config.get("source") or {}
    out = facts.place
    lines = []
    if config.get("job") == "train":
        lines.append(_train_command(config, source, out))
    if "extract" in config:
        lines.append(_extract_command(config, source, out))
    if _refitted_apart(facts):
        lines.append(_refit_command(facts, out))
    tuned = facts.summary.get("finetune")
    if tuned and "extract" in config:
        options = said(TrainConfig.finetuning(), tuned) | {
            name: facts.finetune.get(name) for name in ("zeta", "device")
        }
        paper = " --preset paper" if tuned.get("weights") == "paper" else ""
        lines.append(f"bise finetune {out}{paper}{_options(options)}")
    return lines + _front_command(facts, out) + _shrink_commands(facts, out)


def _front_command(facts: Facts, out: str) -> list[str]:
    found = facts.summary.get("front")
    if not found:
        return []
    points = found["points"]
    options = {"of": found["of"], "budget": [point["budget"] for point in points]}
    plain = "" if all("refitted" in point["networks"] for point in points) else " --no-refit"
    return [f"bise front {out}{_options(options)}{plain}"]


def _refitted_apart(facts: Facts) -> bool:
    """Whether a refit was a job of its own, and no part of the run's first."""
    return bool(facts.refit) and facts.refit["refit"] != facts.config.get("refit")


def _refit_command(facts: Facts, out: str) -> str:
    options = said(RefitConfig(), facts.refit["refit"])
    options |= {"bottleneck": facts.refit.get("bottleneck"), "device": facts.refit.get("device")}
    return f"bise refit {out}{_options(options)}"


def _shrink_commands(facts: Facts, out: str) -> list[str]:
    """For each network that was shrunk by a command of its own, which measures latency."""
    lines = []
    for name in ("subnetwork", "refitted", "finetuned", "dense_finetuned"):
        figures = (facts.summary.get(name) or {}).get("shrunk") or {}
        if "latency_by_batch" in figures:
            files = {
                "onnx" if file.endswith(".onnx") else "out": place_of(Path(part.get("path", file)))
                for file, part in figures["files"].items()
            }
            if place := (figures.get("folder") or {}).get("path"):
                files["folder"] = place_of(Path(place))
            of = "" if name == "subnetwork" else f" --of {name}"
            options = {**files, **(figures.get("widths") or {})}
            lines.append(f"bise shrink {out}{of}" + "".join(f" --{key} {value}" for key, value in options.items()))
    return lines


def _train_command(config: dict[str, Any], source: dict[str, Any], out: str) -> str:
    arguments = source.get("data_arguments") or {}
    rho = arguments.get("rho")
    options = {
        "rho": ",".join(f"{r:g}" for r in rho) if isinstance(rho, list) else rho,
        "seed": arguments.get("seed"),
        "protocol": arguments.get("protocol"),
        "epochs": ((config.get("recipe") or {}).get("train") or {}).get("epochs"),
        "weights": config.get("weights"),
        "select": arguments.get("select"),
        "data_root": arguments.get("root"),
        "limit": arguments.get("limit"),
        "out": out,
    }
    return f"bise train {shlex.quote(str(source.get('data', '')).removeprefix('recipe:'))}{_options(options)}"


def _extract_command(config: dict[str, Any], source: dict[str, Any], out: str) -> str:
    made = is_key(source, "data")
    # such a run's weights lie in the folder of the run that trained them
    run = f" {shlex.quote(str(Path(str(source.get('weights'))).parent))}" if made else ""
    where: dict[str, Any] = {}
    if not made:
        where = {key: source.get(key) for key in ("model", "weights", "data")} | dict(source.get("own") or {})
    preset = config.get("preset")
    usual = getattr(ExtractConfig, preset if preset in PRESETS else PRESETS[0])()
    options = where | {"preset": preset} | said(usual, config["extract"], of_recipe=made)
    options |= {key: config.get(key) for key in ("bottleneck", "sites", "device")}
    options |= {"refit": True} if "refit" in config else {}
    return f"bise extract{run}{_options(options | {'out': out})}"


def _options(options: Mapping[str, Any]) -> str:
    return "".join(_option(key.replace("_", "-"), value) for key, value in options.items() if value is not None)


def _option(flag: str, value: Any) -> str:
    """As a shell takes it; `out` is a place that is quoted already."""
    if isinstance(value, bool):
        return f" --{flag}" if value else f" --no-{flag}"
    if isinstance(value, (list, tuple)):
        return "".join(_option(flag, one) for one in value)
    return f" --{flag} {value if flag == 'out' else shlex.quote(_number(value))}"


def _number(value: Any) -> str:
    """As short as it can be without another value."""
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
