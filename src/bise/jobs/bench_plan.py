"""What is compared, and by which rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from bise.base.errors import BadInput
from bise.data.core.content import Content
from bise.engine.checkpoints import EVERY
from bise.jobs.bench_problems import Problem
from bise.jobs.bench_rows import as_json
from bise.jobs.bench_table import check_against
from bise.methods.rivals.listed import METHODS
from bise.methods.shared.interface import Method
from bise.network.twin import fingerprint

SELECTS = {"unbiased-val": "unbiased", "biased-val": "accuracy", "last": "unbiased"}
"""{rule: the figure on val that epochs and settings are selected by}: the mean over groups on val as it is; the
accuracy on the part of val that is drawn like train; or none, where the last epoch is taken."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is compared, and by which rule."""

    problems: Sequence[Problem]
    methods: Sequence[Method]
    seeds: Sequence[int]
    select: str = "unbiased-val"
    settings: int = 1
    """How many settings of each method are tried on val."""
    against: str = ""
    """The method that others are paired with; the first one otherwise."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    every: float = EVERY

    def __post_init__(self) -> None:
        if self.select not in SELECTS:
            raise BadInput(f"select={self.select!r} is unknown; use {', '.join(SELECTS)}")
        if not self.methods or not self.seeds:
            raise BadInput("there is nothing to compare; name a method and give 1 or more seeds")
        if self.settings < 1:
            raise BadInput(f"settings={self.settings} tries nothing; give 1 or more")
        if self.settings > 1 and self.select == "last":
            raise BadInput('select="last" takes nothing by val, so it can\'t choose between settings; use settings=1')
        check_against(self.against, [method.name for method in self.methods])

    @property
    def rows(self) -> int:
        return len(self.problems) * len(self.seeds) * (1 + len(self.methods))

    def as_config(self) -> dict[str, Any]:
        """What a run folder says of it."""
        return {
            "job": "bench",
            "methods": {method.name: as_json(method.config) | _own(method) for method in self.methods},
            "datasets": {
                one.name: {
                    "train": asdict(one.train),
                    "finetune": asdict(one.finetune),
                    "extract": dict(one.search),
                    "vanilla": None if one.vanilla is None else fingerprint(one.vanilla),
                    **({} if one.known is None else {"sha256": one.known()}),
                }
                for one in self.problems
            },
            "seeds": list(self.seeds),
            "select": self.select,
            "settings": self.settings,
            "against": self.against,
            "device": str(self.device),
        }


def _own(method: Method) -> dict[str, str]:
    """Of a method that isn't ours, a hash of its function's name and of what it was given, but not of its code."""
    return {} if METHODS.get(method.name) is method else {"function": Content()(method.run).hex()}
