"""The wheel builds, and works where no extra is installed."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

PROGRAM = """
import sys
import torch, bise
assert bise.__file__.startswith(sys.argv[1]), bise.__file__
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
y = torch.arange(40) % 2
b = torch.where(torch.arange(40) % 5 == 0, 1 - y, y)
data = bise.data.Labelled(torch.utils.data.TensorDataset(torch.randn(40, 4)), y=y, b=b)
sub = bise.extract(model, data, config=bise.ExtractConfig(upsilon=1, steps=2, head_epochs=1, head_steps=1))
print(bise.audit(sub, data))
from pathlib import Path
from bise.jobs.extract import extract_job
run = Path(sys.argv[2] + "-extract")
quick = {"upsilon": 1, "steps": 2, "head_epochs": 1, "head_steps": 1}
extract_job(model, lambda split: data, run, preset="balanced", changes=quick, bottleneck=None, sites=None, source={},
            progress=lambda *_: None)
assert "<svg" in (run / "report.html").read_text(encoding="utf-8")
from bise.cli.app import app
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
    assert {"bise/py.typed", "bise/reporting/page.js", "bise/reporting/style.css"} <= set(names)
    assert not any("test" in name for name in names)


def core(folder: Path, names: set[str]) -> None:
    """Link the named distributions and what they require into `folder`, and nothing else."""
    folder.mkdir()
    done: set[str] = set()
    while names:
        name = names.pop()
        done.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # required on other platforms only
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (folder / top).exists():
                (folder / top).symlink_to(found.locate_file(top))
        required = {re.split(r"[ ;<>=!~\[(]", r)[0] for r in found.requires or () if "extra ==" not in r}
        names |= {name.lower() for name in required} - done


def test_the_wheel_works_without_extras(wheel, tmp_path):
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    core(tmp_path / "core", {"torch", "numpy", "safetensors", "typer", "rich"})
    assert not (tmp_path / "core/sklearn").exists()
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM, str(site), str(tmp_path / "run")],
        env=os.environ | {"PYTHONPATH": f"{site}{os.pathsep}{tmp_path / 'core'}", "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "unbiased" in done.stdout
