"""Where a figure comes from: the commit, the day, the version, and the machine."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from bise.base.version import VERSION
from bise.runs import folder

PACKAGE = Path(__file__).resolve().parents[1]
NAMED = "BISE_COMMIT"
"""The environment variable that names the commit where the sources are a copy without git, as on a rented machine."""


def origin() -> dict[str, str]:
    """Commit, day (UTC) and version: what every new row and every new file of results says of itself."""
    return {
        "commit": os.environ.get(NAMED) or commit(PACKAGE),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "bise": VERSION,
    }


def machine() -> dict[str, Any]:
    """Versions and hardware, and where the code comes from."""
    return folder.machine() | origin()


@cache
def commit(package: Path) -> str:
    """The commit of a source tree, with "+changes" if its code differs; the version of a package that has no git.

    What lies in somebody else's repository, as an environment inside a project does, is not of its commit.
    """
    top = _git(package, "rev-parse", "--show-toplevel")
    if top is None or _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return f"version {VERSION}"
    changed = _git(Path(top), "status", "--porcelain", "--", str(package), "benchmarks")
    return f"{_git(package, 'rev-parse', '--short=10', 'HEAD')}{'+changes' if changed else ''}"


def _git(where: Path, *words: str) -> str | None:
    """What git prints; None where there is no git, or it refuses."""
    try:
        done = subprocess.run(["git", "-C", where, *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
