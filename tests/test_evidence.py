"""Every file of results has its origin in the index, and every generated table is what its file says."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bise.studies.catalogue import STUDIES

ROOT = Path(__file__).parent.parent
RESULTS, SCRIPTS = ROOT / "results", ROOT / "benchmarks"


@pytest.fixture(scope="module")
def index():
    spec = importlib.util.spec_from_file_location("index_of_results", SCRIPTS / "index.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path):
    """results/ to spoil."""
    return Path(shutil.copytree(RESULTS, tmp_path / "results"))


def test_every_file_has_an_entry_whose_command_exists(index):
    assert index.troubles(RESULTS, RESULTS / "README.md") == []
    assert index.studies() == set(STUDIES)


def test_a_file_that_no_command_writes_is_noticed(index, copy):
    (copy / "stray.json").write_text('{"schema": 1, "rows": []}')
    assert index.troubles(copy, copy / "README.md") == [
        "stray.json has no entry in README.md",
        "stray.json: nothing is known to write it",
        "stray.json names no commit, and none is listed for it",
    ]


def test_an_entry_without_its_file_is_noticed(index, copy):
    (copy / "soak.json").unlink()
    assert index.troubles(copy, copy / "README.md") == ["README.md has an entry for soak, which is not there"]


def test_rows_that_name_their_commit_are_listed_by_it(index, copy):
    content = json.loads((copy / "ranking.json").read_text(encoding="utf-8"))
    content["rows"][0] |= {"commit": "abcdef0123", "date": "2027-01-02", "bise": "0.2.0"}
    (copy / "ranking.json").write_text(json.dumps(content))
    assert index.troubles(copy, copy / "README.md") == ["README.md is not what the files say"]
    line = index.entry("ranking", content)
    assert line[2] == "committed in 15f21dc, 2 rows; abcdef0123"
    assert line[3:5] == ["2026-11-16; 2027-01-02", "0.2.0"]
    assert line[7] == "3 rows, 3 seeds"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("bise reproduce ranking", ""),
        ("bise reproduce rankings", "there is no `reproduce rankings`"),
        ("python benchmarks/gone.py", "there is no benchmarks/gone.py"),
        ("python benchmarks/soak.py --runs 200 --out a.json", ""),
        ("python benchmarks/soak.py --rounds 200 --out a.json", "soak.py has no --rounds"),
        ("python benchmarks/soak.py --runs 200", "it lacks --out"),
    ],
)
def test_a_command_that_cannot_be_run_is_refused(index, command, why):
    assert index.refusal(command) == why


def test_each_script_says_its_command_and_what_it_writes(index):
    words = {}
    for script in SCRIPTS.glob("*.py"):
        text = script.read_text(encoding="utf-8")
        words[script.name] = ast.get_docstring(ast.parse(text))
        if "__main__" in text:
            assert f"python benchmarks/{script.name}" in words[script.name], script.name
    for name, command in index.COMMANDS.items():
        script = Path(command.split()[1]).name
        assert f"results/{name}.json" in words[script], f"{script} doesn't say that it writes {name}.json"


PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, "benchmarks")
import tables
tables.ROOT = Path(sys.argv.pop(1))
tables.main()
"""


def check_tables(root: Path) -> tuple[int, str]:
    """What `python benchmarks/tables.py --check` says of the pages under `root`."""
    command = [sys.executable, "-c", PROGRAM, root, "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    return done.returncode, done.stdout.strip()


@pytest.mark.data
def test_every_table_is_what_its_file_says(data_root):
    assert check_tables(ROOT) == (0, "every table is up to date"), "run `make docs`"


def test_a_table_that_was_edited_is_noticed(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.png", "*.svg"))
    page = tmp_path / "docs/recipes.md"
    text = page.read_text(encoding="utf-8")
    assert "SGD 0.1 / 0.9 / 0.0001" in text
    page.write_text(text.replace("SGD 0.1 / 0.9 / 0.0001", "SGD 0.2 / 0.9 / 0.0001", 1), encoding="utf-8")
    assert check_tables(tmp_path) == (1, "recipes.md: recipes.py")


def test_every_mark_of_a_table_is_known():
    marks = [
        name
        for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]
        for name in re.findall(r"<!-- table: (.+?) -->", page.read_text(encoding="utf-8"))
    ]
    known = re.findall(r'^    "(\w+\.py[^"]*)":', (SCRIPTS / "tables.py").read_text(encoding="utf-8"), re.M)
    assert len(known) > 10
    assert sorted(marks) == sorted(["bise reproduce --page", *(f"benchmarks/{name}" for name in known)])
