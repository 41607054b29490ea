"""Ten extractions in one process leave nothing behind; benchmarks/soak.py does two hundred."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from conftest import ROOT

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")


@linux
@pytest.mark.long
def test_ten_extractions_leave_nothing_behind():
    spec = importlib.util.spec_from_file_location("soak", ROOT / "benchmarks" / "soak.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.soak(10, warm=6)
    assert found["growth_percent"] < 5
    assert found["hooks_left"] == 0
    assert found["handles"][0] == found["handles"][1]
    assert found["threads"][0] == found["threads"][1]
    assert found["weights_unchanged"]
