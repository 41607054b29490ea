"""Every code block of README and docs runs as it stands, or says before it why it doesn't.

What docs/own_data.md and docs/text.md show is what is printed, figures aside; `python tests/test_docs.py` runs them and
writes the output into them. A page that "continues quickstart.md" runs in what that page left.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import pkgutil
import re
import shlex
import sys
import tempfile
import types
from pathlib import Path

import pytest
from typer.testing import CliRunner

import bise
import bise.data
from bise.cli.app import app
from bise.data import names
from bise.jobs.recipes import RECIPES
from bise.methods.rivals.listed import METHODS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SHOWN = {"own_data.md": 8, "text.md": 1}
"""{page: blocks of output}"""
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md")])
OF_A_READER = {"nets.py"}
"""Files that a reader is to write."""
CONTINUES = "<!-- continues quickstart.md -->"
LIGHTNING = "ignore:.*isinstance.treespec, LeafSpec:FutureWarning"  # Lightning's own call of torch
CONTINUING = [page for page in PAGES if CONTINUES in page.read_text(encoding="utf-8")]
FENCE = re.compile(r"(?:^<!-- not run: (?P<why>[^\n]+) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def execute(page: str):
    """(output block, what the block before it printed), in order, every block run in the working folder."""
    namespace: dict[str, object] = {}
    printed = ""
    for block in BLOCK.finditer(page):
        language, text = block.groups()
        if language == "text":
            yield block, printed
        elif language == "bash":
            printed = "".join(command(line) for line in text.strip().splitlines())
        elif text.startswith("# file: "):
            name, _, body = text.removeprefix("# file: ").partition("\n")
            Path(name).write_text(body)
        else:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, "a page of the docs", "exec"), namespace)
            printed = out.getvalue()


def command(line: str) -> str:
    program, *arguments = shlex.split(line)
    assert program == "bise"
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    return "\n".join(row.rstrip() for row in result.stdout.strip("\n").splitlines()) + "\n"


def words(text: str) -> str:
    """A text without what differs from machine to machine: figures, checksums, what is slower, how wide a column is."""
    text = re.sub(r"sha256 \w+", "sha256 #", text)
    text = re.sub(r"The shrunk network is slower than[^;]*;[^.]*\.", "", text)  # of a few neurons, now and then
    text = re.sub(r"\d[\d,.]*(e[+-]?\d+)?", "#", text)
    return re.sub(r"[\s─━┃│┏┓┡┩└┘┳╇┴]+", " ", re.sub(r"best mask on val, epoch #|last mask", "mask", text))


@pytest.mark.data
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # short code on the page, closed by the collector
@pytest.mark.parametrize("page", [pytest.param(p, marks=pytest.mark.long) if p == "text.md" else p for p in SHOWN])
def test_pages(tmp_path, monkeypatch, data_root, page):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("BISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "net", raising=False)
    blocks = 0
    for block, printed in execute((DOCS / page).read_text(encoding="utf-8")):
        assert words(block.group(2)) == words(printed)
        blocks += 1
    assert blocks == SHOWN[page]
    monkeypatch.delitem(sys.modules, "net", raising=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_run_or_says_why_not(page):
    """A page is run whole, README's blocks by tests of their own; what isn't run has a reason before it."""
    run = page in CONTINUING or page.name in ("quickstart.md", "README.md", *SHOWN)
    for block in FENCE.finditer(page.read_text(encoding="utf-8")):
        if block["why"] is None:
            assert run, f"{page.name}: this block is never run:\n{block['text']}"
            assert block["language"] in ("python", "bash", "text"), f"{page.name}: not run:\n{block['text']}"


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_files_and_names_of_the_source_exist():
    """Python files are named by their path below the checkout or the end of it below `src/bise`; names are imported."""
    sources = [path.relative_to(ROOT / "src/bise").parts for path in (ROOT / "src/bise").rglob("*.py")]
    ends = {"/".join(parts[start:]) for parts in sources for start in range(len(parts))}
    for page in PAGES:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        for named in re.findall(r"`((?:[\w.-]+/)*\w+\.py|src/bise(?:/\w+)*/?)`", text):
            assert named in ends | OF_A_READER or (ROOT / named).exists(), f"{page.name} names {named}"
        for dotted in re.findall(r"`(bise(?:\.\w+)+)`", text):
            pkgutil.resolve_name(dotted)


def test_each_room_has_a_line_in_the_plan():
    plan = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = [path.parent.name for path in (ROOT / "src/bise").glob("*/__init__.py")]
    assert sorted(re.findall(r"^  (\w+)/ ", plan, re.MULTILINE)) == sorted(rooms)


def test_every_data_set_and_recipe_is_told_of():
    pages = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("data", "recipes")}
    assert all(f"`{name}`" in pages["data"] for name in names())
    help_ = " ".join(CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).stdout.split())
    for name in RECIPES:
        assert name in pages["recipes"]
        assert name in help_


def test_every_listed_method_is_told_of():
    page = (DOCS / "bench.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in METHODS)


def python_of(page: Path) -> str:
    """The page's Python in one piece, its lines where they are in the page, so that an error names the line."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for block in FENCE.finditer(text):
        if block["language"] == "python" and block["why"] is None:
            first = text.count("\n", 0, block.start("text"))
            for i, line in enumerate(block["text"].splitlines()):
                lines[first + i] = line
    return "\n".join(lines)


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    """What the quick start leaves behind, run once."""
    page = ROOT / "docs" / "quickstart.md"
    names: dict[str, object] = {}
    with contextlib.chdir(tmp_path_factory.mktemp("quickstart")):
        exec(compile(python_of(page), str(page), "exec"), names)
    return names


def test_the_quick_start(quickstart):
    gain = quickstart["after"].conflicting.accuracy - quickstart["before"].conflicting.accuracy
    assert gain > 0.1


@pytest.mark.filterwarnings(
    LIGHTNING, "ignore:.*does not have many workers", "ignore:.*smaller than the logging interval"
)
@pytest.mark.parametrize("page", CONTINUING, ids=lambda page: page.name)
def test_a_page_that_continues(page, quickstart, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = python_of(page)
    assert code.strip(), "a page without Python that runs belongs elsewhere"
    exec(compile(code, str(page), "exec"), dict(quickstart))


PUBLIC = [
    test
    for module in (bise, bise.data)
    for name in module.__all__
    for test in doctest.DocTestFinder().find(getattr(module, name), f"{module.__name__}.{name}", globs={})
    if test.examples and not isinstance(getattr(module, name), types.ModuleType)
]


@pytest.mark.parametrize("example", PUBLIC, ids=lambda test: test.name)
def test_examples_of_docstrings(example, quickstart, tmp_path, monkeypatch):
    """The reference's examples, each in what the quick start leaves behind."""
    monkeypatch.chdir(tmp_path)
    example.globs = dict(quickstart)
    said = []
    doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert "".join(said) == ""


@pytest.mark.long
def test_the_readmes_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "nets.py").write_text(NETS)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = (b["text"] for b in FENCE.finditer(text) if b["language"] == "bash")
    sys.modules.pop("nets", None)
    from nets import make  # what the README calls it
    from safetensors.torch import save_file

    save_file(make().state_dict(), "net.safetensors")
    for line in block.strip().splitlines():
        command(line)
    assert Path("model.onnx").exists()
    assert Path("runs/mine/report.html").exists()
    sys.modules.pop("nets", None)


NETS = """
from conftest import toy, toy_model, trained

def make():
    return trained(toy_model(), toy())

def load(split):
    return {"train": toy(), "val": toy(rho=1 / 3, seed=1), "test": toy(rho=1 / 3, seed=2)}[split]
"""


def update(path: Path) -> None:
    """Run a page in a folder of its own and put what it prints into it."""
    page = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        found = list(execute(page))
    for block, printed in reversed(found):
        start, end = block.span()
        page = f"{page[:start]}```text\n{printed}```{page[end:]}"
    path.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    for name in SHOWN:
        update(DOCS / name)
