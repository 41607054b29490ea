"""How many scores are learned beside how many weights (Table E.1 of the supplement)."""

from __future__ import annotations

from collections.abc import Sequence

from bise.jobs.recipes import PAPER as RECIPES
from bise.studies.job import Job
from bise.studies.results import Row
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.tables import grid, matching

# Table E.1: weights, scores
PAPER = {
    "biased-mnist": (531_210, 240),
    "celeba": (11_177_538, 3_840),
    "corrupted-cifar10": (11_181_642, 3_840),
    "multi-color-mnist": (256_510, 300),
    "civilcomments": (109_361_664, 46_848),
}


def _jobs(scale: Scale) -> list[Job]:
    return [Job(label=name, kind="count", recipe=name) for name in RECIPES]


def _show(rows: Sequence[Row]) -> str:
    lines = []
    for name, (weights, scores) in PAPER.items():
        for row in matching(rows, label=name):
            ours = [f"{row[key]:,}" for key in ("parameters", "matrices", "scores")]
            lines.append([name, row["architecture"], *ours, f"*{weights:,}*", f"*{scores:,}*"])
    head = ["", "architecture", "parameters", "of them in matrices and filters", "scores"]
    return "Counted, not measured. For BERT the paper leaves out biases and normalisation.\n\n" + grid(
        [*head, "*the paper's weights*", "*its scores*"], lines
    )


STUDY = Study(name="mask-counts", title="Scores beside weights", place="Table E.1", jobs=_jobs, show=_show)
