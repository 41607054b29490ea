"""The jobs and lines that the paper's main tables share: vanilla, best, last, finetuned, and the dense control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bise.studies.job import PRESETS, Job
from bise.studies.scale import Scale
from bise.studies.tables import Line, Published

Figures = Mapping[str, Mapping[str, Published]]
"""{what: {column: the paper's figure}}, what being vanilla, best, last or finetuned."""


def main_jobs(scale: Scale, job: Job, presets: Sequence[str] = PRESETS) -> list[Job]:
    """Everything that a main table shows for one data set, ρ and protocol, over the seeds."""
    out = []
    for seed in scale.seeds:
        one = replace(job, seed=seed)
        out.append(replace(one, label="vanilla", kind="vanilla"))
        for preset in presets:
            some = replace(one, preset=preset)
            out.append(replace(some, label=f"extraction, {preset}", kind="extract"))
            out.append(replace(some, label=f"finetuned, {preset}", kind="finetune"))
            out.append(replace(some, label=f"control, {preset}", kind="finetune", of="dense"))
    return out


def main_lines(paper: Figures, presets: Sequence[str] = PRESETS, *, best: bool = True) -> list[Line]:
    """The lines of a main table; without `best` where there is no validation set, so that only the last mask is."""
    lines = [Line(title="vanilla", label="vanilla", paper=paper.get("vanilla", {}))]
    for preset in reversed(presets):
        label, own = f"extraction, {preset}", preset == "paper" or "paper" not in presets
        name = f"preset `{preset}`"
        figures = paper if own else {}
        if best:
            lines.append(Line(title=f"BISE, {name}", label=label, paper=figures.get("best", {})))
        lines.append(Line(title=f"BISE (last), {name}", label=label, part="last.", paper=figures.get("last", {})))
        lines.append(
            Line(title=f"BISE + finetuning, {name}", label=f"finetuned, {preset}", paper=figures.get("finetuned", {}))
        )
        lines.append(Line(title=f"dense, finetuned alike, {name}", label=f"control, {preset}"))
    return lines
