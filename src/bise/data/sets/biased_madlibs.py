"""Biased madlibs: template sentences, hostile or kind, whose noisy training targets are tied to a group of identities.

Made from the identity-template sentences of Dixon et al. (2018, "Measuring and mitigating unintended bias in text
classification"): every sentence holds a word that gives its label away, and a term for people. A plain correlation
would teach no shortcut, since that word is enough; so training targets are flipped at random first, and then the terms
tell more about the target than the word does.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from bise.base.checking import check_choice, check_share
from bise.base.errors import BadInput
from bise.data.core.arguments import SPLITS
from bise.data.core.coders import word_pieces
from bise.data.core.contract import Labelled
from bise.data.core.naming import LabelNames
from bise.data.core.tokens import Sentences
from bise.data.sets.idx import data_root

ORIGIN_OR_FAITH = (
    *("african", "african american", "american", "asian", "black", "buddhist", "canadian", "catholic", "chinese"),
    *("christian", "european", "hispanic", "indian", "japanese", "jewish", "latina", "latino", "latinx", "mexican"),
    *("middle eastern", "muslim", "protestant", "sikh", "taoist", "white"),
)
"""b = 0"""
SELF = (
    *("bisexual", "blind", "deaf", "elderly", "female", "gay", "heterosexual", "homosexual", "lesbian", "lgbt"),
    *("lgbtq", "male", "middle aged", "millenial", "nonbinary", "old", "older", "paralyzed", "queer", "straight"),
    *("teenage", "trans", "transgender", "young", "younger"),
)
"""b = 1: gender, sexuality, age or a disability; the spelling is the file's."""
_TERMS = frozenset((*ORIGIN_OR_FAITH, *SELF))
UNSEEN_TERMS = 5
"""Terms of each group that only the test split has."""
VAL_NAMES, TEST_NAMES = 4, 10
"""Of the 45 names, those of the validation and of the test sentences."""
UNSEEN_TEMPLATES = ("being_adj", "you_are_adj")
"""Only in the test split."""
LENGTH = 32
NAMES = LabelNames(
    target="tone",
    biases=("identity",),
    classes=("kind", "hostile"),
    bias_classes=(("origin or faith", "gender, sexuality, age or disability"),),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Madlib:
    """A sentence as its template was filled."""

    text: str
    template: str
    hostile: bool
    name: str | None
    term: str


def biased_madlibs(
    split: str,
    *,
    rho: float = 0.95,
    noise: float = 0.25,
    protocol: str = "held-out",
    seed: int = 0,
    length: int = LENGTH,
    root: str | Path | None = None,
) -> Labelled:
    """One split; y is 1 for a hostile sentence, b the group of its term, and b = y is aligned.

    In "train" a share `noise` of the targets is wrong, and of each target a share ρ of the sentences has b = y. "val"
    and "test" are clean, and every (y, b) is as frequent. `seed` draws which names, terms and sentences are whose.
    """
    check_choice("split", split, SPLITS)
    check_choice("protocol", protocol, ("held-out",))
    check_share(rho)
    if isinstance(noise, bool) or not isinstance(noise, (int, float)) or not 0 <= noise < 0.5:
        raise BadInput(f"noise={noise} is no share of wrong targets; give a value from 0 to below 0.5")
    base = data_root(root)
    found = read_madlibs(base / "madlibs" / "bias_madlibs_77k.csv")
    generator = torch.Generator().manual_seed(seed)
    chosen = _of_split(found, split, generator)
    y = torch.tensor([int(found[i].hostile) for i in chosen])
    b = torch.tensor([int(found[i].term in SELF) for i in chosen])
    if split == "train":
        wrong = torch.rand(len(y), generator=generator, dtype=torch.float32) < noise
        y = torch.where(wrong, 1 - y, y)
        kept = _tied(y, b, rho, generator)
        y, b, chosen = y[kept], b[kept], [chosen[i] for i in kept.tolist()]
    return Labelled(
        Sentences([found[i].text for i in chosen], word_pieces(base / "bert", length)),
        y=y,
        b=b,
        classes=2,
        bias_classes=2,
        aligned=[0, 1],
        names=NAMES,
    )


def read_madlibs(path: Path) -> list[Madlib]:
    """The sentences that name a term for people; those about occupations are left out."""
    if not path.is_file():
        raise BadInput(f"{path} does not exist; put the identity-template sentences there")
    out = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                text, label, template = (row[column] for column in ("Text", "Label", "Template"))
                if label not in ("BAD", "NOT_BAD"):
                    raise BadInput(f"{path} holds the label {label!r}; it takes BAD and NOT_BAD")
                term = _term(text)
                if term is None:
                    continue
                name = text.partition(" is a ")[0] if template == "name_adj" else None
                out.append(Madlib(text=text, template=template, hostile=label == "BAD", name=name, term=term))
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, AttributeError) as error:
        raise BadInput(
            f"{path} is not as it was published ({type(error).__name__}: {error}); fetch it again"
        ) from error
    if not out:
        raise BadInput(f"{path} holds no sentence with a known term; fetch it again")
    return out


def _term(text: str) -> str | None:
    """The term that a sentence names: of two words where there is such a one, else of one."""
    words = text.lower().rstrip(".").split()
    pairs = (f"{first} {second}" for first, second in pairwise(words))
    return next((term for term in (*pairs, *words) if term in _TERMS), None)


def _of_split(found: list[Madlib], split: str, generator: torch.Generator) -> list[int]:
    """Which sentences may be in a split: names, some terms and some templates belong to one split only."""
    names = sorted({m.name for m in found if m.name is not None})
    order = [names[i] for i in torch.randperm(len(names), generator=generator).tolist()]
    test_names, val_names = set(order[:TEST_NAMES]), set(order[TEST_NAMES : TEST_NAMES + VAL_NAMES])
    unseen = set()
    for group in (ORIGIN_OR_FAITH, SELF):
        picked = torch.randperm(len(group), generator=generator)[:UNSEEN_TERMS]
        unseen |= {group[i] for i in picked.tolist()}

    def belongs(m: Madlib) -> str | None:
        if m.template in UNSEEN_TEMPLATES or m.name in test_names:
            return "test"
        if m.term in unseen:
            return "test" if m.name is None else None
        return "val" if m.name in val_names else "train"

    return [i for i, m in enumerate(found) if belongs(m) == split]


def _tied(y: Tensor, b: Tensor, rho: float, generator: torch.Generator) -> Tensor:
    """Sentences, in their order, of which a share ρ has b = y for either target; as many as there can be."""
    drawn = torch.randperm(len(y), generator=generator)
    kept = []
    for target in (0, 1):
        own = drawn[y[drawn] == target]
        if not len(own):
            raise BadInput(f"no training sentence is left with y = {target}; fetch the file again")
        aligned, conflicting = own[b[own] == target], own[b[own] != target]
        if rho >= len(aligned) / len(own):
            conflicting = conflicting[: round(len(aligned) * (1 - rho) / rho)]
        else:
            aligned = aligned[: round(len(conflicting) * rho / (1 - rho))]
        kept += [aligned, conflicting]
    return torch.cat(kept).sort().values
