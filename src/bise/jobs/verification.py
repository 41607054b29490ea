"""Whether a run keeps its promises: its files are read again, held against one another and against the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from bise.base.errors import BadInput
from bise.jobs import file_promises, model_promises
from bise.jobs.promises import Promise, checked
from bise.runs.folder import begun_jobs
from bise.runs.reading import read_run


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was found, promise by promise."""

    promises: tuple[Promise, ...]

    @property
    def holds(self) -> bool:
        """Whether none is broken; some may not have been checked."""
        return all(promise.state != "broken" for promise in self.promises)

    def as_dict(self) -> dict[str, Any]:
        return {"holds": self.holds, "promises": [asdict(promise) for promise in self.promises]}


def verify(folder: str | Path, source: Callable[[], nn.Module], splits: Callable[[str], Any]) -> Verification:
    """Check a run folder of demo, train, extract, refit or finetune against the model and splits that it was made from.

    Where either can't be had, `source` and `splits` raise BadInput, and what needs it is unchecked.
    """
    run = read_run(Path(folder))
    for job in begun_jobs(Path(folder)):
        raise BadInput(f"{folder} isn't finished, so it promises nothing yet; run {job} again with --resume first")
    if run.config.get("job") == "bench":
        raise BadInput(
            f"{folder} compares methods, and keeps no network that could be checked; name a run of bise extract"
        )
    if run.config.get("job") == "find":
        raise BadInput(
            f"{folder} looks for a bias, and keeps no network that could be checked; name a run of bise extract"
        )
    model, why = _had(source)
    found = [
        checked("files", file_promises.check_files, run),
        checked("configuration", file_promises.check_configuration, run),
        checked("log", file_promises.check_log, run),
    ]
    if "job" in run.config and run.config["job"] == "train":
        found += [
            checked("weights", model_promises.check_weights, run, model, why),
            checked("data", model_promises.check_data, run, splits),
        ]
        return Verification(promises=tuple(found))
    found += [
        checked("hashes", file_promises.check_hashes, run),
        checked("units", file_promises.check_units, run),
        checked("masks", file_promises.check_masks, run),
        checked("unchanged", file_promises.check_unchanged, run),
        checked("weights", model_promises.check_weights, run, model, why),
        checked("data", model_promises.check_data, run, splits),
    ]
    if "refitted" in run.saved:
        found.append(checked("refitted", model_promises.check_refitted, run, model))
    needed = ("files", "hashes", "units", "masks", "weights")
    sound = all(promise.state != "broken" for promise in found if promise.name in needed)
    found.append(checked("shrunk", model_promises.check_shrunk, run, model if sound else None, splits, why))
    return Verification(promises=tuple(found))


def _had(source: Callable[[], nn.Module]) -> tuple[nn.Module | None, str]:
    try:
        return source().cpu().eval(), ""
    except BadInput as error:
        return None, " ".join(str(error).split())
