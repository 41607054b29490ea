"""Pages of the docs run as they stand, and what they show is what is printed, figures aside.

`python tests/test_docs.py` runs them and writes the output into them.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bise.cli import app

DOCS = Path(__file__).parent.parent / "docs"
PAGES = {"own_data.md": 8, "text.md": 1}
"""{page: blocks of output}"""
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
    """A text without what differs from machine to machine: figures, checksums and how wide a column is."""
    text = re.sub(r"sha256 \w+", "sha256 #", text)
    text = re.sub(r"\d[\d,.]*(e[+-]?\d+)?", "#", text)
    return re.sub(r"[\s─━┃│┏┓┡┩└┘┳╇┴]+", " ", re.sub(r"best mask on val, epoch #|last mask", "mask", text))


@pytest.mark.data
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # short code on the page, closed by the collector
@pytest.mark.parametrize("page", PAGES)
def test_pages(tmp_path, monkeypatch, data_root, page):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("BISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delitem(sys.modules, "net", raising=False)
    blocks = 0
    for block, printed in execute((DOCS / page).read_text(encoding="utf-8")):
        assert words(block.group(2)) == words(printed)
        blocks += 1
    assert blocks == PAGES[page]
    monkeypatch.delitem(sys.modules, "net", raising=False)


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
    for name in PAGES:
        update(DOCS / name)
