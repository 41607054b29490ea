"""What a model answered, sample by sample: what further figures of the same audit are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bise.base.errors import BadInput
from bise.data.core.cells import Cells
from bise.measure.groups import Z95, Estimate, group_estimates


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Answers:
    """The labels of the samples, and the class ŷ [N] that the model predicts for each."""

    cells: Cells
    predicted: Tensor

    @property
    def correct(self) -> Tensor:
        """[N] bool"""
        return self.predicted == self.cells.y

    def estimates(self, z: float = Z95) -> dict[str, Estimate]:
        """{group: its accuracy, with the interval at z}, over the samples whose bias is known."""
        cells, known = self.cells, self.cells.known
        grouping = cells.alignment_names() if cells.groups == "alignment" else None
        return group_estimates(self.correct[known], cells.index[known], cells.names(), grouping, z)

    def subset(self, *, aligned: bool, z: float = Z95) -> Estimate | None:
        """The accuracy of samples that are aligned in every bias, or of the conflicting ones; None without any."""
        every = self.cells.aligned.all(1)
        chosen = every if aligned else ~every & self.cells.known
        if not chosen.any():
            return None
        return group_estimates(self.correct[chosen], chosen[chosen].long(), {1: "all"}, z=z)["all"]


def metric_frame(answers: Answers, metrics: Mapping[str, Callable[..., Any]] | None, by: str) -> Any:
    """fairlearn's MetricFrame over these answers; see `Audit.to_metric_frame`."""
    if by not in ("cell", "bias"):
        raise BadInput(f'by={by!r} is unknown; use "cell" or "bias"')
    try:
        import fairlearn.metrics as fair
        import pandas as pd
        from sklearn.metrics import accuracy_score
    except ImportError as error:
        raise BadInput(f"{error.name} is not installed; install the extra: pip install 'bise[fairness]'") from error
    cells, known = answers.cells, answers.cells.known
    if metrics is None:
        metrics = {"accuracy": accuracy_score, "count": fair.count}
        if by == "bias" and cells.classes == 2:
            rates = (fair.selection_rate, fair.true_positive_rate, fair.false_positive_rate)
            metrics |= {rate.__name__: rate for rate in rates}
    y, b = cells.y[known], cells.b[known]
    columns = [b[:, k].tolist() for k in range(cells.biases)]
    first = 1
    if by == "cell":
        columns, first = [y.tolist(), *columns], 0
    sensitive = {
        cells.columns[first + i]: [cells.label(first + i, value) for value in column]
        for i, column in enumerate(columns)
    }
    return fair.MetricFrame(
        metrics=dict(metrics),
        y_true=y.numpy(),
        y_pred=answers.predicted[known].numpy(),
        sensitive_features=pd.DataFrame(sensitive),
    )
