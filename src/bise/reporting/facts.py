"""What a run folder says, read once and put into the words of the page."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bise.base.errors import BadInput
from bise.base.files import read_lines, read_tensors
from bise.base.plain import check_plain
from bise.runs.older import rows_today, summary_today
from bise.runs.schema import read

MODELS = {
    "vanilla": "before",
    "subnetwork": "subnetwork",
    "refitted": "refitted",
    "finetuned": "finetuned",
    "dense_finetuned": "dense control",
}
"""The networks of a summary, and what the page calls them."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A run as the page sees it; what a job didn't make is empty."""

    folder: str
    place: str
    """Where it lies, as a command line names it: below the working folder, or from the root."""
    summary: dict[str, Any]
    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    thresholds: dict[str, Any]
    samples: dict[str, Any]
    scores: dict[str, list[float]]
    masks: dict[str, list[bool]]
    finetune: dict[str, Any] = field(default_factory=dict)
    """finetune.json: what the finetuning was given."""
    refit: dict[str, Any] = field(default_factory=dict)
    """refit.json: what the refit was given."""

    @property
    def models(self) -> dict[str, dict[str, Any]]:
        """The networks that were audited, by their names in the summary."""
        return {name: self.summary[name] for name in MODELS if "unbiased" in (self.summary.get(name) or {})}

    def called(self, name: str) -> str:
        """What the page calls a network; a model that stands alone is no "before"."""
        return "model" if list(self.models) == ["vanilla"] else MODELS[name]

    @property
    def data(self) -> dict[str, Any]:
        found = self.summary.get("data")
        return found if isinstance(found, dict) else {}

    @property
    def target(self) -> str:
        return str(self.data.get("target") or "target")

    @property
    def biases(self) -> list[str]:
        named = [str(name) for name in self.data.get("biases") or []]
        if named:
            return named
        rho = self.data.get("rho", self.summary.get("rho"))
        count = len(rho) if isinstance(rho, list) else 1
        return ["bias"] if count == 1 else [f"bias {k + 1}" for k in range(count)]

    @property
    def bias(self) -> str:
        return " and ".join(self.biases)

    @property
    def misleads(self) -> str:
        """Said of conflicting samples: one bias at least is not the aligned one."""
        return f"{self.bias} misleads" if len(self.biases) == 1 else "a bias misleads"

    @property
    def helps(self) -> str:
        """Said of aligned samples: every bias is the aligned one."""
        return f"{self.bias} helps" if len(self.biases) == 1 else "every bias helps"

    def class_name(self, y: int) -> str:
        return _named(self.data.get("class_names") or [], y)

    def bias_name(self, k: int, b: int) -> str:
        names = self.data.get("bias_names") or []
        return _named(names[k] if k < len(names) else [], b)

    @property
    def shrunk(self) -> dict[str, Any]:
        """Sizes of the shrunk network, of the subnetwork or of one made from it: the mask is the same."""
        found = self._shrunk_networks(of_the_mask=True)
        timed = [figures for figures in found if "latency_by_batch" in figures]
        return dict((timed or found or [{}])[0])

    @property
    def files(self) -> dict[str, dict[str, Any]]:
        """{exported file: how it compares}, of all networks."""
        parts = [*self._shrunk_networks(), *self._shrunk_networks("dense_finetuned")]
        return {name: figures for part in parts for name, figures in part.get("files", {}).items()}

    def _shrunk_networks(self, *names: str, of_the_mask: bool = False) -> list[dict[str, Any]]:
        """Their figures; `of_the_mask` leaves out a network that was cut at another ζ than the run's."""
        parts = [self.summary.get(name) or {} for name in names or ("subnetwork", "refitted", "finetuned")]
        return [part["shrunk"] for part in parts if part.get("shrunk") and not (of_the_mask and "zeta" in part)]

    @property
    def fit(self) -> dict[str, Any]:
        """What the refit of the last layer found; empty where there was none."""
        return dict((self.summary.get("refitted") or {}).get("fit") or {})

    @property
    def weights_kept(self) -> bool:
        """Whether not one weight or statistic of the model is another one in the subnetwork."""
        weights = self.summary.get("weights") or {}
        frozen = (self.config.get("extract") or {}).get("bn", "frozen") == "frozen"
        return frozen and "before" in weights and weights.get("before") == weights.get("after")


def place_of(path: Path) -> str:
    """A file or folder as a shell here takes it."""
    whole, here = path.resolve(), Path.cwd().resolve()
    return shlex.quote(str(whole.relative_to(here) if whole.is_relative_to(here) else whole))


def read_facts(folder: Path) -> Facts:
    """Everything that the page shows; only config and summary have to be there."""
    if not (folder / "config.json").is_file():
        raise BadInput(f"{folder} holds no config.json; name a run folder that bise wrote")
    check_plain(folder)
    config = read(folder / "config.json")
    if not (folder / "summary.json").is_file():
        raise BadInput(
            f"{folder} holds no summary.json, so its run isn't finished; let it finish, or go on with resume=True"
        )
    tensors: dict[str, Any] = {}
    sites: list[str] = []
    if (folder / "subnetwork" / "subnetwork.json").is_file():
        tensors = read_tensors(folder / "subnetwork" / "subnetwork.safetensors")
        listed = read(folder / "subnetwork" / "subnetwork.json").get("sites") or []
        sites = [site["name"] for site in listed if f"masks.{site['name']}" in tensors]  # in the network's order
    return Facts(
        folder=folder.name or str(folder),
        place=place_of(folder),
        summary=summary_today(config, read(folder / "summary.json")),
        config=config,
        finetune=_optional(folder / "finetune.json"),
        refit=_optional(folder / "refit.json"),
        metrics=rows_today(config, _rows(folder / "metrics.jsonl")),
        thresholds=_optional(folder / "thresholds.json"),
        samples=_optional(folder / "samples.json"),
        scores={name: tensors[f"scores.{name}"].tolist() for name in sites},
        masks={name: tensors[f"masks.{name}"].tolist() for name in sites},
    )


def _optional(path: Path) -> dict[str, Any]:
    return read(path) if path.is_file() else {}


def _rows(path: Path) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl; a last line that a stopped job left half-written is passed over."""
    rows = []
    try:
        lines = read_lines(path)
    except OSError as error:
        raise BadInput(f"{path} can't be read ({error}); take back what was edited") from error
    for line in lines:
        try:
            row = json.loads(line.decode(errors="replace"))
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _named(names: list[Any], number: int) -> str:
    return str(names[number]) if number < len(names) else str(number)
