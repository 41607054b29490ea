"""What every job asks of a model before there is work behind it."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from bise.base.errors import BadInput, caution
from bise.data.core.cells import Cells
from bise.network.outputs import doubt, not_finite
from bise.network.twin import check_finite_weights


def check_model(model: Any) -> None:
    """Refuse what is no model, and weights that are no numbers."""
    if not isinstance(model, nn.Module):
        made = (
            f"the class {model.__name__}; make one: {model.__name__}(...)" if isinstance(model, type) else repr(model)
        )
        raise BadInput(f"model is {made}; it takes a torch module")
    check_finite_weights(model)


def check_kinds(model: Any, config: Any, kind: type) -> None:
    """Refuse what is no model, and a configuration of another kind."""
    check_model(model)
    if not isinstance(config, kind):
        raise BadInput(f"config={config!r} is of type {type(config).__name__}; give a bise.{kind.__name__}")


def check_outputs(logits: Tensor, cells: Cells, *, index: Tensor | None = None, split: str = "") -> None:
    """Refuse labels for which the model has no logit, and logits that are no numbers; doubt what isn't like logits.

    They are of the samples `index` of `split`, or of all in their order.
    """
    highest = int(cells.y.max())
    if highest >= logits.shape[1]:
        raise BadInput(
            f"y holds the label {highest}, out of range for a model with {logits.shape[1]} classes;"
            " labels are ints from 0"
        )
    if (found := not_finite(logits.isfinite().all(1), index=index, split=split)) is not None:
        raise BadInput(found[0])
    if (said := doubt(logits)) is not None:
        caution(said, stacklevel=3)
