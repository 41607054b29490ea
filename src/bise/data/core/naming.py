"""What the target, the biases and their labels are called, so that tables can say it in people's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bise.base.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class LabelNames:
    """Names of the target and of each bias, and of the labels of each."""

    target: str
    biases: tuple[str, ...]
    classes: tuple[str, ...]
    bias_classes: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if len(self.biases) != len(self.bias_classes):
            raise BadInput(
                f"there are {len(self.biases)} names of biases, and labels' names for {len(self.bias_classes)};"
                " give both for each bias"
            )
        for what, names in zip(self.columns, self.labels, strict=True):
            if len(set(names)) < len(names):
                raise BadInput(f"two labels of {what} have the same name; give each its own")

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the target and of each bias."""
        return self.target, *self.biases

    @property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """The names of the labels of each of them."""
        return self.classes, *self.bias_classes

    def check_places(self, columns: Sequence[str], what: str) -> None:
        """Refuse columns of which one stands in another's place, as with the biases in another order."""
        for place, name in enumerate(columns):
            if name in self.columns and self.columns.index(name) != place:
                raise BadInput(
                    f"{what} has {' and '.join(map(repr, columns))} for the training data's"
                    f" {' and '.join(map(repr, self.columns))}, target first; name them in that order"
                )

    def check_same(self, other: LabelNames, what: str) -> None:
        """Refuse other data whose columns stand in another order, or whose labels are numbered otherwise."""
        self.check_places(other.columns, what)
        for name, mine, theirs in zip(self.columns, self.labels, other.labels, strict=True):
            for number, (here, there) in enumerate(zip(mine, theirs, strict=False)):
                if here != there:
                    raise BadInput(
                        f"{what} numbers the labels of {name} otherwise than train: {number} is {there!r} in {what} and"
                        f" {here!r} in train; read {what} with like=train"
                    )

    def check_sizes(self, classes: int, bias_classes: Sequence[int]) -> None:
        """Refuse names that are not as many as there are labels."""
        sizes = (classes, *bias_classes)
        if len(sizes) != len(self.labels):
            raise BadInput(f"there are names for {len(self.labels) - 1} biases, and {len(bias_classes)} biases")
        for what, names, size in zip(self.columns, self.labels, sizes, strict=True):
            if len(names) != size:
                raise BadInput(f"{what} has {len(names)} names for {size} labels; give one for each")


def numbered(biases: int) -> tuple[str, ...]:
    """What the target and the biases are called where they have no names."""
    return ("y", "b") if biases == 1 else ("y", *(f"b[{k}]" for k in range(biases)))


def yes_or_no(target: str, bias: str) -> LabelNames:
    """For two attributes that a sample has (1) or has not (0)."""
    return LabelNames(target=target, biases=(bias,), classes=("no", "yes"), bias_classes=(("no", "yes"),))


DIGITS = tuple(str(digit) for digit in range(10))


def digit_and(*biases: str) -> LabelNames:
    """For digits with ten labels of each bias, which have no names."""
    return LabelNames(target="digit", biases=biases, classes=DIGITS, bias_classes=(DIGITS,) * len(biases))
