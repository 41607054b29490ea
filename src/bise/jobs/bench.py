"""`bise bench`: methods × data sets × seeds under one protocol, row by row, in a run folder or in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from bise.base.errors import BadInput
from bise.base.plain import remove_folder
from bise.data.core.contract import Progress, unloaded
from bise.engine.config import TrainConfig
from bise.jobs.bench_plan import Plan
from bise.jobs.bench_problems import OWN, own_problem
from bise.jobs.bench_table import table_of
from bise.jobs.bench_work import Elsewhere, Rows, tasks_of
from bise.jobs.engines import results
from bise.jobs.python_sources import device_named
from bise.methods.rivals.listed import METHODS, methods_named
from bise.methods.shared.interface import Method
from bise.reporting.bench_words import text_of
from bise.reporting.writing import add_report
from bise.runs.folder import Run

Arrived = Callable[[Mapping[str, Any]], None]
"""Told of a row."""


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
    elsewhere: Elsewhere | None = None,
    arrived: Arrived = lambda row: None,
) -> dict[str, Any]:
    """Every row of the plan, and what follows from them; `about` is noted in the run's configuration.

    `arrived` is told of each row as soon as it is there. A comparison that is done `elsewhere` needs a run folder.
    """
    if out is None:
        return _summary(plan, None, progress, elsewhere, arrived)
    with Run(out, plan.as_config() | dict(about or {}), job="bench", resume=resume, every=plan.every) as run:
        if run.finished is not None:
            return run.finished
        summary = _summary(plan, run, progress, elsewhere, arrived)
        run.finish(summary)
        add_report(run.folder)
        return summary


def _summary(
    plan: Plan, run: Run | None, progress: Progress | None, elsewhere: Elsewhere | None, arrived: Arrived
) -> dict[str, Any]:
    rows = _rows(plan, run, progress, elsewhere, arrived)
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


def _rows(
    plan: Plan, run: Run | None, progress: Progress | None, elsewhere: Elsewhere | None, arrived: Arrived
) -> list[dict[str, Any]]:
    """Those that the run holds already, and the others as they come."""
    states = None if run is None else run.kept
    found: dict[str, dict[str, Any]] = {}

    def keep(key: str, row: dict[str, Any]) -> None:
        found[key] = row if states is None else states.once(key, lambda: row)
        if states is not None and row["method"] != "vanilla":  # whose weights the others begin with
            remove_folder(states.of(key))
        arrived(found[key])
        if progress is not None:
            progress("comparing", len(found), plan.rows)

    tasks = tasks_of(plan)
    for task in tasks:
        if states is not None and states.has(task.key):
            keep(task.key, states.once(task.key, dict))
    missing = [task for task in tasks if task.key not in found]
    if progress is not None:
        progress("comparing", len(found), plan.rows)
    make = partial(Rows, partial(_itself, plan), states, progress)
    if elsewhere is not None:
        make = partial(Rows, elsewhere.plan, states, alone=False)
    with closing(results(make, missing, elsewhere.cluster if elsewhere else None)) as stream:
        for key, row in stream:
            keep(key, row)
    return [found[task.key] for task in tasks]


def _itself(plan: Plan) -> Plan:
    return plan
