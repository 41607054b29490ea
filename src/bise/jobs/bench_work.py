"""Who does the rows of a comparison: one after the other, keeping what those of a data set and seed share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from bise.base.errors import BadInput
from bise.base.plain import check_plain
from bise.data.core.cells import Cells
from bise.data.core.contract import Labelled, Progress, labels
from bise.data.core.identity import hashes, identities
from bise.jobs.bench_plan import SELECTS, Plan
from bise.jobs.bench_problems import Problem, like_train
from bise.jobs.bench_rows import Block, Meter, metered, row, vanilla_row
from bise.jobs.tasks import Cluster, Task
from bise.methods.shared.interface import Method, Setting, Tally
from bise.methods.shared.stages import train_stage
from bise.network.twin import duplicate
from bise.runs.states import States


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """A cluster, and a function that makes the plan there: its data are read where rows are done, and not sent."""

    cluster: Cluster
    plan: Callable[[], Plan]


def tasks_of(plan: Plan) -> list[Task]:
    """One for each row, in the order of the table; given to a worker as (place of the problem, seed, method).

    Vanilla, of no method, is first: others start from its weights, and all are compared with them.
    """
    tasks = []
    for place, problem in enumerate(plan.problems):
        for seed in plan.seeds:
            first = part_of(problem, seed, "vanilla")
            tasks.append(Task(key=first, given=(place, seed, None)))
            for number, method in enumerate(plan.methods):
                key = part_of(problem, seed, method.name)
                tasks.append(Task(key=key, given=(place, seed, number), after=(first,)))
    return tasks


def part_of(problem: Problem, seed: int, name: str) -> str:
    """What a run calls its part of this method, data set and seed."""
    return re.sub(r"[^\w.-]+", "_", f"{problem.name}-{seed}-{name}")


class Rows:
    """Does one row after the other; where it isn't `alone`, a clock would say nothing."""

    def __init__(
        self,
        plan: Callable[[], Plan],
        states: States | None,
        progress: Progress | None = None,
        *,
        alone: bool = True,
    ) -> None:
        if states is not None:
            check_plain(states.run)
        self.plan, self.states, self.progress, self.alone = plan(), states, progress, alone
        self.of: tuple[int, int] | None = None
        self.rows: SeedRows | None = None

    def __call__(self, given: tuple[int, int, int | None]) -> dict[str, Any]:
        place, seed, number = given
        if self.rows is None or self.of != (place, seed):
            self.rows = None  # before the next ones have their data
            self.rows = SeedRows(self.plan, self.plan.problems[place], seed, self.states, self.progress)
            self.of = place, seed
        found = self.rows.vanilla() if number is None else self.rows.row(self.plan.methods[number])
        if "cost" in found and not self.alone:
            found["cost"]["seconds"] = None
        return found


class SeedRows:
    """The rows of one data set and seed; data and the vanilla model are there once a row asks for them."""

    def __init__(
        self, plan: Plan, problem: Problem, seed: int, states: States | None, progress: Progress | None
    ) -> None:
        self.plan, self.problem, self.seed, self.states, self.progress = plan, problem, seed, states, progress
        self.block: Block | None = None
        self.refused = ""
        """Why there can be no block."""
        self.meter: Meter | None = None
        self.samples = 0
        """What the vanilla model's training took, where it was a whole one and ours."""

    def vanilla(self) -> dict[str, Any]:
        """The row of the model that others start from."""
        block = self._ready()
        if block is None:
            return {"method": "vanilla", "dataset": self.problem.name, "seed": self.seed, "skipped": self.refused}
        return vanilla_row(block, self.meter, self.samples)

    def row(self, method: Method) -> dict[str, Any]:
        """The row of a method, done now."""
        block = self._ready()
        if block is None:
            return {"method": method.name, "dataset": self.problem.name, "seed": self.seed, "skipped": self.refused}
        if self.states is None:
            return row(method, block, settings=self.plan.settings)
        part = part_of(self.problem, self.seed, method.name)
        own = self.states.of(part)
        kept = replace(block.setting, states=own, key=f"{self.states.key}/{part}")
        return row(method, replace(block, setting=kept), settings=self.plan.settings, whole=not own.exists())

    def _ready(self) -> Block | None:
        if self.block is None and not self.refused:
            try:
                self.block = self._begin()
            except BadInput as error:
                if isinstance(error, _Changed):
                    raise
                self.refused = " ".join(str(error).split())
        return self.block

    def _begin(self) -> Block:
        parts = dict(self.problem.splits(self.seed))
        self._check_same(parts)
        train, cells = _train_of(parts["train"], self.progress)
        val = self._val(parts.get("val"), cells, has_bias=train.b is not None)
        if parts.get("test") is None:
            raise BadInput(f"{self.problem.name} has no test, on which methods could be compared; give one")
        setting = Setting(
            train=replace(self.problem.train, seed=self.seed),
            finetune=replace(self.problem.finetune, seed=self.seed),
            seed=self.seed,
            device=self.plan.device,
            selects=self.plan.select != "last",
            selection=SELECTS[self.plan.select],
            every=self.plan.every,
            progress=self.progress,
        )
        given = self.problem.vanilla
        block = Block(
            problem=self.problem,
            seed=self.seed,
            train=train,
            val=val,
            test=parts["test"],
            cells=cells,
            vanilla=nn.Identity() if given is None else duplicate(given).to(self.plan.device).eval(),
            setting=setting,
        )
        return self._with_vanilla(block)

    def _with_vanilla(self, block: Block) -> Block:
        """The block with the model that others start from: the last epoch of a plain training."""
        if self.problem.vanilla is not None:
            return block
        tally, part = Tally(), part_of(self.problem, self.seed, "vanilla")
        states = None if self.states is None else self.states.of(part)
        key = "" if self.states is None else f"{self.states.key}/{part}"
        whole = states is None or not states.exists()
        setting = replace(block.setting, tally=tally, states=states, key=key)
        with metered(setting.device) as meter:
            fresh = self.problem.make(self.seed).to(setting.device)
            how: dict[str, Any] = {"part": "vanilla", "select": False, "need_bias": False}
            model = train_stage(fresh, block.train, None, setting, **how)
        self.meter, self.samples = meter if whole else None, tally.samples
        return replace(block, vanilla=model)

    def _val(self, val: Any, cells: Cells, *, has_bias: bool) -> Any:
        """val by the comparison's rule."""
        if val is None and self.plan.select != "last":
            raise BadInput(
                f'{self.problem.name} has no val, so that select="{self.plan.select}" can\'t select by it; give one, or'
                ' use select="last"'
            )
        if self.plan.select == "biased-val":
            if not has_bias:
                raise BadInput("train has no bias labels, so that val can't be drawn like it; select otherwise")
            return like_train(val, cells, self.seed)
        return val

    def _check_same(self, parts: Mapping[str, Any]) -> None:
        """Refuse data that changed since the comparison was begun."""
        if self.states is None:
            return
        now = hashes(identities(parts))
        then = self.states.once(part_of(self.problem, self.seed, "data"), lambda: dict(now))
        if {name: then.get(name) for name in now} != now:
            raise _Changed(
                f"the data of {self.problem.name} changed since {self.states.run} was begun, so that its rows couldn't"
                " be compared; bring them back, or choose another folder with out=…"
            )


class _Changed(BadInput):
    """Data that aren't what they were: the comparison can't go on."""


def _train_of(train: Any, progress: Progress | None) -> tuple[Labelled, Cells]:
    """train with its labels known, and its cells; without bias labels those have one bias that says nothing."""
    if train is None:
        raise BadInput("there is no train, from which to learn; give one")
    if isinstance(train, Labelled):
        cells = labels(train, need_bias=False, progress=progress)
    else:
        cells = labels(train, need_bias=False, progress=progress)
        sample = train[0]
        has = isinstance(sample, (tuple, list)) and len(sample) == 3
        train = Labelled(train, y=cells.y, b=cells.b if has else None, classes=cells.classes)
    if len(torch.unique(cells.y)) < 2:
        raise BadInput("train holds one class only; it needs at least two")
    return train, cells
