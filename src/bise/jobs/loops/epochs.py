"""What every callback does: audit the model after an epoch, and extract its subnetwork when training ends."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from torch import nn

from bise.base.errors import BadInput
from bise.data.core.cells import Cells
from bise.data.core.contract import Alignment, Labelled, Log, labels, unloaded
from bise.extraction.algorithm import extract
from bise.extraction.config import ExtractConfig
from bise.measure.audits import audit
from bise.measure.found import Audit
from bise.network.subnetwork import Subnetwork

FIGURES = ("accuracy", "unbiased", "worst_group")


class EpochAudits:
    """Audits after epochs, and what they found."""

    def __init__(
        self,
        data: Any,
        *,
        aligned: Alignment | Cells | None = None,
        every: int = 1,
        probe: bool = False,
        network: str | None = None,
        log: Log | None = None,
        train: Any = None,
        val: Any = None,
        config: ExtractConfig | None = None,
        save: str | Path | None = None,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise BadInput(f"every={every!r} is no number of epochs; give 1 or more")
        if train is None and (val is not None or config is not None or save is not None):
            raise BadInput("val=…, config=… and save=… are for the extraction at the end; give its data with train=…")
        self.data = _labelled(data)
        self.aligned, self.every, self.probe, self.network = aligned, every, probe, network
        self._log = log  # Lightning sets the attribute `log` of a callback
        self.train, self.val, self.config = train, val, config
        self.save = None if save is None else Path(save)
        self.audits: list[Audit] = []
        """One for each epoch that was audited, the first epoch's first."""
        self.rows: list[dict[str, Any]] = []
        """Their figures as a log takes them; "seconds" is what the audit took."""
        self.subnetwork: Subnetwork | None = None
        """What the extraction at the end found."""

    def due(self, epoch: int) -> bool:
        return epoch % self.every == 0

    def look(self, model: nn.Module, epoch: int) -> dict[str, Any]:
        """Audit the model as it is after `epoch`, and give the row of figures; the model stays as it is."""
        started = time.perf_counter()
        found = audit(self._of(model), self.data, aligned=self.aligned, probe=self.probe)
        self.audits.append(found)
        self.rows.append(row_of(found) | {"epoch": epoch, "seconds": time.perf_counter() - started})
        if self._log is not None:
            self._log(self.rows[-1])
        return self.rows[-1]

    def finish(self, model: nn.Module) -> None:
        """Extract, where data for it were given."""
        if self.train is None:
            return
        log = self._log
        told = log and (lambda row: log({"job": "extract", **row}))
        self.subnetwork = extract(self._of(model), self.train, val=self.val, config=self.config, log=told)
        if self.save is not None:
            self.subnetwork.save(self.save)

    def _of(self, model: nn.Module) -> nn.Module:
        """The classifier in what is trained, as it was before torch.compile."""
        model = getattr(model, "_orig_mod", model)
        if self.network is None:
            return model
        try:
            return model.get_submodule(self.network)
        except AttributeError as error:
            known = ", ".join(name for name, _ in model.named_children()) or "none"
            raise BadInput(
                f"network={self.network!r} is no part of {type(model).__name__}; its parts are {known}"
            ) from error


def row_of(found: Audit) -> dict[str, Any]:
    """An audit as a row of figures: averages, aligned and conflicting samples, each bias, and groups by name."""
    row: dict[str, Any] = {"job": "audit"} | {name: getattr(found, name) for name in FIGURES}
    row |= {"aligned": found.aligned.accuracy, "conflicting": found.conflicting.accuracy}
    for bias in found.biases:
        figures = {
            "information_predicted": bias.information_predicted,
            "demographic_parity_difference": bias.demographic_parity_difference,
            "equalized_odds_difference": bias.equalized_odds_difference,
        }
        probe = {} if bias.probe is None else {"probe": bias.probe.accuracy}
        row[f"bias/{bias.bias}"] = figures | probe  # a bias may be called as a figure is
    return row | {"group": dict(found.by_group)}


def _labelled(data: Any) -> Any:
    """The data with their labels read once, and not in each epoch."""
    data = unloaded(data)
    if isinstance(data, Labelled):
        return data
    cells = labels(data)
    b = cells.b[:, 0] if cells.biases == 1 else cells.b
    return Labelled(data, y=cells.y, b=b, classes=cells.classes, bias_classes=cells.bias_classes)
