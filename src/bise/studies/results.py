"""Files of results: one for each study, a row for each job, written as soon as it is done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from bise.base.errors import BadInput
from bise.base.files import SCHEMA, finite, read_json, write_bytes
from bise.studies.job import Job, config_hash
from bise.studies.origin import origin
from bise.studies.scale import Scale

Row = dict[str, Any]


def read_rows(path: Path, scale: str) -> dict[tuple[str, str], Row]:
    """{(label, key): row} of a results file; none where there is no file yet."""
    if not path.exists():
        return {}
    content = read_json(path)
    if content.get("scale") != scale:
        raise BadInput(
            f"{path} holds results of scale {content.get('scale')!r}, and not {scale!r}; choose another folder"
            " with --results"
        )
    return {(row["label"], config_hash(row["config"])): row for row in content["rows"]}


def known_rows(folder: Path, scale: str) -> dict[str, Row]:
    """{key: row} over every study's file in `folder`: what one study has measured, another need not."""
    out: dict[str, Row] = {}
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            content = read_json(path)
        except BadInput:
            continue  # some other file
        if content.get("scale") == scale and _is_study(content):
            out |= {key: row for (_, key), row in read_rows(path, scale).items()}
    return out


def write_rows(path: Path, study: str, scale: Scale, rows: Iterable[Row]) -> None:
    """The whole file anew, in one step: a line for each row, so that changes can be read."""
    head = {"schema": SCHEMA, "study": study, "scale": scale.name}  # each row tells its own device
    text = json.dumps(head, indent=2, ensure_ascii=False)[:-2] + ',\n  "rows": [\n'
    lines = (json.dumps(finite(_short(row)), ensure_ascii=False, allow_nan=False) for row in rows)
    write_bytes(path, (text + ",\n".join(f"    {line}" for line in lines) + "\n  ]\n}\n").encode())


def row_of(job: Job, config: Mapping[str, Any], found: Mapping[str, Any], device: torch.device) -> Row:
    """A row: what was done, where and by which commit, then what came out."""
    threads = torch.get_num_threads()
    where = f"CPU, {threads} thread{'s' * (threads > 1)}"
    if device.type == "cuda":
        where = torch.cuda.get_device_name(device)
    return {
        "label": job.label,
        "config_hash": config_hash(config),
        "kind": job.kind,
        "recipe": job.recipe,
        "rho": config.get("rho"),
        "protocol": config.get("protocol"),
        "seed": job.seed,
        "device": f"{where}, torch {torch.__version__.split('+')[0]}",
        **origin(),
        **found,
        "config": dict(config),
    }


def relabelled(row: Row, label: str) -> Row:
    return row | {"label": label}


def _is_study(content: Mapping[str, Any]) -> bool:
    rows = content.get("rows")
    return isinstance(rows, list) and all(isinstance(row, dict) and "config" in row for row in rows)


def _short(value: Any) -> Any:
    """Six digits of every number: what is beyond them is noise."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: item if key == "config" else _short(item) for key, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, (list, tuple)) else value
