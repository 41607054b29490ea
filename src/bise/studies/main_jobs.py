"""The jobs and lines that the paper's main tables share: vanilla, best, last, finetuned, and the dense control."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from bise.jobs.recipes import AUTHORS
from bise.studies.job import Job
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.tables import Line, Published

Figures = Mapping[str, Mapping[str, Published]]
"""{what: {column: the paper's figure}}, what being vanilla, best, last or finetuned."""


SIDES: dict[str, tuple[str, ...]] = {AUTHORS: ("balanced", AUTHORS), "paper": ("balanced", "paper")}
"""The two accounts of the paper, each with the presets that are run under it; its own comes last."""
WORDS = {
    AUTHORS: "**Protocol `authors`**, by the authors' code.",
    "paper": "**Protocol `paper`**, by the text.",
}


def both(job: Job) -> list[Job]:
    """The job under the authors' protocol, and under the paper's."""
    return [replace(job, protocol=AUTHORS), job]


def by_side(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row], tuple[str, ...]]]:
    """(what to say, rows, presets) of either protocol that there are rows of, so that no table mixes them."""
    for side, presets in SIDES.items():
        chosen = [row for row in rows if (row.get("protocol") == AUTHORS) == (side == AUTHORS)]
        if chosen:
            yield WORDS[side], chosen, presets


def main_jobs(scale: Scale, job: Job) -> list[Job]:
    """Everything that a main table shows for one data set, ρ and protocol, over the seeds."""
    out = []
    for seed in scale.seeds:
        one = replace(job, seed=seed)
        out.append(replace(one, label="vanilla", kind="vanilla"))
        for preset in SIDES[job.side]:
            some = replace(one, preset=preset)
            out.append(replace(some, label=f"extraction, {preset}", kind="extract"))
            out.append(replace(some, label=f"finetuned, {preset}", kind="finetune"))
            out.append(replace(some, label=f"control, {preset}", kind="finetune", of="dense"))
    return out


def main_lines(paper: Figures, presets: Sequence[str] = SIDES["paper"], *, best: bool = True) -> list[Line]:
    """The lines of a main table; without `best` where there is no validation set, so that only the last mask is."""
    lines = [Line(title="vanilla", label="vanilla", paper=paper.get("vanilla", {}))]
    for preset in reversed(presets):
        label, own = f"extraction, {preset}", preset == presets[-1]
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
