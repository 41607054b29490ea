"""What a run of Algorithm 1 says of its end: which mask is the best, and why none is."""

from __future__ import annotations

from bise.extraction.config import ExtractConfig
from bise.extraction.margins import BY_HEART, gives_one_class
from bise.extraction.problem import Problem
from bise.extraction.state import State

SHORT, SHORTEST = 4, 10
"""A schedule is short with fewer steps than the default's over the first, and nobody can doubt it over the second."""


def replaces(value: float, best: float, *, constant: tuple[bool, bool], ties: bool) -> bool:
    """Whether a mask with `value` on val takes the place of the best so far; the `constant` one of two never does."""
    if constant[0] != constant[1]:
        return constant[1]
    return value > best or (ties and value == best)


def nothing_better(problem: Problem, state: State, value: float) -> str:
    """That the model itself was the best on val, and what to look at."""
    name = problem.config.selection
    judged = [row for row in state.history if "val" in row]
    useful = [row for row in judged if not gives_one_class([row], row["epoch"])]
    found = [row["val"][name] for row in useful or judged]
    against = f"{max(found):.1%} against {value:.1%}" if found else f"{value:.1%}"
    refused = [row["val"][name] for row in judged if row not in useful]
    which = " that tells classes apart" if max(refused, default=0.0) >= value else ""
    said = f"no mask{which} was as good on val as the model itself ({name} {against}), so nothing is closed"
    if refused:
        said += f"; {len(refused)} of {len(judged)} masks gave every sample one class, and were refused as constant"
    said += "; `last` has the last mask, and baseline=False selects among masks alone"
    if value >= BY_HEART:
        said += "; if the model was trained on samples of val, give others, since it may know these by heart"
    return f"{said}; {short}" if (short := too_short(problem, SHORT)) else said


def too_short(problem: Problem, below: int) -> str:
    """That nothing was closed by so short a schedule, which is then the likely cause."""
    c, usual = problem.config, ExtractConfig()
    steps, enough = (one.total_steps(len(problem.cells)) for one in (c, usual))
    if below * steps >= enough:
        return ""
    return (
        f"the schedule is probably too short for masks to be found: {steps:,} steps in all, of which the default"
        f" has {enough:,}; give more by upsilon=… (now {c.upsilon}, usually {usual.upsilon}) or steps=… (now"
        f" {c.epoch_steps(len(problem.cells))}, usually {usual.steps})"
    )
