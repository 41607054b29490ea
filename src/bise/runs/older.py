"""What earlier versions laid out otherwise in a run folder, and how it is read today; the folder stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bise.base.errors import BadInput
from bise.runs.schema import read

PARTS = {"finetune": "finetuned", "dense": "dense_finetuned"}
"""{a part in the log of an earlier demo: its name today}"""


def is_older_demo(config: Mapping[str, Any]) -> bool:
    """Whether it is of a demo that had its finetuning in config.json, and didn't keep the dense control."""
    return "finetune" in config


def check_not_an_older_demo(folder: Path) -> None:
    """Refuse to finetune one: its files to deploy are of the network that it finetuned itself."""
    if is_older_demo(read(folder / "config.json")):
        raise BadInput(
            f"{folder} is a demo of an earlier version, which keeps its finetuning as it is; finetune a run of its own:"
            f" bise extract {folder} --out FOLDER first"
        )


def summary_today(config: Mapping[str, Any], summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary as today's demo writes it: with its finetuning's settings, and without the test set's size."""
    if not summary or not is_older_demo(config):
        return dict(summary)
    data = {key: value for key, value in summary.get("data", {}).items() if key != "test"}
    return {**summary, "data": data, "finetune": summary.get("finetune", config["finetune"])}


def rows_today(config: Mapping[str, Any], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The log as today's demo would write it: each part by the name of the network that it made."""
    if not is_older_demo(config):
        return rows
    return [{**row, "job": PARTS.get(str(row.get("job")), row.get("job"))} for row in rows]
