"""The environment that make builds: torchvision, timm and transformers import there, in a plain `python -c`."""

from __future__ import annotations

import runpy
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from test_install import core

FIT = Path(__file__).parent.parent / "environment/fit.py"
HOOK = "bise_torchvision"
PROGRAM = """
import torch, torchvision
print(torchvision.models.resnet18().fc.out_features)
try:
    torchvision.ops.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
except RuntimeError as error:
    print(error)
"""


def python(folder, *arguments, **how):
    """What a Python of the environment in `folder` does, started as a user starts it."""
    return subprocess.run([folder / "bin/python", *arguments], capture_output=True, text=True, **how)


def site_of(folder):
    return next(folder.glob("lib/python*/site-packages"))


@pytest.fixture
def environment(tmp_path):
    """A new environment, and what shows in it the packages of a folder, without the .pth files that lie there."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=False, symlinks=True)

    def showing(packages):
        (site_of(folder) / "packages.pth").write_text(f"{packages}\n", encoding="utf-8")
        return folder

    return showing


def test_torchvision_imports_once_make_has_looked_at_it(environment, tmp_path):
    core(tmp_path / "packages", {"torch", "torchvision", "numpy", "pillow"})
    folder = environment(tmp_path / "packages")
    before = python(folder, "-c", "import torchvision")
    looked = python(folder, FIT)
    after = python(folder, "-c", PROGRAM)
    assert looked.returncode == 0, looked.stderr
    assert after.stdout.startswith("1000\n"), after.stderr
    made = sorted(path.name for path in site_of(folder).glob(f"{HOOK}*"))
    if before.returncode == 0:  # wheels that fit are left alone
        assert (made, looked.stderr) == ([], "")
        return
    assert made == [f"{HOOK}.pth", f"{HOOK}.py"]
    assert looked.stderr.startswith("warning: the wheels of torch 2.")
    assert "PIP_ARGS" in looked.stderr
    assert looked.stderr.count("\n") == 1, "and all of them import after that"
    assert "compatib" in after.stdout, "torchvision itself says that its operators are missing"


def test_other_starts_of_python_import_nothing_for_it(environment, tmp_path):
    folder = environment(tmp_path)
    (site_of(folder) / f"{HOOK}.py").write_text((FIT.parent / f"{HOOK}.py").read_text(encoding="utf-8"))
    loaded = "import sys; print(sorted(sys.modules))"
    without = python(folder, "-c", loaded).stdout
    (site_of(folder) / f"{HOOK}.pth").write_text(f"import {HOOK}\n", encoding="utf-8")
    assert set(eval(python(folder, "-c", loaded).stdout)) - set(eval(without)) == {HOOK}


def test_a_torchvision_that_fits_is_left_alone(environment, tmp_path):
    """One that has its operators, in place of a wheel that this machine may not have."""
    package = tmp_path / "packages/torchvision"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from . import extension, _meta_registrations\n")
    (package / "_meta_registrations.py").write_text("")
    (package / "extension.py").write_text("def _has_ops():\n    return True\n")
    folder = environment(f"{package.parent}\n{sysconfig.get_paths()['purelib']}")
    (site_of(folder) / f"{HOOK}.py").write_text((FIT.parent / f"{HOOK}.py").read_text(encoding="utf-8"))
    (site_of(folder) / f"{HOOK}.pth").write_text(f"import {HOOK}\n", encoding="utf-8")
    program = "import sys, torchvision, torch; print(hasattr(torch.ops.torchvision, 'nms'), *map(str, sys.meta_path))"
    done = python(folder, "-c", program)
    assert done.stdout.startswith("False "), done.stderr
    assert HOOK not in done.stdout


def test_what_does_not_fit_otherwise_is_named(environment, tmp_path):
    package = tmp_path / "packages/timm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('cannot import name Thing from torch')\n")
    for name, number in (("timm", "1.0"), ("torch", "2.13")):
        about = package.parent / f"{name}-{number}.dist-info/METADATA"
        about.parent.mkdir()
        about.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    done = python(environment(package.parent), FIT)
    assert done.returncode == 0
    assert done.stderr == (
        "warning: timm 1.0 can't be imported beside torch 2.13 (ImportError: cannot import name Thing from torch);"
        " install torch and torchvision from one index, which PIP_ARGS of the Makefile can name.\n"
    )


@pytest.mark.long
def test_timm_and_transformers_import_for_a_users_own_code(environment):
    folder = environment(sysconfig.get_paths()["purelib"])
    assert python(folder, FIT).returncode == 0
    program = "import torchvision, timm; from transformers import BertModel; print(timm.create_model('resnet18').fc)"
    done = python(folder, "-c", program)
    assert done.stdout == "Linear(in_features=512, out_features=1000, bias=True)\n", done.stderr


def test_make_looks_at_what_it_installed():
    makefile = (FIT.parent.parent / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "dev"):  # the others add what needs no torch
        recipe = makefile.partition(f".venv/{target}:")[2].partition("touch")[0]
        assert recipe.index("$(INSTALL) --editable") < recipe.index("\t$(FIT)\n")
    assert "vision,text" in makefile.partition(".venv/demo:")[2].partition("touch")[0]


def test_every_extra_is_tried_by_itself():
    """`make extras` has a program for each; it takes minutes and a network, so that the workflow runs it."""
    script = runpy.run_path(str(FIT.parent / "extras.py"))
    assert set(script["PROGRAMS"]) == {script["NONE"], *script["extras"]()}
    for program in script["PROGRAMS"].values():
        compile(script["START"] + program, "a program", "exec")
