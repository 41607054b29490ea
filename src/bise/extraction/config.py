"""How a subnetwork is looked for: a frozen dataclass of orthogonal fields; a preset is a function that sets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bise.base.checking import check_shares_of_alignment
from bise.base.errors import BadInput
from bise.base.options import check_options, option

PRESET_WORDS = {"balanced": "", "paper": "Algorithm 1 to the letter", "authors": "as in their code"}
"""Each preset, the default first, and what a command's help says of it."""
PRESETS = tuple(PRESET_WORDS)
GAMMA_AND_E: dict[str, Any] = {"gamma": 1.0, "head_epochs": 50}
"""Those of the paper; the default has less of both, and some figures were measured with these."""
SELECTIONS = ("unbiased", "worst_group", "accuracy")


@dataclass(frozen=True, kw_only=True)
class ExtractConfig:
    """How a subnetwork is looked for. The defaults are the preset `balanced`."""

    gamma: float = option(0.3, help="γ, the weight of the mutual information.", at_least=0)
    sampler: str = option("balanced", choices=("natural", "balanced"))
    """How batches are drawn: "natural" passes over the data, or "balanced", strata evenly."""
    balance: str = option("auto", choices=("auto", "cells", "alignment"))
    """What counts as a stratum, for even draws and for weights="groups": "cells", "alignment" groups or "auto"."""
    weights: str = option("none", choices=("groups", "paper", "cells", "none"))
    """Weights of the cross-entropy: "groups", N / (G · n_g); "paper", its closed forms; "cells", one over the share of
    each cell, of which every one counts as if it had a sample at least; "none"."""
    rho: float | tuple[float, ...] | None = None
    """ρ in the paper's closed forms, for each bias; None is the share of aligned samples that is counted."""
    margin: float | None = option(
        None,
        help="α: raise logits by α · ln p(y | b); default 0.4 for models that know train by heart.",
        at_least=0,
    )
    """α: raise logits by α · ln p(y | b) in the cross-entropy, so that samples whose class is rare beside their b are
    to be classified with a margin; where a vanilla model knows them by heart, they'd say little without it. None is
    0.4 where it does, that is, where it has 95 % of evenly drawn training samples right, and 0 elsewhere, without val,
    with jitter, or where groups count by their sizes (sampler="natural", weights="none"). Should 0.4 take away less
    than a quarter of the model's errors on val, 0 is tried too, and the better is kept."""
    smoothing: float | None = option(
        None,
        help="Share of a target spread over all classes; default 0.2 in the same case.",
        at_least=0,
        below=1,
        refusal="is out of range; give a share from 0 to below 1",
    )
    """Share of each target that the cross-entropy spreads over all classes; None is 0.2 and 0 in the same way."""
    mi: str = option("auto", help="{choices}.", choices=("auto", "conflicting", "batch", "none"))
    """Which samples of a batch the mutual information is taken over: "conflicting", the whole "batch", "none"; "auto"
    is the batch where cells are drawn evenly, so that b says nothing of y there, and else the conflicting ones."""
    mi_over_biases: str = option("mean", choices=("mean", "sum"))
    """Of several biases, whether the "mean" of their mutual information or the "sum" joins the objective."""
    gates_at: str = option("all", choices=("all", "activations", "layers"))
    """Where gates go by themselves: on "all" that can go, behind "activations", which are the paper's places, or on the
    outputs of "layers", the linear ones outside of attention, before activations and residual sums."""
    norms: str = option("plain", choices=("plain", "masked"))
    """A LayerNorm behind a gated feed-forward output: "plain", or "masked", over open units alone."""
    head_data: str = option("balanced", choices=("natural", "balanced"))
    """What the bias head trains on: "natural" or "balanced" draws."""
    bn: str = option("frozen", help="BatchNorm: {choices}.", choices=("frozen", "statistics", "all"))
    """BatchNorm while masks are learned: "frozen", "statistics" updated, or "all" (β and γ learned too)."""
    collapse: str = option("prevent", choices=("prevent", "undo", "ignore"))
    """A site that would close wholly: "prevent" keeps its best unit open; "undo" goes back to the last live mask;
    "ignore" goes on."""

    max_macs: float | None = option(
        None,
        help="Close units until the shrunk network has at most this share of the MACs.",
        above=0,
        below=1,
        refusal="is no share of the model to keep; give a number above 0 and below 1",
    )
    """The budget: the shrunk network has at most this share of the whole model's multiply-accumulates, …"""
    max_parameters: float | None = option(
        None,
        help="… of the parameters.",
        above=0,
        below=1,
        refusal="is no share of the model to keep; give a number above 0 and below 1",
    )
    """… of its parameters, …"""
    max_latency: float | None = option(
        None,
        help="… of the time that a batch takes on this device.",
        above=0,
        below=1,
        refusal="is no share of the model to keep; give a number above 0 and below 1",
    )
    """… of the time that a batch takes on the device at hand, which is measured."""

    batch_size: int = option(100, help="Samples a batch.", above=0)
    steps: int | None = option(20, help="Steps an epoch.", above=0)
    """Steps an epoch; None is one pass over the data."""
    lr: float = option(0.01, above=0)
    momentum: float = option(0.9, at_least=0, below=1)
    weight_decay: float = option(1e-4, at_least=0)
    kappa: float = option(0.5, above=0, below=1, refusal="can't anneal the temperature; give a value between 0 and 1")
    """κ: τ is multiplied by it …"""
    upsilon: int = option(5, help="υ, epochs between annealings.", above=0)
    """υ: … after every so many epochs, …"""
    patience: int | None = option(None, help="Anneal sooner, once no gate has flipped for so many epochs.", above=0)
    """… or sooner, once no gate has flipped for this many; None keeps to υ, as in the paper; …"""
    tau_min: float = option(
        1e-3,
        above=0,
        below=1,
        refusal="is no end for a temperature that starts at 1; give a value between 0 and 1",
    )
    """τ_min: … until it falls below this."""

    head_epochs: int = option(5, help="E, epochs of the bias head after each annealing.", at_least=0)
    """E: epochs of the bias head before the masks are learned and after each annealing."""
    head_steps: int | None = option(20, above=0)
    """Steps of a head epoch; None is one pass over the data."""
    head_lr: float = option(0.1, above=0)
    head_momentum: float = option(0.9, at_least=0, below=1)
    head_weight_decay: float = option(1e-4, at_least=0)

    augment: bool = option(
        False,
        help="Crop and mirror pictures as in training; default as the preset and the recipe say.",
        by_recipe=True,
    )
    """Augment while masks are learned, where the data set's transform can; the bias head is refined without."""
    jitter: float = option(
        0.0,
        help="Turn, stretch and shift pictures at random, and choose no margin then; try 1.",
        at_least=0,
        unsaid=True,
    )
    """Turn, stretch, slant and shift pictures at random while masks are learned, as in TrainConfig: none of them is
    then one that the model knows by heart, so that margin and smoothing are 0 unless they are given."""
    cache: bool = True
    """Refine the head on cached features; False runs the network anew for every head epoch, as augmentation needs."""
    memory: int = option(4 << 30, above=0)
    """Bytes for what grows with the number of samples: labels and orders, then inputs and the outputs of frozen
    layers on the device where they fit, then cached features, which are mapped to a file beyond it."""
    early_stop: bool = True
    """Stop once no gate can flip any more (only with BatchNorm frozen)."""
    selection: str = option("unbiased", choices=SELECTIONS)
    """What *best* maximises on val: "unbiased", "worst_group" or "accuracy"."""
    also: tuple[str, ...] = option((), choices=SELECTIONS)
    """More of these, whose best masks are kept beside: `.best_by("worst_group")` of the result."""
    ties: str = option("earlier", choices=("earlier", "later"))
    """Which of two epochs that are equally good on val is the best: the "earlier" or the "later"."""
    baseline: bool = option(
        True,
        help="Let masks compete with the model itself on val; default yes, unless the preset is paper.",
    )
    """Let masks compete with the model itself on val: where none is as good, nothing is closed, and the run says so."""
    validate_every: int = option(2, above=0)
    """Epochs between validations; the last one is always validated."""
    precision: str = option(
        "auto",
        help="fp32, bf16, or auto, bf16 on a GPU that has it; default as the preset says.",
        choices=("auto", "fp32", "bf16"),
        unsaid=True,
    )
    """Format of the network's forward and backward passes: "fp32", "bf16", or "auto", bf16 on a GPU that has it. fp32
    is PyTorch's own: unless one forbids it, cuDNN may round what convolutions multiply to TF32."""
    graphs: bool = True
    """On a GPU, record a step once and replay it."""
    seed: int = option(0, help="Seed of batches and bias head.", fixed=True)

    def __post_init__(self) -> None:
        check_options(self)
        check_shares_of_alignment(self.rho)
        if self.sampler == "balanced" and self.weights != "none":
            raise BadInput(
                f'weights={self.weights!r} beside sampler="balanced" would count small groups twice;'
                ' use weights="none", or sampler="natural"'
            )

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
            "gates_at": "activations",
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
