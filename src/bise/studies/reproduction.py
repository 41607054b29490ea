"""Carries out studies: what is known already is not done again, and each row is on disk before the next job begins."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from bise.base.errors import BadInput, caution
from bise.base.plain import make_folder
from bise.data.core.contract import Progress
from bise.extraction.config import PRESETS
from bise.jobs.python_sources import device_named
from bise.jobs.recipes import Rho, recipe
from bise.jobs.tasks import Cluster
from bise.runs.folder import sole
from bise.studies.job import KINDS, Job, config_hash, configuration
from bise.studies.main_jobs import SIDES
from bise.studies.results import Row, known_rows, read_rows, relabelled, write_rows
from bise.studies.scale import Scale
from bise.studies.study import Study
from bise.studies.work import ON_REQUEST, Place, Task, outcomes


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Which of the studies' jobs to do; None is all."""

    seeds: tuple[int, ...] | None = None
    rho: tuple[Rho, ...] | None = None
    only: tuple[str, ...] | None = None
    """Kinds of jobs."""
    presets: tuple[str, ...] | None = None
    protocol: str | None = None
    """"paper", or "authors" in the studies that have it and all of the others; None or "all" is everything."""
    line: str | None = None
    """What the label of a table's line must contain."""
    minutes: float | None = None
    """No job is begun after so many."""

    def __post_init__(self) -> None:
        odd = next((kind for kind in self.only or () if kind not in KINDS), None)
        if odd is not None:
            raise BadInput(f"--only {odd!r} is unknown; use {', '.join(KINDS)}")
        odd = next((preset for preset in self.presets or () if preset not in PRESETS), None)
        if odd is not None:
            raise BadInput(f"--preset {odd!r} is unknown; use {' or '.join(PRESETS)}")
        if self.protocol not in (None, "all", *SIDES):
            raise BadInput(f"--protocol {self.protocol!r} is unknown; use authors, paper or all")
        if self.minutes is not None and not self.minutes >= 0:
            raise BadInput(f"--minutes {self.minutes:g} must be a number, 0 or more")

    def of(self, study: Study, scale: Scale) -> list[Job]:
        """The study's jobs within the limits."""
        jobs = study.jobs(scale)
        sides = {job.side for job in jobs}
        if self.protocol == "paper" or self.protocol in sides:
            sides = {self.protocol}
        return [job for job in jobs if job.side in sides and self.allow(job)]

    def allow(self, job: Job) -> bool:
        return (
            (self.seeds is None or job.seed in self.seeds)
            and (self.rho is None or job.rho is None or job.rho in self.rho)
            and (self.only is None or job.kind in self.only)
            and (self.presets is None or job.preset in self.presets or job.kind in ("vanilla", "count"))
            and (self.line is None or self.line in job.label)
        )


@dataclass(kw_only=True)
class Planned:
    """A job, and the lines of studies that its row serves."""

    job: Job
    config: dict[str, Any]
    lines: list[tuple[Study, str]] = field(default_factory=list)


def reproduce(
    studies: Sequence[Study],
    scale: Scale,
    *,
    results: Path,
    cache_folder: Path,
    limits: Limits | None = None,
    device: str = "auto",
    weights: str | None = None,
    root: Path | None = None,
    processes: int = 1,
    cluster: Cluster | None = None,
    progress: Progress | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, int]:
    """Do what is missing of the studies; returns how many jobs were done, were known, and are left.

    Several `processes` do jobs at the same time, each with data of its own, or a `cluster` does; seconds are then left
    out of the rows.
    """
    if processes < 1:
        raise BadInput(f"--processes {processes} is no number of processes; give 1 or more")
    if processes > 1 and cluster is not None:
        raise BadInput(f"--processes {processes} is for --engine local; Ray knows how many tasks its machines bear")
    if cluster is not None:  # whose processes work elsewhere
        results, cache_folder = results.resolve(), cache_folder.resolve()
        root = None if root is None else root.resolve()
    with _alone(results, cache_folder):
        return _carry_out(
            studies, scale, results, cache_folder, limits or Limits(), device, weights, root, processes, cluster,
            progress, tell,
        )  # fmt: skip


def _carry_out(
    studies: Sequence[Study],
    scale: Scale,
    results: Path,
    cache_folder: Path,
    limits: Limits,
    device: str,
    weights: str | None,
    root: Path | None,
    processes: int,
    cluster: Cluster | None,
    progress: Progress | None,
    tell: Callable[[str], None],
) -> dict[str, int]:
    device_named(device) if cluster is None else cluster.device(device)  # refused here rather than in each process
    until = None if limits.minutes is None else time.time() + 60 * limits.minutes
    files = {study.name: read_rows(results / f"{study.name}.json", scale.name) for study in studies}
    known = known_rows(results, scale.name)
    starts, roots = _starts(scale, weights), _root(scale, root, cache_folder)
    plan = planned(studies, scale, limits, starts)
    _refuse_unknown(studies, scale, limits)
    if not plan:
        _refuse_empty(studies, scale, limits)

    def keep(key: str) -> None:
        for study, label in plan[key].lines:
            if (label, key) not in files[study.name]:
                files[study.name][label, key] = relabelled(known[key], label)
                write_rows(results / f"{study.name}.json", study.name, scale, files[study.name].values())

    for key in plan:
        if key in known:
            keep(key)
    tasks = [Task(key=key, job=item.job, config=item.config) for key, item in plan.items() if key not in known]
    place = Place(
        scale=scale, cache=cache_folder, device=device, until=until, processes=processes,
        **_sources(tasks, starts, roots),
    )  # fmt: skip
    counts = {"done": 0, "known": len(plan) - len(tasks), "left": 0}
    numbers = {key: number for number, key in enumerate(plan, 1)}
    lacking: dict[str, str] = {}
    with closing(
        outcomes(place, tasks, progress, cluster)
    ) as stream:  # whose processes end with it, whatever happens here
        for found in stream:
            item = plan[found.key]
            if found.row is None:
                counts["left"] += 1
                if found.lacking is not None:
                    lacking[item.job.recipe] = found.lacking
                continue
            counts["done"] += 1
            known[found.key] = found.row
            tell(f"{numbers[found.key]}/{len(plan)} {_name(item.job)}: {found.seconds:.1f} s{_brief(found.row)}")
            keep(found.key)
    if lacking and counts["done"] == counts["known"] == 0:
        raise BadInput(next(iter(lacking.values())))
    for name, why in lacking.items():
        caution(f"{name} is left out: {why}")
    return counts


def _sources(
    tasks: Sequence[Task], starts: Callable[[str], str], roots: Callable[[str, str], Path | None]
) -> dict[str, Any]:
    """Where weights begin and data lie, for the recipes of these tasks."""
    wanted = {(task.job.recipe, task.job.side) for task in tasks if task.job.kind != "count"}
    return {
        "starts": {name: starts(name) for name, _ in wanted},
        "roots": {where: roots(*where) for where in wanted},
    }


def _refuse_unknown(studies: Sequence[Study], scale: Scale, limits: Limits) -> None:
    """Refuse a seed or ρ that none of the studies has, which would be left out unseen."""
    jobs = [job for study in studies for job in study.jobs(scale)]
    for option, wanted, known in (
        ("--seeds", limits.seeds, {job.seed for job in jobs}),
        ("--rho", limits.rho, {job.rho for job in jobs if job.rho is not None}),
    ):
        odd = next((value for value in wanted or () if known and value not in known), None)
        if odd is not None:
            names = ", ".join(study.name for study in studies)
            raise BadInput(
                f"{option} {odd} is none of {names}; theirs are {', '.join(map(str, sorted(known, key=str)))}"
            )


def _refuse_empty(studies: Sequence[Study], scale: Scale, limits: Limits) -> None:
    names = ", ".join(study.name for study in studies)
    labels = dict.fromkeys(job.label for study in studies for job in study.jobs(scale))
    if limits.line is not None and not any(limits.line in label for label in labels):
        some = "; ".join(list(labels)[:6]) + ("; …" if len(labels) > 6 else "")
        raise BadInput(f"--line {limits.line!r} is in no label of {names}; theirs are: {some}")
    raise BadInput(
        f"no job of {names} is within all the limits that are given; leave some out, such as --seeds or --rho"
    )


@contextmanager
def _alone(*folders: Path) -> Iterator[None]:
    """While open, no other process works there: it would write its own rows over ours, each file being written whole.

    A folder that is made for this and stays empty goes again.
    """
    places = sorted({folder.resolve() for folder in folders})
    new = [place for folder in places for place in (folder, *folder.parents) if not place.exists()]
    try:
        with ExitStack() as held:
            for folder in places:
                make_folder(folder)
                held.enter_context(sole(folder))
            yield
    finally:
        for folder in sorted(new, reverse=True):  # the inner ones first
            with suppress(OSError):
                folder.rmdir()


def planned(studies: Sequence[Study], scale: Scale, limits: Limits, starts: Callable[[str], str]) -> dict[str, Planned]:
    """{key: what to do}: each thing once, those on the same data one after the other."""
    found: dict[str, Planned] = {}
    for study in studies:
        for job in limits.of(study, scale):
            config = configuration(job, scale, "" if job.kind == "count" else starts(job.recipe))
            item = found.setdefault(config_hash(config), Planned(job=job, config=config))
            if (study, job.label) not in item.lines:
                item.lines.append((study, job.label))
    order = list(dict.fromkeys(item.job.data for item in found.values()))
    return dict(sorted(found.items(), key=lambda pair: order.index(pair[1].job.data)))


def _starts(scale: Scale, weights: str | None) -> Callable[[str], str]:
    """Where the weights of each recipe's vanilla model begin: as told, as in the paper, or from scratch for a trial."""

    @cache
    def start(name: str) -> str:
        usual = recipe(name).start
        if usual == "scratch" or scale.short:
            return "scratch"
        if weights is not None:
            return weights
        if usual == "imagenet" and not _has_imagenet():
            caution(
                f"ImageNet weights are not in torch's cache, so {name} starts from scratch, and its table says so;"
                " give --weights imagenet to fetch them, or a file",
            )
            return "scratch"
        return usual

    return start


def _has_imagenet() -> bool:
    import torch

    return any((Path(torch.hub.get_dir()) / "checkpoints").glob("resnet18-*.pth"))


def _root(scale: Scale, root: Path | None, cache_folder: Path) -> Callable[[str, str], Path | None]:
    """The folder of each recipe's data; a trial has stand-ins for what can't be had without asking its authors."""

    @cache
    def folder(name: str, side: str) -> Path | None:
        if scale.short and (name, side) in ON_REQUEST:
            from bise.studies.stand_ins import stand_in

            return stand_in(name, cache_folder / "stand-ins")
        return root

    return folder


def _name(job: Job) -> str:
    rho = "" if job.rho is None else f", ρ = {job.rho}"
    return f"{job.recipe}{rho}, protocol {job.protocol or 'paper'}, seed {job.seed}, {job.label}"


def _brief(row: Row) -> str:
    parts = [f"{name.replace('_', ' ')} {100 * row[name]:.1f}" for name in ("accuracy", "worst_group") if name in row]
    return f" ({', '.join(parts)})" if parts else ""
