"""What a job does, as frozen dataclasses with orthogonal fields; a preset is a function that sets them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bise.base.errors import BadInput


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadInput(f"{name}={value!r} is unknown; use {' or '.join(repr(c) for c in choices)}")


def check_number(name: str, value: Any) -> None:
    if not isinstance(value, (int, float)):
        raise BadInput(f"{name}={value!r} must be a number")


def check_positive(**values: float | None) -> None:
    for name, value in values.items():
        check_number(name, 1 if value is None else value)
        if value is not None and not 0 < value < math.inf:
            raise BadInput(f"{name}={value} must be a number greater than 0")


def check_at_least_zero(**values: float | None) -> None:
    for name, value in values.items():
        check_number(name, 1 if value is None else value)
        if value is not None and not 0 <= value < math.inf:
            raise BadInput(f"{name}={value} must be a number, 0 or more")


def check_whole(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and (not isinstance(value, int) or not -(2**63) <= value < 2**63):
            raise BadInput(f"{name}={value!r} must be a whole number")


def check_momentum(**values: float) -> None:
    for name, value in values.items():
        check_number(name, value)
        if not 0 <= value < 1:
            raise BadInput(f"{name}={value} is out of range; give a value from 0 to below 1")


def check_shares_of_alignment(rho: Any) -> None:
    for share in rho if isinstance(rho, tuple) else () if rho is None else (rho,):
        check_number("rho", share)
        if not 0 < share < 1:
            raise BadInput(
                f"rho={share} has no closed form of weights; give a share between 0 and 1, or None to count it"
            )


PRESETS = ("balanced", "paper", "authors")
GAMMA_AND_E: dict[str, Any] = {"gamma": 1.0, "head_epochs": 50}
"""Those of the paper; the default has less of both, and some figures were measured with these."""


@dataclass(frozen=True, kw_only=True)
class ExtractConfig:
    """How a subnetwork is looked for. The defaults are the preset `balanced`."""

    gamma: float = 0.3
    """γ, the weight of the mutual information."""
    sampler: str = "balanced"
    """How batches are drawn: "natural" passes over the data, or "balanced", strata evenly."""
    balance: str = "auto"
    """What counts as a stratum, for even draws and for weights="groups": "cells", "alignment" groups or "auto"."""
    weights: str = "none"
    """Weights of the cross-entropy: "groups", N / (G · n_g); "paper", its closed forms; "cells", one over the share of
    each cell, of which every one counts as if it had a sample at least; "none"."""
    rho: float | tuple[float, ...] | None = None
    """ρ in the paper's closed forms, for each bias; None is the share of aligned samples that is counted."""
    margin: float | None = None
    """α: raise logits by α · ln p(y | b) in the cross-entropy, so that samples whose class is rare beside their b are
    to be classified with a margin; where a vanilla model knows them by heart, they'd say little without it. None is
    0.4 where it does, that is, where it has 95 % of evenly drawn training samples right, and 0 elsewhere, without val,
    with jitter, or where groups count by their sizes (sampler="natural", weights="none"). Should 0.4 take away less
    than a quarter of the model's errors on val, 0 is tried too, and the better is kept."""
    smoothing: float | None = None
    """Share of each target that the cross-entropy spreads over all classes; None is 0.2 and 0 in the same way."""
    mi: str = "auto"
    """Which samples of a batch the mutual information is taken over: "conflicting", the whole "batch", "none"; "auto"
    is the batch where cells are drawn evenly, so that b says nothing of y there, and else the conflicting ones."""
    mi_over_biases: str = "mean"
    """Of several biases, whether the "mean" of their mutual information or the "sum" joins the objective."""
    gates_at: str = "activations"
    """Where gates go by themselves: behind "activations", or on the outputs of "layers", the linear ones outside of
    attention, before activations and residual sums."""
    norms: str = "plain"
    """A LayerNorm behind a gated feed-forward output: "plain", or "masked", over open units alone."""
    head_data: str = "balanced"
    """What the bias head trains on: "natural" or "balanced" draws."""
    bn: str = "frozen"
    """BatchNorm while masks are learned: "frozen", "statistics" updated, or "all" (β and γ learned too)."""
    collapse: str = "prevent"
    """A site that would close wholly: "prevent" keeps its best unit open; "undo" goes back to the last live mask;
    "ignore" goes on."""

    batch_size: int = 100
    steps: int | None = 20
    """Steps an epoch; None is one pass over the data."""
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    kappa: float = 0.5
    """κ: τ is multiplied by it …"""
    upsilon: int = 5
    """υ: … after every so many epochs, …"""
    patience: int | None = None
    """… or sooner, once no gate has flipped for this many; None keeps to υ, as in the paper; …"""
    tau_min: float = 1e-3
    """τ_min: … until it falls below this."""

    head_epochs: int = 5
    """E: epochs of the bias head before the masks are learned and after each annealing."""
    head_steps: int | None = 20
    """Steps of a head epoch; None is one pass over the data."""
    head_lr: float = 0.1
    head_momentum: float = 0.9
    head_weight_decay: float = 1e-4

    augment: bool = False
    """Augment while masks are learned, where the data set's transform can; the bias head is refined without."""
    jitter: float = 0.0
    """Turn, stretch, slant and shift pictures at random while masks are learned, as in TrainConfig: none of them is
    then one that the model knows by heart, so that margin and smoothing are 0 unless they are given."""
    cache: bool = True
    """Refine the head on cached features; False runs the network anew for every head epoch, as augmentation needs."""
    memory: int = 4 << 30
    """Bytes for what grows with the number of samples: labels and orders, then inputs and the outputs of frozen
    layers on the device where they fit, then cached features, which are mapped to a file beyond it."""
    early_stop: bool = True
    """Stop once no gate can flip any more (only with BatchNorm frozen)."""
    selection: str = "unbiased"
    """What *best* maximises on val: "unbiased", "worst_group" or "accuracy"."""
    also: tuple[str, ...] = ()
    """More of these, whose best masks are kept beside: `.best_by("worst_group")` of the result."""
    ties: str = "earlier"
    """Which of two epochs that are equally good on val is the best: the "earlier" or the "later"."""
    baseline: bool = True
    """Let masks compete with the model itself on val: where none is as good, nothing is closed, and the run says so."""
    validate_every: int = 2
    """Epochs between validations; the last one is always validated."""
    precision: str = "auto"
    """Format of the network's forward and backward passes: "fp32", "bf16", or "auto", bf16 on a GPU that has it. fp32
    is PyTorch's own: unless one forbids it, cuDNN may round what convolutions multiply to TF32."""
    graphs: bool = True
    """On a GPU, record a step once and replay it."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("sampler", self.sampler, ("natural", "balanced"))
        check_choice("balance", self.balance, ("auto", "cells", "alignment"))
        check_choice("weights", self.weights, ("groups", "paper", "cells", "none"))
        check_choice("mi", self.mi, ("auto", "conflicting", "batch", "none"))
        check_choice("mi_over_biases", self.mi_over_biases, ("mean", "sum"))
        check_choice("gates_at", self.gates_at, ("activations", "layers"))
        check_choice("norms", self.norms, ("plain", "masked"))
        check_choice("ties", self.ties, ("earlier", "later"))
        check_choice("head_data", self.head_data, ("natural", "balanced"))
        check_choice("bn", self.bn, ("frozen", "statistics", "all"))
        check_choice("collapse", self.collapse, ("prevent", "undo", "ignore"))
        check_shares_of_alignment(self.rho)
        for selection in (self.selection, *self.also):
            check_choice("selection", selection, ("unbiased", "worst_group", "accuracy"))
        check_choice("precision", self.precision, ("auto", "fp32", "bf16"))
        if self.sampler == "balanced" and self.weights != "none":
            raise BadInput(
                f'weights={self.weights!r} beside sampler="balanced" would count small groups twice;'
                ' use weights="none", or sampler="natural"'
            )
        check_whole(batch_size=self.batch_size, steps=self.steps, upsilon=self.upsilon, seed=self.seed)
        check_whole(head_epochs=self.head_epochs, head_steps=self.head_steps, memory=self.memory)
        check_whole(validate_every=self.validate_every, patience=self.patience)
        check_positive(patience=self.patience)
        check_positive(batch_size=self.batch_size, steps=self.steps, lr=self.lr, upsilon=self.upsilon, memory=self.memory)
        check_positive(
            validate_every=self.validate_every, tau_min=self.tau_min, head_steps=self.head_steps, head_lr=self.head_lr
        )
        check_at_least_zero(smoothing=self.smoothing, kappa=self.kappa)
        if self.smoothing is not None and not self.smoothing < 1:
            raise BadInput(f"smoothing={self.smoothing} is out of range; give a share from 0 to below 1")
        check_at_least_zero(gamma=self.gamma, weight_decay=self.weight_decay, head_epochs=self.head_epochs)
        check_at_least_zero(head_weight_decay=self.head_weight_decay, margin=self.margin, jitter=self.jitter)
        check_momentum(momentum=self.momentum, head_momentum=self.head_momentum)
        if not 0 < self.kappa < 1:
            raise BadInput(f"kappa={self.kappa} can't anneal the temperature; give a value between 0 and 1")
        if self.tau_min >= 1:
            raise BadInput(f"tau_min={self.tau_min} is no end for a temperature that starts at 1; give less than 1")

    @classmethod
    def balanced(cls, **changes: Any) -> ExtractConfig:
        """The default: every batch draws the cells evenly, so far fewer steps suffice."""
        return cls(**changes)

    @classmethod
    def paper(cls, **changes: Any) -> ExtractConfig:
        """Algorithm 1 to the letter: natural passes, the paper's weights, its schedule, in fp32."""
        letter: dict[str, Any] = {
            **GAMMA_AND_E,
            "sampler": "natural",
            "weights": "paper",
            "margin": 0.0,
            "smoothing": 0.0,
            "mi": "conflicting",
            "head_data": "natural",
            "steps": None,
            "upsilon": 10,
            "head_steps": None,
            "collapse": "undo",
            "selection": "accuracy",
            "baseline": False,
            "validate_every": 1,
            "precision": "fp32",
        }
        return cls(**(letter | changes))

    @classmethod
    def authors(cls, **changes: Any) -> ExtractConfig:
        """The preset `paper` where the text is silent as the authors' code has it."""
        letter: dict[str, Any] = {"ties": "later", "mi_over_biases": "sum", "collapse": "ignore"}
        return cls.paper(**(letter | changes))

    def epoch_steps(self, samples: int) -> int:
        """Steps of an epoch over so many samples."""
        return self.steps if self.steps is not None else -(-samples // self.batch_size)

    def total_steps(self, samples: int) -> int:
        """Steps of the whole schedule over so many samples."""
        return len(self.temperatures()) * self.upsilon * self.epoch_steps(samples)

    def temperatures(self) -> list[float]:
        """τ of each stretch of υ epochs, until it falls below τ_min."""
        taus = [1.0]
        while taus[-1] * self.kappa >= self.tau_min:
            taus.append(taus[-1] * self.kappa)
        return taus


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How weights are trained: from scratch, or in a subnetwork whose mask stays. The defaults suit finetuning."""

    epochs: int = 20
    batch_size: int = 100
    steps: int | None = None
    """Steps an epoch; None is one pass over the data, or as many draws."""
    optimizer: str = "sgd"
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: str = "constant"
    """"constant", "cosine", "linear" to 0, or "steps": divided by 10 at each of `milestones`; set once an epoch."""
    milestones: tuple[int, ...] = ()
    sampler: str = "natural"
    balance: str = "auto"
    weights: str = "none"
    margin: float = 0.0
    """α: as in extraction; 1 on natural passes is logit adjustment by p(y | b), which needs no weights."""
    jitter: float = 0.0
    """Turn, stretch, slant and shift pictures at random: by up to 15 degrees, 15 %, a tenth and a fourteenth at 1."""
    selection: str = "unbiased"
    """What the best epoch maximises on val."""
    precision: str = "auto"
    """Format of forward and backward passes: "fp32", "bf16", or "auto", bf16 on a GPU that has it."""
    graphs: bool = True
    """On a GPU, record a step once and replay it."""
    compile: bool = False
    """On a GPU, let torch.compile fuse what it can, for runs of minutes: it takes ten seconds and a C compiler."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, ("sgd", "adam", "adamw"))
        check_choice("schedule", self.schedule, ("constant", "cosine", "linear", "steps"))
        check_choice("sampler", self.sampler, ("natural", "balanced"))
        check_choice("balance", self.balance, ("auto", "cells", "alignment"))
        check_choice("weights", self.weights, ("groups", "paper", "none"))
        check_choice("selection", self.selection, ("unbiased", "worst_group", "accuracy"))
        check_choice("precision", self.precision, ("auto", "fp32", "bf16"))
        check_whole(epochs=self.epochs, batch_size=self.batch_size, steps=self.steps, seed=self.seed)
        check_positive(epochs=self.epochs, batch_size=self.batch_size, steps=self.steps, lr=self.lr)
        check_at_least_zero(weight_decay=self.weight_decay, margin=self.margin, jitter=self.jitter)
        check_momentum(momentum=self.momentum)
        if self.sampler == "balanced" and self.weights != "none":
            raise BadInput(
                f'weights={self.weights!r} beside sampler="balanced" would count small groups twice;'
                ' use weights="none", or sampler="natural"'
            )

    @classmethod
    def finetuning(cls, **changes: Any) -> TrainConfig:
        """Cells drawn evenly, as in extraction's default."""
        return cls(**({"sampler": "balanced"} | changes))

    @classmethod
    def paper(cls, **changes: Any) -> TrainConfig:
        """The paper's finetuning on BiasedMNIST: natural passes, its weights, 50 epochs of SGD at 1e-3, in fp32."""
        letter: dict[str, Any] = {"weights": "paper", "epochs": 50, "selection": "accuracy", "precision": "fp32"}
        return cls(**(letter | changes))


L2 = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""Weights λ of ‖W‖²/2 beside the mean cross-entropy over the cells, W on standardised features."""


@dataclass(frozen=True, kw_only=True)
class RefitConfig:
    """How a last layer is fitted anew."""

    on: str = "train"
    """The samples that it is fitted on: "train", "val" or "both"."""
    l2: tuple[float, ...] = L2
    """Values to choose from, tried from the largest on."""
    folds: int = 5
    """Of the cross-validation, where val can't choose."""
    seed: int = 0
    """Of the folds."""
    keep_worse: bool = False
    """Take the refit also where the mean over groups on val falls."""

    def __post_init__(self) -> None:
        check_choice("on", self.on, ("train", "val", "both"))
        check_whole(folds=self.folds, seed=self.seed)
        if not self.l2:
            raise BadInput("l2=() leaves nothing to try; give numbers above 0")
        for value in self.l2:
            check_positive(l2=value)
        if self.folds < 2:
            raise BadInput(f"folds={self.folds} leaves nothing to fit on; give 2 or more")
        object.__setattr__(self, "l2", tuple(sorted(self.l2, reverse=True)))
