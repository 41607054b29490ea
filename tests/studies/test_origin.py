"""What rows and files of results say of where they come from."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from bise.base.version import VERSION
from bise.studies import origin
from bise.studies.origin import commit


def git(folder, *words):
    done = subprocess.run(
        ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path):
    """A package in a repository with one commit."""
    if shutil.which("git") is None:
        pytest.skip("no git here")
    package = tmp_path / "src" / "bise"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (tmp_path / "results").mkdir()
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    commit.cache_clear()
    yield package
    commit.cache_clear()


def test_a_source_tree_names_its_commit_and_says_if_its_code_differs(package, tmp_path):
    head = git(tmp_path, "rev-parse", "HEAD")[:10]
    (tmp_path / "results" / "a.json").write_text("{}")  # what studies write themselves
    assert commit(package) == head
    commit.cache_clear()
    (package / "__init__.py").write_text("x = 1")
    assert commit(package) == f"{head}+changes"


def test_a_package_beside_somebody_elses_code_is_not_of_their_commit(package, tmp_path):
    installed = tmp_path / ".venv" / "bise"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert commit(installed) == f"version {VERSION}"


def test_a_copy_without_git_takes_the_commit_that_is_named(monkeypatch):
    monkeypatch.setenv("BISE_COMMIT", "abcdef0123")
    assert origin.origin()["commit"] == "abcdef0123"
    assert origin.machine()["commit"] == "abcdef0123"
    assert origin.machine()["torch"]
