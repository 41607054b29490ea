"""`bise bench`: methods × data sets × seeds under one protocol, row by row, in a run folder or in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bise.base.errors import BadInput
from bise.base.plain import remove_folder
from bise.data.core.cells import Cells
from bise.data.core.contract import Labelled, Progress, labels, unloaded
from bise.data.core.identity import hashes, identities
from bise.engine.config import TrainConfig
from bise.jobs.bench_plan import SELECTS, Plan
from bise.jobs.bench_problems import OWN, Problem, like_train, own_problem
from bise.jobs.bench_rows import Block, metered, row, vanilla_row
from bise.jobs.bench_table import table_of
from bise.jobs.python_sources import device_named
from bise.methods.rivals.listed import METHODS, methods_named
from bise.methods.shared.interface import Method, Setting, Tally
from bise.methods.shared.stages import train_stage
from bise.network.twin import duplicate
from bise.reporting.bench_words import text_of
from bise.reporting.writing import add_report
from bise.runs.folder import Run


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What came of a comparison: every row, and the table over seeds."""

    summary: Mapping[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One for each data set, seed and method."""
        return list(self.summary["rows"])

    @property
    def table(self) -> list[dict[str, Any]]:
        """One line for each data set and method: means over seeds, and the difference from the reference."""
        return list(self.summary["table"])

    def __str__(self) -> str:
        return text_of(self.summary)


def bench(
    model: Callable[[], nn.Module],
    train: Any,
    *,
    val: Any = None,
    test: Any,
    methods: str | Sequence[str | Method | Callable[..., nn.Module]] = "all",
    seeds: int | Sequence[int] = 2,
    vanilla: nn.Module | None = None,
    config: TrainConfig | None = None,
    finetune: TrainConfig | None = None,
    select: str = "unbiased-val",
    settings: int = 1,
    against: str = "",
    device: str = "auto",
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Compare methods on one's own model and data, `model` being a function that returns a fresh one.

    Args:
        model: A function without arguments that returns a fresh, untrained network.
        train: A data set or DataLoader that yields (x, y, b).
        val: What epochs and settings are selected on, unbiased unless `select` says otherwise; None takes last epochs.
        test: What all methods are audited on.
        methods: "all", names with commas, or a list of names, `Method`s and functions (vanilla model, train, val) ->
            model.
        seeds: How many, or which.
        vanilla: A trained model that methods of trained weights start from; None trains one for each seed.
        config: How a network is trained anew; None is a default budget.
        finetune: How trained weights are trained on; None follows `config`.
        select: "unbiased-val", "biased-val" or "last": how epochs are selected, for all methods alike.
        settings: How many settings of each method are tried on val.
        against: The method that others are paired with; "" is the first one.
        device: "auto", "cpu", "cuda" or "cuda:1".
        out: A run folder, with a page; None writes nothing.
        resume: Go on in `out` after a stop.
        progress: Called with (label, done, total); `bise.Bars()` shows bars.

    Returns:
        The comparison: `.rows` by data set, seed and method, `.table` with means over seeds; it prints as a table.

    Raises:
        BadInput: A method, a setting or the data can't be worked with; a method that can't run is skipped instead,
            with its reason.

    Example:
        >>> short = bise.TrainConfig(epochs=2, lr=0.05)
        >>> found = bise.bench(make_model, train, val=val, test=test, methods="erm,dfr", seeds=1, config=short)
        >>> [line["method"] for line in found.table]
        ['vanilla', 'erm', 'dfr']
    """
    if isinstance(model, nn.Module):
        raise BadInput(f"model is a {type(model).__name__}; give a function that returns a fresh one each time")
    parts = {name: unloaded(part) for name, part in (("train", train), ("val", val), ("test", test))}
    problem = own_problem("own", model, parts, train=config or OWN, finetune=finetune, vanilla=vanilla)
    plan = Plan(
        problems=[problem],
        methods=methods_named(methods) if isinstance(methods, str) else [_method(one) for one in methods],
        seeds=seed_list(seeds),
        select=select,
        settings=settings,
        against=against,
        device=device_named(device),
    )
    return Comparison(summary=compare(plan, out, resume=resume, progress=progress))


def seed_list(seeds: int | Sequence[int]) -> list[int]:
    """The first so many seeds, or those that are given."""
    return list(range(seeds)) if isinstance(seeds, int) else list(seeds)


def _method(given: str | Method | Callable[..., nn.Module]) -> Method:
    if isinstance(given, Method):
        return given
    if isinstance(given, str):
        (found,) = methods_named(given)
        return found
    if not callable(given):
        raise BadInput(f"method {given!r} is no name, no Method and no function; name one of {', '.join(METHODS)}")
    function = given
    name = re.sub(r"\W+", "", getattr(given, "__name__", type(given).__name__)) or "own"
    if name in METHODS:
        name = f"own-{name}"
    return Method(
        name=name, run=lambda start, train, val, config, setting: function(start, train, val), config=None,
        starts="vanilla",
    )  # fmt: skip


def compare(
    plan: Plan,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Every row of the plan, and what follows from them; `about` is noted in the run's configuration."""
    if out is None:
        return _rows(plan, None, progress)
    with Run(out, plan.as_config() | dict(about or {}), job="bench", resume=resume, every=plan.every) as run:
        if run.finished is not None:
            return run.finished
        summary = _rows(plan, run, progress)
        run.finish(summary)
        add_report(run.folder)
        return summary


def _rows(plan: Plan, run: Run | None, progress: Progress | None) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for problem in plan.problems:
        for seed in plan.seeds:
            rows += SeedRows(plan, problem, seed, run, progress, done=len(rows)).all()
    if not any("figures" in one for one in rows):
        raise BadInput(f"no method could run: {rows[0].get('skipped') or rows[0].get('failed')}")
    return {
        "bench": {
            "select": plan.select,
            "settings": plan.settings,
            "seeds": list(plan.seeds),
            "against": plan.against or plan.methods[0].name,
            "device": str(plan.device),
        },
        "rows": rows,
        "table": table_of(rows, plan.against or plan.methods[0].name),
    }


class SeedRows:
    """The rows of one data set and seed; data and the vanilla model are there once a row asks for them."""

    def __init__(
        self, plan: Plan, problem: Problem, seed: int, run: Run | None, progress: Progress | None, *, done: int
    ) -> None:
        self.plan, self.problem, self.seed, self.run, self.progress = plan, problem, seed, run, progress
        self.done = done
        self.block: Block | None = None
        self.refused = ""
        """Why there can be no block."""
        self.about: dict[str, Any] = {}
        """The vanilla model's row."""

    def all(self) -> list[dict[str, Any]]:
        self._tell(0)
        found = [self._once("vanilla", self.vanilla)]
        self._tell(1)
        for number, method in enumerate(self.plan.methods, 2):
            found.append(self._once(method.name, lambda method=method: self.row(method)))  # type: ignore[misc]
            self._tell(number)
        return found

    def _tell(self, number: int) -> None:
        if self.progress is not None:
            self.progress("comparing", self.done + number, self.plan.rows)

    def _once(self, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        return make() if self.run is None else self.run.once(self._part(name), make)

    def _part(self, name: str) -> str:
        return re.sub(r"[^\w.-]+", "_", f"{self.problem.name}-{self.seed}-{name}")

    def vanilla(self) -> dict[str, Any]:
        """The row of the model that others start from."""
        if self._ready() is None:
            return {"method": "vanilla", "dataset": self.problem.name, "seed": self.seed, "skipped": self.refused}
        return self.about

    def row(self, method: Method) -> dict[str, Any]:
        """The row of a method, done now."""
        block = self._ready()
        if block is None:
            return {"method": method.name, "dataset": self.problem.name, "seed": self.seed, "skipped": self.refused}
        if self.run is None:
            return row(method, block, settings=self.plan.settings)
        states = self.run.states / f"{self._part(method.name)}.states"
        whole = not states.exists()
        kept = replace(block.setting, states=states, key=f"{self.run.key}/{self._part(method.name)}")
        found = row(method, replace(block, setting=kept), settings=self.plan.settings, whole=whole)
        remove_folder(states)
        return found

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
        """The block with the model that others start from, the last epoch of a plain training, and its row."""
        if self.problem.vanilla is not None:
            self.about = vanilla_row(block, None, 0)
            return block
        tally, part = Tally(), self._part("vanilla")
        states = None if self.run is None else self.run.states / f"{part}.states"
        key = "" if self.run is None else f"{self.run.key}/{part}"
        whole = states is None or not states.exists()
        setting = replace(block.setting, tally=tally, states=states, key=key)
        with metered(setting.device) as meter:
            fresh = self.problem.make(self.seed).to(setting.device)
            how: dict[str, Any] = {"part": "vanilla", "select": False, "need_bias": False}
            model = train_stage(fresh, block.train, None, setting, **how)
        block = replace(block, vanilla=model)
        self.about = vanilla_row(block, meter if whole else None, tally.samples)
        return block

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
        if self.run is None:
            return
        now = hashes(identities(parts))
        then = self.run.once(self._part("data"), lambda: dict(now))
        if {name: then.get(name) for name in now} != now:
            raise _Changed(
                f"the data of {self.problem.name} changed since {self.run.folder} was begun, so that its rows couldn't"
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
