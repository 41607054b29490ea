"""What a job does, as frozen dataclasses with orthogonal fields; a preset is a function that sets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bise.base.checking import (
    check_at_least_zero,
    check_choice,
    check_momentum,
    check_positive,
    check_shares_of_alignment,
    check_whole,
)
from bise.base.errors import BadInput

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
        check_positive(
            batch_size=self.batch_size, steps=self.steps, lr=self.lr, upsilon=self.upsilon, memory=self.memory
        )
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
