"""Thousands of damaged files over every reader, in a process of its own with little memory and a clock for each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("fuzzing.py")
READERS = PROGRAM.read_text(encoding="utf-8").count("\n@reader\n")


@pytest.mark.parametrize("each", [13, pytest.param(480, marks=pytest.mark.long)])
def test_every_damaged_file_is_read_or_refused(tmp_path, each):
    command = [sys.executable, "-X", "faulthandler", str(PROGRAM), str(each), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    where = (tmp_path / "current").read_text() if (tmp_path / "current").exists() else "before the first file"
    assert done.returncode == 0, f"{where}{done.stderr[-3000:]}"
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["files"] == each * READERS
    assert len(found["readers"]) == READERS >= 25
    assert found["files"] >= (10_000 if each > 100 else 300)
    for files, read, refused in found["readers"].values():
        assert files == each == read + refused
