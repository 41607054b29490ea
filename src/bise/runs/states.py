"""What a run keeps until it is finished; unlike the run itself, it can be sent to another process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bise.base.files import write_json
from bise.runs.schema import read_bare


@dataclass(frozen=True, kw_only=True)
class States:
    """The folder of a job's parts, and whose they are."""

    run: Path
    """The run folder."""
    folder: Path
    key: str

    def has(self, part: str) -> bool:
        """Whether `once` has kept this part."""
        return self._path(part).exists()

    def once(self, part: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What `make` gives, as JSON knows it; kept, so that it isn't made again after a stop."""
        path = self._path(part)
        if not path.exists():
            write_json(path, make())
        return read_bare(path)

    def of(self, part: str) -> Path:
        """The folder where a part keeps its own state while it is at work."""
        return self.folder / f"{part}.states"

    def _path(self, part: str) -> Path:
        return self.folder / f"{part}.json"
