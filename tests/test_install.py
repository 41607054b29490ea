"""The wheel builds, and works where no extra is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

PROGRAM = """
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {"sklearn", "torchvision", "timm", "transformers", "fairlearn"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
import torch, bise
assert bise.__file__.startswith(sys.argv[1]), bise.__file__
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
y = torch.arange(40) % 2
b = torch.where(torch.arange(40) % 5 == 0, 1 - y, y)
data = bise.data.Labelled(torch.utils.data.TensorDataset(torch.randn(40, 4)), y=y, b=b)
sub = bise.extract(model, data, config=bise.ExtractConfig(upsilon=1, steps=2, head_epochs=1, head_steps=1))
print(bise.audit(sub, data))
from bise.cli import app
from typer.testing import CliRunner
result = CliRunner().invoke(app, ["demo", "--out", sys.argv[2]])
assert result.exit_code == 2 and "bise[demo]" in result.stderr, result.output
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_is_typed_and_holds_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "bise/py.typed" in names
    assert not any("test" in name for name in names)


def test_the_wheel_works_without_extras(wheel, tmp_path):
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(site), str(tmp_path / "run")],
        env=os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "unbiased" in done.stdout
