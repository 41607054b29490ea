"""What a run folder holds, read without trust: what can't be read is noted, and the rest goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from bise.base.errors import BadInput
from bise.base.files import SCHEMA, check_room, read_bytes, read_hashed
from bise.base.plain import check_plain
from bise.runs.older import is_older_demo, rows_today, summary_today
from bise.runs.schema import read


class Missing(Exception):
    """A part of the run that a check needs, and that could not be read."""


@dataclass(kw_only=True)
class SavedSubnetwork:
    """A subnetwork as its folder has it."""

    content: dict[str, Any]
    tensors: dict[str, Tensor]
    sha256: str

    @property
    def units(self) -> dict[str, int]:
        return {site["name"]: site["units"] for site in self.content["sites"]}

    @property
    def open(self) -> int:
        return sum(int(self.tensors[f"masks.{name}"].sum()) for name in self.units)


@dataclass(kw_only=True)
class RunFiles:
    """What could be read of a run, and what was wrong with the rest."""

    folder: Path
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    finetune: dict[str, Any] = field(default_factory=dict)
    refit: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    saved: dict[str, SavedSubnetwork] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    count: int = 0

    @property
    def weights(self) -> dict[str, Any]:
        return self.need(self.summary, "summary.json")["weights"]

    def need(self, content: Any, name: str) -> Any:
        if not content:
            raise Missing(f"{name} can't be read")
        return content

    def subnetworks(self) -> dict[str, SavedSubnetwork]:
        return self.need(self.saved, "the subnetwork's folder")


def read_run(folder: Path) -> RunFiles:
    """Everything that the jobs write, but for the report; a folder without config.json is no run."""
    if not (folder / "config.json").is_file():
        raise BadInput(f"{folder} holds no config.json; name a run folder that bise wrote")
    check_plain(folder)
    run = RunFiles(folder=folder)
    run.config = _json(run, "config.json")
    run.summary = _json(run, "summary.json")
    run.rows = rows_today(run.config, list(_rows(run)))
    others = {
        "finetune.json": "finetune" in run.summary,
        "refit.json": "refit" in run.summary,
        "thresholds.json": False,
        "samples.json": False,
    }
    found = {name: _json(run, name) for name, needed in others.items() if needed or (folder / name).exists()}
    run.finetune, run.refit = found.get("finetune.json", {}), found.get("refit.json", {})
    for name in _expected(run):
        content = _json(run, f"{name}/subnetwork.json")
        path = folder / name / "subnetwork.safetensors"
        try:
            tensors, sha256 = read_hashed(path)
            run.count += 1
        except BadInput as error:
            run.troubles.append(str(error))
            continue
        if content:
            run.saved[name] = SavedSubnetwork(content=content, tensors=tensors, sha256=sha256)
    run.summary = summary_today(run.config, run.summary)  # now that it is known which files are due
    return run


def _expected(run: RunFiles) -> list[str]:
    """The subnetworks that a run says it has, and those that are there."""
    names = ["subnetwork"] if "extract" in run.config else []
    names += ["finetuned", "dense_finetuned"] if "finetune" in run.summary else []
    names += ["finetuned"] if is_older_demo(run.config) else []
    names += ["refitted"] if "refit" in run.summary else []
    known = ("subnetwork", "refitted", "finetuned", "dense_finetuned")
    there = [name for name in known if (run.folder / name).is_dir()]
    return list(dict.fromkeys([*names, *there]))


def _json(run: RunFiles, name: str) -> dict[str, Any]:
    try:
        content = read(run.folder / name)
    except BadInput as error:
        run.troubles.append(str(error))
        return {}
    run.count += 1
    return content


def _rows(run: RunFiles) -> Iterator[dict[str, Any]]:
    path = run.folder / "metrics.jsonl"
    try:
        lines = check_room(read_bytes(path)).decode().splitlines()
        run.count += 1
    except (OSError, ValueError) as error:
        run.troubles.append(f"{path} can't be read ({error})")
        return
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if not isinstance(row["job"], str) or not isinstance(row["epoch"], int) or not 1 <= row["schema"] <= SCHEMA:
                raise ValueError("no job, epoch and schema")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            run.troubles.append(f"{path}, line {number} is no row of a log ({error})")
        else:
            yield row
