"""The plan of the house: rooms that know those below alone, no cycle, modules and functions that fit a screen."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from graphlib import TopologicalSorter

import grimp
import pytest

from conftest import ROOT

SOURCE = ROOT / "src" / "bise"
MODULES = sorted(SOURCE.rglob("*.py"))
CONTRACTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"
NOT_NAMES = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
TABLES: dict[str, str] = {"cli/reproduce.py:reproduce": "the command's options, one after the other"}
"""Functions that may be longer, by module and name, each with the reason."""


def contracts(folder):
    """(exit code, output) of import-linter on the package in `folder`/src."""
    command = [sys.executable, "-c", CONTRACTS, "--no-cache", "--no-logo"]
    env = os.environ | {"PYTHONPATH": str(folder / "src"), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("house")
    shutil.copytree(SOURCE, folder / "src" / "bise", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_a_whole_copy_keeps_the_contracts(copied):
    code, said = contracts(copied)
    assert code == 0, said
    assert ", 0 broken." in said


UPWARDS = {
    "at the top": "from bise.reporting import parts\n",
    "in a function": "def later():\n    from bise.reporting import parts\n",
    "for types alone": "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from bise.reporting import parts\n",
}


@pytest.mark.parametrize("where", UPWARDS)
def test_an_import_of_a_higher_room_is_red(copied, where):
    path = copied / "src/bise/measure/information.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text + "\n\n" + UPWARDS[where], encoding="utf-8")
    code, said = contracts(copied)
    path.write_text(text, encoding="utf-8")
    assert code == 1
    assert "A room knows the rooms below it BROKEN" in said
    assert "bise.measure.information -> bise.reporting.parts" in said


def test_two_neighbours_that_know_each_other_are_red(copied):
    """fairness and groups both know checks, and may know each other one way."""
    paths = [copied / f"src/bise/measure/{name}.py" for name in ("fairness", "groups")]
    texts = [path.read_text(encoding="utf-8") for path in paths]
    paths[0].write_text(texts[0] + "\n\ndef a():\n    import bise.measure.groups\n", encoding="utf-8")
    assert contracts(copied)[0] == 0
    paths[1].write_text(texts[1] + "\n\ndef b():\n    import bise.measure.fairness\n", encoding="utf-8")
    code, said = contracts(copied)
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    assert code == 1
    assert "No two neighbours know each other, at any depth BROKEN" in said


def test_an_import_of_the_packages_front_is_red(copied):
    path = copied / "src/bise/base/markup.py"
    text = path.read_text(encoding="utf-8")
    path.write_text(text + "\n\ndef later():\n    import bise\n\n    return bise\n", encoding="utf-8")
    code, said = contracts(copied)
    path.write_text(text, encoding="utf-8")
    assert code == 1
    assert "Nothing in a room imports the package's front BROKEN" in said


@pytest.mark.parametrize(("other", "code"), [("finetuning", 0), ("pseudo_labels", 1)])
def test_a_new_method_may_know_finetuning_alone(copied, other, code):
    path = copied / "src/bise/methods/new.py"
    path.write_text(f"import bise.methods.{other}\n", encoding="utf-8")
    found, said = contracts(copied)
    path.unlink()
    assert found == code, said
    assert ("One method does not know another" in said.split("Contracts:")[1]) == (code == 1)


def test_a_room_that_no_contract_names_is_red(copied):
    room = copied / "src/bise/attic"
    room.mkdir()
    (room / "__init__.py").touch()
    code, said = contracts(copied)
    shutil.rmtree(room)
    assert code == 1
    assert "bise.attic" in said


def test_the_fronts_of_packages_are_in_no_cycle():
    """Neighbours alone are import-linter's: here a package's own `__init__` is a module like any other."""
    graph = grimp.build_graph("bise", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) == len(MODULES)
    TopologicalSorter(imports).prepare()  # raises CycleError, which names them


def test_at_most_a_dozen_names_at_the_top():
    names = {path.name for path in SOURCE.iterdir()} - NOT_NAMES
    assert len(names) <= 12, sorted(names)


def test_no_module_is_longer_than_350_lines():
    lengths = {path.relative_to(SOURCE).as_posix(): len(path.read_text("utf-8").splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > 350} == {}


def _lines(function):
    """Lines of a function, without its docstring: the reference needs many words."""
    first = function.body[0]
    told = first if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else None
    return function.end_lineno - function.lineno + 1 - (told.end_lineno - told.lineno + 1 if told else 0)


def test_no_function_is_longer_than_60_lines_but_tables():
    long = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and (length := _lines(node)) > 60:
                long[f"{path.relative_to(SOURCE).as_posix()}:{node.name}"] = length
    assert {name: length for name, length in long.items() if name not in TABLES} == {}
    assert TABLES.keys() <= long.keys(), "a table that is short now needs no exception"
