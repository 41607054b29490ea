"""bise audit with limits: passes, fails and undecided on the command itself, and the JUnit file for each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

from bise.base.output import visible
from bise.cli.app import app
from bise.data import Labelled, LabelNames
from bise.measure.limits import Verdict
from bise.reporting.junit import junit

LIMITS = {"passes": "0.65", "undecided": "0.8", "fails": "0.9"}
"""For the worst group, of whose 100 samples 80 are right: 95 % [71, 88]."""


def model():
    made = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        made.weight.copy_(torch.eye(2))
    return made


def data(split):
    """Four groups of 100 samples; the model answers what the input says."""
    cells = [(0, 0, 95), (0, 1, 80), (1, 0, 90), (1, 1, 97)]
    rows = [(y, b, y if i < hits else 1 - y) for y, b, hits in cells for i in range(100)]
    y, b, answer = torch.tensor(rows).T
    names = LabelNames(target="hired", biases=("sex",), classes=("no", "y<s\x1b"), bias_classes=(("w", "m"),))
    x = nn.functional.one_hot(answer, 2).float() * 4
    return Labelled(TensorDataset(x), y=y, b=b, names=names, aligned={0: 0, 1: 1})


OWN = ["audit", "--model", f"{__name__}:model", "--data", f"{__name__}:data"]


def run(*limits):
    return CliRunner().invoke(app, [*OWN, *limits])


@pytest.mark.parametrize("command", [pytest.param("process", marks=pytest.mark.long), "here"])
@pytest.mark.parametrize(("outcome", "code"), [("passes", 0), ("undecided", 0), ("fails", 1)])
def test_each_outcome(outcome, code, command, tmp_path):
    """The exit code and the file, in a process as a build starts it too."""
    file = tmp_path / "build" / "limits.xml"
    limits = ["--fail-under", f"worst_group={LIMITS[outcome]}", "--junit", str(file)]
    if command == "here":
        done = run(*limits)
        found, out, err = done.exit_code, done.stdout, done.stderr
    else:
        path = os.pathsep.join([*sys.path, os.path.dirname(__file__)])
        ended = subprocess.run(
            [sys.executable, "-m", "bise", *OWN, *limits],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": path},
        )
        found, out, err = ended.returncode, ended.stdout, ended.stderr
    assert found == code, err
    said = f"worst_group {outcome}: 80.0 % ["
    assert (said in out, said in err) == ((True, False) if outcome == "passes" else (False, True))
    (suite,) = ElementTree.parse(file).getroot()
    (case,) = suite
    assert case.attrib["name"] == f"worst_group at least {LIMITS[outcome]}"
    assert [child.tag for child in case] == [
        {"passes": "system-out", "undecided": "skipped", "fails": "failure"}[outcome]
    ]
    counts = [int(suite.attrib[key]) for key in ("tests", "failures", "skipped", "errors")]
    assert counts == [1, outcome == "fails", outcome == "undecided", 0]


def test_one_that_fails_decides_and_json_has_all():
    found = run("--fail-under", "worst_group=0.9", "--fail-under", "accuracy=0.8", "--fail-gap", "0.1", "--json")
    assert found.exit_code == 1
    limits = json.loads(found.stdout)["limits"]
    assert [(one["figure"], one["outcome"]) for one in limits] == [
        ("worst_group", "fails"),
        ("accuracy", "passes"),
        ("gap of groups", "undecided"),
    ]
    assert "limits" not in json.loads(run("--json").stdout)


def test_a_groups_name_is_written_out_in_the_file(tmp_path):
    """XML has no place for a terminal's commands."""
    file = tmp_path / "limits.xml"
    assert run("--fail-gap", "0.01", "--junit", str(file)).exit_code == 1
    assert "hired=y<s\\x1b sex=m − hired=no sex=m" in ElementTree.parse(file).find(".//failure").attrib["message"]


STRANGE = ["\ufffe\uffff", "]]>", "\x00\x85\u2028", "\ud800", "\U0001f600", "a\n---\nb", "&lt;<a>\u202e"]


@pytest.mark.parametrize("strange", STRANGE, ids=ascii)
@pytest.mark.parametrize("value", [0.1, 0.5, 0.9], ids=["fails", "undecided", "passes"])
def test_any_name_is_xml(strange, value):
    """Also what XML has no character for: a name stands in a failure, a reason for skipping, and an output."""
    how = {"figure": "worst_group", "limit": 0.5, "is_gap": False, "where": strange}
    verdict = Verdict(value=value, interval=(value - 0.05, value + 0.05), **how)
    (suite,) = ElementTree.fromstring(junit([verdict], f"bise audit {strange}"))
    assert visible(strange) in suite.attrib["name"]
    (said,) = suite[0]
    assert visible(strange.replace("\n", "\\n")) in (said.text or said.attrib["message"])


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_the_file_takes_nobodys_place(kind, tmp_path):
    """/dev/stdout is a link, and would be a plain file from then on."""
    file = tmp_path / "limits.xml"
    if kind == "link":
        file.symlink_to(tmp_path / "other")
    else:
        os.mkfifo(file)
    done = run("--fail-gap", "0.5", "--junit", str(file))
    assert done.exit_code == 2
    assert "is a link, a pipe or a device; name a plain file" in done.stderr
    assert not file.is_file()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--fail-under", "0.8"], "--fail-under '0.8' is no limit; write worst_group=0.8"),
        (["--fail-under", "worst_group=80%"], "--fail-under 'worst_group=80%' is no limit; write worst_group=0.8"),
        (["--fail-under", "worst_group=80"], "--fail-under gives worst_group the limit 80.0; give a share from 0 to 1"),
        (["--fail-under", "worst=0.8"], "--fail-under names 'worst', which is unknown; use accuracy, unbiased"),
        (["--fail-gap", "sex=0.1"], "--fail-gap names 'sex', which is unknown; use groups, conflicting"),
        (["--fail-gap", "0.1", "--fail-gap", "groups=0.2"], "--fail-gap names groups twice; give one limit for it"),
        (["--junit", "x.xml"], "--junit x.xml is about limits, and there are none; give --fail-under or --fail-gap"),
        (["--junit", "/", "--fail-gap", "0.1"], "--junit / is a folder; name a file in it"),
    ],
)
def test_what_is_no_limit(given, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["audit", "--model", "nowhere:model", "--data", "nowhere:data", *given])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"bise: {sentence}")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
