"""How a training set's labels were numbered and its features made, so that other files can be read alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bise.base.errors import BadInput
from bise.data.core.naming import LabelNames
from bise.data.own.features import CategoryColumn, Encoder, NumberColumn


@dataclass(frozen=True, kw_only=True)
class Coding:
    names: LabelNames
    encoder: Encoder | None = None
    """None where inputs are pictures or sentences."""

    def labels_of(self, target: str | None, biases: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """The labels of the target and of each of `biases`, which stand for the training set's in their order.

        A target of None has no name of its own.
        """
        if len(biases) != len(self.names.biases):
            own = ", ".join(map(repr, self.names.biases)) or "none"
            raise BadInput(
                f"{len(biases)} biases are named, and the training data's were {own}; name as many, in their order"
            )
        self.names.check_places((target or self.names.target, *biases), "the file")
        return self.names.labels

    def features(self, what: object) -> Encoder:
        """The encoder, where `what` is to be read as features."""
        if self.encoder is None:
            raise BadInput(
                f"{what} is to be read as features, and the training data keep no way how; name the column of"
                " pictures or sentences, or extract anew if an earlier version made the run"
            )
        return self.encoder

    def as_facts(self) -> dict[str, Any]:
        """As JSON; the names are written by whoever writes the cells."""
        return {} if self.encoder is None else {"features": [asdict(column) for column in self.encoder.columns]}

    @staticmethod
    def of_facts(facts: Mapping[str, Any]) -> Coding | None:
        """From what a run keeps of its training data; None where its labels had no names."""
        if "class_names" not in facts:
            return None
        columns = [
            CategoryColumn(name=column["name"], categories=tuple(column["categories"]))
            if "categories" in column
            else NumberColumn(**column)
            for column in facts.get("features", ())
        ]
        return Coding(
            names=LabelNames(
                target=facts["target"],
                biases=tuple(facts["biases"]),
                classes=tuple(facts["class_names"]),
                bias_classes=tuple(tuple(names) for names in facts["bias_names"]),
            ),
            encoder=Encoder(tuple(columns)) if columns else None,
        )


def known_labels(coding: Coding | None, target: str | None, biases: Sequence[str]) -> tuple[Sequence[str] | None, ...]:
    """The labels of the target and of each bias as `coding` has them, and None for each where there is none."""
    return (None,) * (1 + len(biases)) if coding is None else coding.labels_of(target, biases)
