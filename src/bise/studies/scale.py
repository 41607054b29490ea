"""Two scales of every study: the paper's settings, and a trial that goes through every part in seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bise.base.errors import BadInput
from bise.extraction.config import ExtractConfig


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large a study's runs are."""

    name: str
    seeds: tuple[int, ...]
    limit: int | None = None
    """Samples of each split; None is all."""
    train: Mapping[str, Any] = field(default_factory=dict)
    finetune: Mapping[str, Any] = field(default_factory=dict)
    short: bool = False
    """Whether extractions are cut short, and long lists of values to their ends."""
    shape: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """{architecture: what is smaller in it}."""

    def extract(self, config: ExtractConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
        """What a short extraction changes; what a study varies is kept, but no larger than a trial bears."""
        if not self.short:
            return {}
        short: dict[str, Any] = {"batch_size": 20, "steps": 2, "head_steps": 2, "lr": 0.1, "baseline": False}
        short["tau_min"] = 0.5 if "tau_min" not in changes else max(0.1, changes["tau_min"])
        short["head_epochs"] = min(2, changes.get("head_epochs", 1))
        short["upsilon"] = min(2, changes.get("upsilon", 1))
        return short

    def compiled(self) -> Scale:
        """The same with torch.compile while vanilla models are trained: finetuning ends before it pays."""
        return replace(self, train={**self.train, "compile": True})

    def some(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """All values, or the first and the last for a trial."""
        return values if not self.short or len(values) < 3 else (values[0], values[-1])


SCALES = {
    "smoke": Scale(
        name="smoke",
        seeds=(0,),
        limit=300,
        train={"epochs": 1, "batch_size": 50, "milestones": ()},
        finetune={"epochs": 1, "batch_size": 50},
        short=True,
        shape={
            "SimpleConvNet": {"widths": (4, 6, 6, 8), "kernel": 3},
            "BERT": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24},
        },
    ),
    "paper": Scale(name="paper", seeds=(0, 1, 2)),
}


def scale_named(name: str) -> Scale:
    if name not in SCALES:
        raise BadInput(f"--scale {name!r} is unknown; use {' or '.join(SCALES)}")
    return SCALES[name]
