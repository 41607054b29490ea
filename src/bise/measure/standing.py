"""Whether a model knows anything: its answers against guessing, before any figure of fairness is believed.

A model that knows nothing treats all groups alike, so that each gap between groups is 0: so the question comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bise.measure.checks import check_boolean, check_labels, check_vectors
from bise.measure.groups import Estimate, mean_of, proportion, z_apart

ABOVE, HARDLY, BIASED = "above chance", "hardly above chance", "goes by the bias"
CHANCE, BELOW, CONSTANT = "at chance", "below chance", "constant"
IGNORANT = (CHANCE, BELOW, CONSTANT)
"""States in which a gap between groups says nothing about fairness."""
REACH = 1 / 8
"""Of the way from guessing to perfect, a model that has come less far is hardly better than guessing."""
CAUSES = (
    "the inputs are not scaled as in training, by mean and standard deviation",
    "the classes have another order than the model’s",
    "the trained weights are not loaded",
    "the inputs have another size than in training",
)
"""Of such figures where nobody expected them, the likeliest first."""
REASON = "a model that knows nothing treats all groups alike, so its fairness figures say nothing"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a model's answers stand against guessing."""

    state: str
    """One of the six above."""
    mean_of_classes: float
    """The mean over classes of the share that is answered rightly."""
    interval: tuple[float, float]
    """Its 95 % interval."""
    guessing: float
    """What guessing makes of it, 1 / classes."""
    classes: int
    """Those that have samples."""
    answer: str | None
    """The class that every sample gets, where it is one and the same."""
    aligned: float | None
    """The same mean where the bias helps, over the classes that have samples of both kinds …"""
    conflicting: float | None
    """… and where it misleads."""
    says: str = ""
    """All that in a sentence, with the likely causes; empty for a model above chance."""

    @property
    def ignorant(self) -> bool:
        """Whether its fairness figures say nothing."""
        return self.state in IGNORANT


def standing(
    y: Tensor,
    predicted: Tensor,
    *,
    names: Mapping[int, str],
    aligned: Tensor,
    conflicting: Tensor,
    uneven: bool = False,
) -> Standing | None:
    """Judge answers ŷ [N] by the targets y [N]; `aligned` and `conflicting` [N] (bool) say where the bias helps.

    `uneven` says that samples of one class surely get other answers where their bias differs.

    Taken is the mean over classes of P(ŷ = y | y), since answers that don't depend on the input get exactly 1/|Y| of
    it, whatever the classes' shares. The accuracy over samples would call 95 % good where 95 % are of one class, and
    the majority's share would call a good model bad that finds rare classes. "At chance" is where the 95 % interval of
    this mean holds 1/|Y|, "below" where it ends before. "Constant" is another question, and needs no statistics: one
    class is the answer to every sample. A model near chance that is right more often where the bias helps (the 95 %
    interval of the difference is above 0), or whose answers are `uneven`, goes by the bias: it doesn't treat all groups
    alike, though which bias helps may be guessed wrongly. None where there is one class.
    """
    check_labels(y=y, predicted=predicted)
    check_boolean(aligned=aligned, conflicting=conflicting)
    check_vectors(y=y, predicted=predicted, aligned=aligned, conflicting=conflicting)
    classes = torch.unique(y).tolist()
    if len(classes) < 2:
        return None
    right = predicted == y
    found = mean_of([_share(right, y == one) for one in classes])
    guessing = 1 / len(classes)
    both = [one for one in classes if (aligned & (y == one)).any() and (conflicting & (y == one)).any()]
    helps, misleads = (
        mean_of([_share(right, part & (y == one)) for one in both]) if both else None for part in (aligned, conflicting)
    )
    constant = bool((predicted == predicted[0]).all())
    made = Standing(
        state=CONSTANT if constant else _state(found, guessing, helps, misleads, uneven),
        mean_of_classes=found.value,
        interval=found.interval,
        guessing=guessing,
        classes=len(classes),
        answer=names.get(int(predicted[0]), str(int(predicted[0]))) if constant else None,
        aligned=None if helps is None else helps.value,
        conflicting=None if misleads is None else misleads.value,
    )
    return made if made.state == ABOVE else Standing(**{**vars(made), "says": explained("the model", vars(made))})


def _share(right: Tensor, part: Tensor) -> Estimate:
    return proportion(int((right & part).sum()), int(part.sum()))


def _state(found: Estimate, guessing: float, helps: Estimate | None, misleads: Estimate | None, uneven: bool) -> str:
    low, high = found.interval
    if low > guessing and found.value >= guessing + REACH * (1 - guessing):
        return ABOVE
    if uneven or (helps is not None and misleads is not None and z_apart(helps, misleads)):
        return BIASED
    if low > guessing:
        return HARDLY
    return BELOW if high < guessing else CHANCE


def told(subject: str, found: Mapping[str, Any], bias: str = "the bias") -> str:
    """The standing in a clause, from the fields of one, as JSON has them too."""
    low, high = found["interval"]
    mean = f"{_percent(found['mean_of_classes'])} [{100 * low:.1f}, {100 * high:.1f}]"
    right = (
        f"right on {mean} as the mean of {found['classes']} classes, and guessing makes {_percent(found['guessing'])}"
    )
    state = found["state"]
    if state == CONSTANT:
        return (
            f"{subject} gives every sample one class, “{found['answer']}”: it is right on"
            f" {_percent(found['mean_of_classes'])} as the mean of {found['classes']} classes, as any such answer is"
        )
    if state == BIASED:
        helps, misleads = found["aligned"], found["conflicting"]
        how = f"samples of one class get other answers where {bias} differs"
        if helps is not None and misleads is not None and helps > misleads:
            how = f"it is right on {_percent(helps)} where {bias} helps and on {_percent(misleads)} where it misleads"
        return f"{subject} goes by {bias} more than by the target: {how}; in all, it is {right}"
    words = {
        CHANCE: "is at chance: its answers can’t be told from guessing",
        BELOW: "does worse than guessing",
        HARDLY: "is hardly better than guessing",
    }
    return f"{subject} {words[state]}; it is {right}" if state in words else f"{subject} is {right}"


def explained(subject: str, found: Mapping[str, Any], bias: str = "the bias") -> str:
    """The same with the reason why no figure of fairness counts, and with what to look at."""
    said = told(subject, found, bias)
    if found["state"] in IGNORANT:
        said += f"; {REASON}"
    return f"{said}. {likely(found['state'])}"


def likely(state: str, of: Mapping[str, str] | None = None) -> str:
    """What to look at, in its order; `of` adds to each cause what mends it.

    A model that goes by the bias may be just what it was taken for.
    """
    lead = (
        "If nobody expected that, look at these, in this order" if state == BIASED else "Likely causes, in this order"
    )
    return f"{lead}: {numbered(tuple(f'{one} ({of[one]})' if of else one for one in causes(state)))}"


def causes(state: str) -> tuple[str, ...]:
    """The likely causes, first the likeliest: what does worse than guessing has learned something in another order."""
    return (CAUSES[1], CAUSES[0], *CAUSES[2:]) if state == BELOW else CAUSES


def numbered(parts: tuple[str, ...]) -> str:
    return ", ".join(f"({i}) {part}" for i, part in enumerate(parts, 1))


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
