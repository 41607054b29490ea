"""What the command line's options say of a comparison's data, model and seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bise.base.errors import BadInput
from bise.data.core.contract import Labelled, labels
from bise.data.core.subset import subset
from bise.engine.checkpoints import EVERY
from bise.jobs.bench_plan import Plan
from bise.jobs.bench_problems import OWN, Problem, own_problem, problems_named, shortened
from bise.jobs.data_sources import splits_of
from bise.jobs.python_sources import function, model_of
from bise.jobs.sources import described
from bise.jobs.steps import splits_to_learn
from bise.methods.rivals.listed import methods_named


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the command line asks for, in its own words; it can be sent to another process, and made a plan there."""

    methods: str = "all"
    datasets: str | None = None
    model: str | None = None
    data: str | None = None
    weights: Path | None = None
    own: Mapping[str, Any] = field(default_factory=dict)
    root: Path | None = None
    limit: int | None = None
    epochs: int | None = None
    seeds: str = "2"
    select: str = "unbiased-val"
    settings: int = 1
    against: str = ""
    device: str = "cpu"
    every: float = EVERY

    def plan(self) -> Plan:
        """What is compared, its data at hand."""
        return Plan(
            problems=self.problems(),
            methods=methods_named(self.methods),
            seeds=seeds_of(self.seeds),
            select=self.select,
            settings=self.settings,
            against=self.against,
            device=torch.device(self.device),
            every=self.every,
        )

    def problems(self) -> list[Problem]:
        if self.datasets is not None:
            own = {"model": self.model, "data": self.data, "weights": self.weights}
            odd = next((name for name, value in own.items() if value), None)
            if odd or self.own:
                raise BadInput(f"--datasets names data with their models; leave --{odd or next(iter(self.own))} out")
            return problems_named(self.datasets, root=self.root, limit=self.limit, epochs=self.epochs)
        if self.model is None or self.data is None:
            missing = "--model" if self.model is None else "--data"
            raise BadInput(f"{missing} is missing; give --model and --data, or --datasets such as demo")
        model, parts = self.model, splits_to_learn(splits_of(self.data, dict(self.own)))
        if self.limit is not None:
            parts = {name: _few(part, self.limit) for name, part in parts.items()}
        given = None if self.weights is None else model_of(model, self.weights)
        train = OWN if self.epochs is None else shortened(OWN, self.epochs)
        made = own_problem(Path(self.data).stem, lambda: model_of(model, None), parts, train=train, vanilla=given)
        function(model, "--model")  # said now, and not behind the data of a first seed
        return [made]

    def about(self) -> dict[str, Any]:
        """What a run's configuration notes of them."""
        if self.model is None or self.data is None:
            root = str(self.root.resolve()) if self.root is not None else None
            return {"limit": self.limit, "data_root": root}
        return {"limit": self.limit, "own": described(self.model, self.weights, self.data, dict(self.own))}


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
