"""How weights are trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bise.base.errors import BadInput
from bise.base.options import check_options, option


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How weights are trained: from scratch, or in a subnetwork whose mask stays. The defaults suit finetuning."""

    epochs: int = option(20, help="Epochs; {default} where the preset is balanced.", above=0)
    batch_size: int = option(100, help="Samples a batch; {default} where the preset is balanced.", above=0)
    steps: int | None = option(None, above=0)
    """Steps an epoch; None is one pass over the data, or as many draws."""
    optimizer: str = option("sgd", choices=("sgd", "adam", "adamw"))
    lr: float = option(1e-3, help="Learning rate; {default} where the preset is balanced.", above=0)
    momentum: float = option(0.9, at_least=0, below=1)
    weight_decay: float = option(1e-4, at_least=0)
    schedule: str = option("constant", choices=("constant", "cosine", "linear", "steps"))
    """"constant", "cosine", "linear" to 0, or "steps": divided by 10 at each of `milestones`; set once an epoch."""
    milestones: tuple[int, ...] = ()
    sampler: str = option("natural", help="balanced, cells evenly; or natural passes.", choices=("natural", "balanced"))
    balance: str = option("auto", choices=("auto", "cells", "alignment"))
    weights: str = option("none", choices=("groups", "paper", "none"))
    margin: float = option(
        0.0, help="α: raise logits by α · ln p(y | b); 1 suits natural passes.", at_least=0, unsaid=True
    )
    """α: as in extraction; 1 on natural passes is logit adjustment by p(y | b), which needs no weights."""
    jitter: float = option(
        0.0, help="Turn, stretch and shift pictures at random; 1 is by up to 15 degrees.", at_least=0, unsaid=True
    )
    """Turn, stretch, slant and shift pictures at random: by up to 15 degrees, 15 %, a tenth and a fourteenth at 1."""
    selection: str = option("unbiased", choices=("unbiased", "worst_group", "accuracy"))
    """What the best epoch maximises on val."""
    precision: str = option("auto", choices=("auto", "fp32", "bf16"))
    """Format of forward and backward passes: "fp32", "bf16", or "auto", bf16 on a GPU that has it."""
    graphs: bool = True
    """On a GPU, record a step once and replay it."""
    compile: bool = False
    """On a GPU, let torch.compile fuse what it can, for runs of minutes: it takes ten seconds and a C compiler."""
    seed: int = option(0, help="Seed of batches.", fixed=True)

    def __post_init__(self) -> None:
        check_options(self)
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
