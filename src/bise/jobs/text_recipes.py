"""Recipes of our own for text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bise.engine.config import TrainConfig
from bise.extraction.config import GAMMA_AND_E
from bise.jobs.paper_recipes import preset_letter
from bise.jobs.recipe_class import Recipe, Rho


def biased_madlibs(*, rho: Rho = None, protocol: str | None = None) -> Recipe:
    """A small BERT from scratch by AdamW, for a GPU; the paper has only what all its sets share."""
    adamw: dict[str, Any] = {"optimizer": "adamw", "weight_decay": 1e-4, "batch_size": 128}
    return Recipe(
        name="biased-madlibs",
        data="biased-madlibs",
        rho=0.95 if rho is None else rho,
        protocol=protocol or "held-out",
        architecture="BERT",
        classes=2,
        start="scratch",
        # at 3e-4 and 5e-4 this size had learned only the terms, and no word, after two and three epochs; at 1e-4 it
        # knows the word after four, and in twelve it only learns the noise by heart
        train=TrainConfig(**{**adamw, "epochs": 4, "lr": 1e-4, "batch_size": 32, "schedule": "linear"}),
        extract=preset_letter(protocol, batch_size=128, selection="worst_group"),
        finetune=TrainConfig.paper(lr=1e-4, selection="worst_group", **adamw),
        select="best",
        metric="worst_group",
        shape=_bert_shape(layers=4, width=256),
        # where both are binary, b of a conflicting sample is the other y: removing it there would remove the target
        extract_balanced={**GAMMA_AND_E, "mi": "batch", "selection": "worst_group"},
        finetune_balanced={"epochs": 5, "lr": 1e-4, "selection": "worst_group", **adamw},
        student="every other layer",
    )


def biased_madlibs_small(*, rho: Rho = None, protocol: str | None = None) -> Recipe:
    """The same with two layers, 64 wide, for two cores: minutes."""
    large = biased_madlibs(rho=rho, protocol=protocol)
    return replace(
        large,
        name="biased-madlibs-small",
        train=replace(large.train, epochs=12, lr=1e-3, batch_size=128),
        shape=_bert_shape(layers=2, width=64),
    )


def _bert_shape(*, layers: int, width: int) -> dict[str, int]:
    """As in BERT-base: heads of 64 or less, feed-forwards four times as wide."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": max(2, width // 64),
        "intermediate_size": 4 * width,
    }
