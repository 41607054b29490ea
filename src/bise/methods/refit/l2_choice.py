"""Which L2 a last layer is fitted with: the best on val, or by cross-validation over the cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bise.data.core.contract import Progress
from bise.methods.refit.config import RefitConfig
from bise.methods.refit.fitting_data import Part, fold_of
from bise.methods.refit.last_layer import LastLayer
from bise.methods.refit.logistic import Optimum, Problem, solve

ROUGH = 1e-2
"""How far from the optimum coefficients may be by which a λ is judged; those that are taken are solved to the end."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The fit on all samples with the λ that scored best, and how it did so."""

    optimum: Optimum
    weight: Tensor
    """[outputs, d] float64, on the features as they are."""
    bias: Tensor
    constant: int
    """Features without variance, whose coefficients are 0."""
    by: str
    tried: list[dict[str, float]]
    """What each λ scored."""
    held: Tensor
    """[N, C] logits of the samples that it was chosen by, none of which the fit behind them has seen."""

    def as_dict(self) -> dict[str, Any]:
        """What a record tells of it."""
        return {
            "l2": {"chosen": self.optimum.l2, "by": self.by, "tried": self.tried},
            "solver": {
                "gradient": self.optimum.gradient,
                "wanted": self.optimum.wanted,
                "steps": self.optimum.steps,
                "constant_features": self.constant,
            },
        }


def chosen_fit(
    fitted: Part,
    val: Part | None,
    layer: LastLayer,
    config: RefitConfig,
    device: torch.device,
    progress: Progress | None,
) -> Choice:
    """Fit with every λ, take the one with the best mean over cells on samples that were not fitted on, and solve."""
    fitted.check_fits()
    fits = _Fits(fitted, layer, config, device, progress)
    everything = fits.problem()
    if config.on == "train" and val is not None:
        by, held, outputs = "val", val, fits.logits(everything, val)
    else:
        held = fitted if val is None else val
        by, outputs = f"{config.folds} folds of {held.name}", fits.out_of_fold(held)
    scores = [held.score(logits) for logits in outputs]
    best = max(range(len(scores)), key=lambda i: (scores[i][0], -scores[i][1]))
    optimum = solve(everything, config.l2[best])
    weight, bias = everything.folded(optimum.theta)
    return Choice(
        optimum=optimum,
        weight=weight,
        bias=bias,
        constant=int((~everything.varies).sum()),
        by=by,
        tried=[
            {"l2": value, "accuracy": accuracy, "cross_entropy": entropy}
            for value, (accuracy, entropy) in zip(config.l2, scores, strict=True)
        ],
        held=outputs[best],
    )


class _Fits:
    """Fits on parts of the same samples, counted for the progress."""

    def __init__(
        self, fitted: Part, layer: LastLayer, config: RefitConfig, device: torch.device, progress: Progress | None
    ) -> None:
        self.fitted, self.layer, self.config, self.device, self.progress = fitted, layer, config, device, progress

    def problem(self, among: Tensor | None = None) -> Problem:
        """The objective over all samples, or over those `among` these [N]."""
        return Problem(
            self.fitted.z,
            self.fitted.y.to(self.device),
            self.fitted.shares(among).to(self.device),
            outputs=self.layer.outputs,
            intercept=self.layer.bias,
        )

    def logits(self, problem: Problem, of: Part, label: str = "last layer") -> list[Tensor]:
        """Logits of other samples for each λ, each fit begun at the one before."""
        found, start = [], None
        for number, value in enumerate(self.config.l2, 1):
            start = solve(problem, value, start, ROUGH).theta
            found.append(of.logits_of(*problem.folded(start)))
            if self.progress is not None:
                self.progress(label, number, len(self.config.l2))
        return found

    def out_of_fold(self, held: Part) -> list[Tensor]:
        """For each λ the logits of every sample of `held`, by fits that didn't see its fold."""
        folds = self.config.folds
        fold = fold_of(held.cells, folds, self.config.seed)
        # where both are fitted on, train comes first, and stays in every fit
        kept = torch.zeros(len(self.fitted.y) - len(held.y), dtype=torch.bool)
        out = [held.logits.new_zeros(held.logits.shape, dtype=torch.float64) for _ in self.config.l2]
        for number in range(folds):
            away = fold == number
            if not away.any():
                continue
            among = ~torch.cat([kept, away])
            self.fitted.check_left(among, folds)
            label = f"last layer, fold {number + 1} of {folds}"
            for whole, logits in zip(out, self.logits(self.problem(among), held, label), strict=True):
                whole[away] = logits[away]
        return out
