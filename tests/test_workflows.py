"""The workflows, those of this repository and the one that docs/ci.md shows: what they call exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from bise.cli.app import app

yaml = pytest.importorskip("yaml", reason="PyYAML, which transformers needs, is not installed")
ROOT = Path(__file__).parent.parent
(SHOWN,) = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs/ci.md").read_text(encoding="utf-8"), re.M | re.S)
WORKFLOWS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / ".github/workflows").glob("*.yml")}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def commands(text):
    """Every command of a workflow's steps, a line each."""
    jobs = yaml.safe_load(text)["jobs"].values()
    for step in (step for job in jobs for step in job["steps"]):
        yield from step.get("run", "").strip().splitlines()


@pytest.mark.parametrize("name", [*WORKFLOWS, "docs/ci.md"])
def test_a_workflow_reads_only_and_ends(name):
    content = yaml.safe_load(WORKFLOWS.get(name, SHOWN))
    assert content["permissions"] == {"contents": "read"}
    assert True in content, "YAML reads the key `on` as true"
    assert all("timeout-minutes" in job for job in content["jobs"].values())


def test_what_the_workflows_call_exists():
    called = [line for text in WORKFLOWS.values() for line in commands(text)]
    targets = {word for line in called for word in re.findall(r"^make (\S+)", line)}
    assert {"test", "demo", "dist", "site", "extras"} <= targets
    assert all(re.search(rf"^{target}:", MAKEFILE, re.MULTILINE) for target in targets)
    for python in yaml.safe_load(WORKFLOWS["tests.yml"])["jobs"]["tests"]["strategy"]["matrix"]["python"]:
        assert python in ("3.11", "3.12", "3.13")


def test_the_command_on_the_page_has_these_options():
    (line,) = [line for line in commands(SHOWN) if line.startswith("bise ")]
    command = typer.main.get_command(app).commands["audit"]
    known = {flag for parameter in command.params for flag in parameter.opts}
    assert {word for word in shlex.split(line) if word.startswith("--")} <= known
