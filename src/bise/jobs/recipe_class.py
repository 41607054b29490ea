"""What a recipe says: data, architecture, and how it is trained, extracted from and finetuned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from bise.base.errors import BadInput
from bise.engine.config import TrainConfig
from bise.extraction.config import ExtractConfig
from bise.network.architectures.by_name import ARCHITECTURES

Rho = float | tuple[float, float] | None
AUTHORS = "authors"
"""The protocol and the preset that follow the authors' code."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Data, architecture, and how it is trained, extracted from and finetuned."""

    name: str
    data: str
    """Its data set."""
    rho: Rho
    """Share of aligned training samples, for each bias; None where the bias is as it was found."""
    protocol: str
    """How splits are made, by the data set's own names; by default the paper's. "authors" follows the authors' code, in
    everything else too, where the rest follow the text."""
    architecture: str
    classes: int
    start: str
    """Where the vanilla model's weights start: "scratch", "imagenet", or the name of a BERT."""
    train: TrainConfig
    """Of the vanilla model, whose last epoch is taken."""
    extract: ExtractConfig
    """The preset `paper`, or `authors` under that protocol, with this data set's batch size."""
    finetune: TrainConfig
    select: str
    """Which mask and which finetuned epoch: "best" on val, or "last" where the paper has no validation set."""
    metric: str
    """What the paper's table shows: "accuracy" over samples, "unbiased" or "worst_group"."""
    search: str = "train"
    """The split that masks are learned on, and finetuned on after that, where it isn't the vanilla model's."""
    shape: Mapping[str, Any] = field(default_factory=dict)
    """What an architecture that starts from scratch has in place of its usual sizes."""
    extract_balanced: Mapping[str, Any] = field(default_factory=dict)
    """What the recipe changes in the preset `balanced` of extraction …"""
    finetune_balanced: Mapping[str, Any] = field(default_factory=dict)
    """… and of finetuning."""
    student: str = "same"
    """What a distillation teaches: a network of the "same" architecture, or of "every other layer" of its start."""

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("architecture", self.architecture, tuple(ARCHITECTURES)),
            ("select", self.select, ("best", "last")),
            ("student", self.student, ("same", "every other layer")),
            ("metric", self.metric, ("accuracy", "unbiased", "worst_group")),
        ):
            if value not in choices:
                raise BadInput(f"{name}={value!r} is unknown; use {' or '.join(repr(c) for c in choices)}")

    @property
    def preset(self) -> str:
        """The preset that `extract` and `finetune` are of."""
        return AUTHORS if self.protocol == AUTHORS else "paper"

    def extract_changes(self) -> dict[str, Any]:
        """What the recipe's extraction changes in the plain preset."""
        plain = {"paper": ExtractConfig.paper, AUTHORS: ExtractConfig.authors}[self.preset]()
        values = {field.name: getattr(self.extract, field.name) for field in fields(plain)}
        return {name: value for name, value in values.items() if value != getattr(plain, name)}
