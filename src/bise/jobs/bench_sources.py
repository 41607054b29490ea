"""What the command line's options say of a comparison's data, model and seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bise.base.errors import BadInput
from bise.data.core.contract import Labelled, labels
from bise.data.core.subset import subset
from bise.jobs.bench_problems import OWN, Problem, own_problem, problems_named, shortened
from bise.jobs.data_sources import splits_of
from bise.jobs.python_sources import function, model_of
from bise.jobs.sources import described
from bise.jobs.steps import splits_to_learn


def problems_of(
    datasets: str | None,
    model: str | None,
    data: str | None,
    weights: Path | None,
    own: dict[str, Any],
    *,
    root: Path | None,
    limit: int | None,
    epochs: int | None,
) -> tuple[list[Problem], dict[str, Any]]:
    """(problems, what a run's configuration notes of them)."""
    about: dict[str, Any] = {"limit": limit}
    if datasets is not None:
        odd = next((name for name, value in (("model", model), ("data", data), ("weights", weights)) if value), None)
        if odd or own:
            raise BadInput(f"--datasets names data with their models; leave --{odd or next(iter(own))} out")
        found = problems_named(datasets, root=root, limit=limit, epochs=epochs)
        return found, about | {"data_root": str(root.resolve()) if root is not None else None}
    if model is None or data is None:
        missing = "--model" if model is None else "--data"
        raise BadInput(f"{missing} is missing; give --model and --data, or --datasets such as demo")
    parts = splits_to_learn(splits_of(data, own))
    if limit is not None:
        parts = {name: _few(part, limit) for name, part in parts.items()}
    given = None if weights is None else model_of(model, weights)
    train = OWN if epochs is None else shortened(OWN, epochs)
    problem = own_problem(Path(data).stem, lambda: model_of(model, None), parts, train=train, vanilla=given)
    function(model, "--model")  # said now, and not behind the data of a first seed
    return [problem], about | {"own": described(model, weights, data, own)}


def _few(part: Any, limit: int) -> Any:
    if part is None:
        return None
    cells = labels(part, need_bias=False)
    return subset(part if isinstance(part, Labelled) else Labelled(part, y=cells.y, b=cells.b), limit)


def seeds_of(text: str) -> list[int]:
    """How many seeds, or which: "3" is 0, 1 and 2."""
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise BadInput(f"--seeds {text!r} is no number of seeds; give 3, or which ones with commas: 0,4")
    if "," in text:
        return numbers
    if numbers[0] < 1:
        raise BadInput("--seeds 0 compares nothing; give 1 or more")
    return list(range(numbers[0]))
