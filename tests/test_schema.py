"""Run folders that an earlier version wrote are read by all commands, and resumed or refused."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from safetensors.torch import load_file
from typer.testing import CliRunner

from bise import ExtractConfig, TrainConfig
from bise.base.errors import BadInput
from bise.base.files import SCHEMA, read_json
from bise.cli.app import app
from bise.engine.checkpoints import key_of
from bise.jobs.keys import KEYS
from bise.jobs.sources import described_by, trust_run
from bise.methods.refit.config import RefitConfig
from bise.runs.folder import Run
from bise.runs.schema import MIGRATIONS, read

OLD = Path(__file__).parent / "fixtures" / "schema1"
OWN = ["--model", "own_net:net", "--weights", "net.safetensors", "--data", "table.csv"]
COLUMNS = ["--target", "y", "--bias", "b", "--split-column", "split"]
OPTIONS = {3: {ExtractConfig: 44, TrainConfig: 19, RefitConfig: 5}}
"""{schema: how many options a run of it notes}; a new option is a new line, since runs of the last one lack it."""
AGAIN = ["extract", *OWN, *COLUMNS, "--steps", "5", "--upsilon", "2", "--seed", "0"]


@pytest.fixture
def old(tmp_path, monkeypatch):
    """A copy of the folders, whose model and data lie where they say, and are trusted."""
    folder = tmp_path / "old"
    shutil.copytree(OLD, folder)
    for path in folder.rglob("*.json"):
        path.write_text(path.read_text().replace("/elsewhere/", f"{folder}/"))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    for name in ("table", "older", "demo"):
        trust_run(folder / name)
    yield folder
    sys.modules.pop("own_net", None)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def good(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def sentence(*arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    return " ".join(result.stderr.split())


def content(path):
    return json.loads(path.read_text())


@pytest.mark.parametrize(("name", "unchecked"), [("table", set()), ("older", {"data"}), ("demo", {"data"})])
def test_an_old_run_keeps_its_promises(old, name, unchecked):
    """Nothing says today whether the data have the hashes that an older version noted."""
    found = json.loads(good("verify", old / name, "--json").stdout)
    states = {promise["name"]: promise["state"] for promise in found["promises"]}
    assert {one for one, state in states.items() if state == "unchecked"} == unchecked
    assert set(states.values()) <= {"holds", "unchecked"}
    assert len(states) == 10
    assert f"schema 1 as {SCHEMA}" in found["promises"][0]["detail"]


def test_damage_to_an_old_run_is_found(old):
    path = old / "table/config.json"
    path.write_text(path.read_text().replace('"gamma": 0.3', '"gamma": 0.4'))
    found = json.loads(run("verify", old / "table", "--json").stdout)
    assert {one["name"] for one in found["promises"] if one["state"] == "broken"} == {"configuration"}


@pytest.mark.parametrize("name", ["table", "older", "demo"])
def test_an_old_run_is_audited_and_shrunk_to_the_figures_of_then(old, name):
    noted = content(old / name / "summary.json")["subnetwork"]
    figures = ("accuracy", "unbiased", "worst_group", "by_group")
    audited = json.loads(good("audit", "--from", old / name, "--run", old / name, "--json").stdout)
    assert {key: audited[key] for key in figures} == {key: noted[key] for key in figures}
    shrunk = json.loads(good("shrink", old / name, "--json").stdout)
    sizes = ("parameters", "macs")
    assert {key: shrunk[key] for key in sizes} == {key: noted["shrunk"][key] for key in sizes}
    assert content(old / name / "summary.json")["schema"] == SCHEMA


@pytest.mark.parametrize("name", ["table", "older", "demo"])
def test_the_page_of_an_old_run_is_written_again(old, name):
    result = good("report", old / name)
    page = (old / name / "report.html").read_text(encoding="utf-8")
    command = "bise demo --seed 0 --rho 0.97" if name == "demo" else "bise extract --model own_net:net"
    assert command in page
    gathered = (old / name / "thresholds.json").exists() and (old / name / "samples.json").exists()
    assert gathered, result.output


def test_an_old_run_is_finetuned_and_refitted(old):
    good("refit", old / "table")
    good("finetune", old / "table", "--epochs", "1")
    assert content(old / "table/finetune.json")["schema"] == SCHEMA
    assert json.loads(good("verify", old / "table", "--json").stdout)["holds"]


def test_an_old_demo_hands_its_model_and_data_on_by_their_key(old):
    good(
        "extract", "--from", old / "demo", "--steps", "2", "--upsilon", "1", "--head-epochs", "1", "--out", old / "new"
    )
    source = content(old / "new/config.json")["source"]
    assert source == {
        "model": "demo:digits",
        "model_arguments": {},
        "weights": str(old / "demo/model.safetensors"),
        "data": "demo:digits",
        "data_arguments": {"seed": 0, "rho": 0.97},
    }


def test_an_old_extraction_goes_on_to_the_masks_of_then(old):
    good(*AGAIN, "--resume", "--out", old / "begun")
    then, now = (load_file(old / name / "subnetwork/subnetwork.safetensors") for name in ("table", "begun"))
    assert then.keys() == now.keys()
    assert all(then[key].equal(now[key]) for key in then)
    assert content(old / "begun/config.json")["schema"] == 1  # what was given stays as it was noted
    assert content(old / "begun/summary.json")["schema"] == SCHEMA


def test_an_old_extraction_that_is_finished_is_known_again(old):
    before = (old / "table/summary.json").read_bytes()
    result = good(*AGAIN, "--out", old / "table")
    assert "holds this run, finished; nothing was done" in " ".join(result.output.split())
    assert (old / "table/summary.json").read_bytes() == before


@pytest.mark.parametrize("name", ["older", "begun_older"])
def test_a_run_by_older_hashes_is_refused_in_a_sentence(old, name):
    line = sentence(*AGAIN, "--resume", "--out", old / name)
    assert "whose hashes of the data say nothing about today's" in line
    assert line.endswith("choose another folder with --out")
    assert "gamma" in sentence(*AGAIN, "--gamma", "0.4", "--out", old / name)  # what else differs is said first


RECIPE = {"recipe": "multi-color-mnist", "rho": [0.99, 0.95], "seed": 3}
BY_KEY = {"rho": [0.99, 0.95], "seed": 3}


@pytest.mark.parametrize("place", ["bise", "bise.jobs"])
def test_functions_of_ours_become_keys_and_others_stay(tmp_path, place):
    def migrated(**source):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"schema": 1, "source": source}))
        return read(path)["source"]

    recipe = migrated(
        model=f"{place}.recipes:architecture",
        model_arguments={"recipe": "multi-color-mnist"},
        data=f"{place}.recipes:splits",
        data_arguments=RECIPE,
    )
    key = "recipe:multi-color-mnist"
    assert recipe == {"model": key, "model_arguments": {}, "data": key, "data_arguments": BY_KEY}
    assert key in KEYS
    mixed = migrated(model=f"{place}.demo:digit_net", weights="w.safetensors", data="mine:splits")
    digits = {"model": "demo:digits", "model_arguments": {}}
    assert mixed == {**digits, "weights": "w.safetensors", "data": "mine:splits"}
    # what bise didn't write stays as it is, and is refused by who reads it
    odd = {"model": f"{place}.recipes:architecture", "model_arguments": {"recipe": ["celeba"]}, "data": 7}
    assert migrated(**odd) == odd


def test_an_old_name_brings_no_arguments_that_bise_does_not_write(tmp_path):
    source = {"model": "bise.demo:digit_net", "model_arguments": {"device": "cuda"}, "data": "table.csv"}
    (tmp_path / "config.json").write_text(json.dumps({"schema": 1, "source": source}))
    with pytest.raises(BadInput, match="calls demo:digits with 'device', which bise doesn't write"):
        described_by(tmp_path)


def test_every_schema_has_a_way_to_the_next(tmp_path):
    assert set(MIGRATIONS) == set(range(1, SCHEMA))
    (tmp_path / "config.json").write_text(json.dumps({"schema": SCHEMA + 1}))
    with pytest.raises(BadInput, match="newer than"):
        read(tmp_path / "config.json")


def test_an_option_more_is_a_schema_more():
    kinds = (ExtractConfig, TrainConfig, RefitConfig)
    assert OPTIONS.get(SCHEMA) == {kind: len(fields(kind)) for kind in kinds}


@pytest.mark.parametrize("name", ["table", "older", "demo", "begun", "begun_older"])
def test_an_old_run_is_read_with_every_option_of_today(name):
    """With one missing it would be a run of another configuration, which is refused."""
    config = read(OLD / name / "config.json")
    noted = [(ExtractConfig, config["extract"])]
    noted += [(TrainConfig, config[job]) for job in ("train", "finetune") if job in config]
    for part, kind in (("subnetwork", ExtractConfig), ("finetuned", TrainConfig)):
        if (path := OLD / name / part / "subnetwork.json").exists():
            noted.append((kind, read(path)["record"]["config"]))
    for kind, options in noted:
        assert set(options) == {one.name for one in fields(kind)}


def test_an_old_run_goes_on_with_checkpoints_by_the_key_of_then(tmp_path):
    """The key of a training's checkpoints is its configuration's as it was written."""
    data = {"recipe": "celeba", "seed": 0}
    given = {"job": "train", "source": {"data": "bise.recipes:splits", "data_arguments": data}, "seed": 0}
    (tmp_path / "checkpoints/train").mkdir(parents=True)
    (tmp_path / "config.json").write_text(json.dumps({"schema": 1, **given, "machine": {"cores": 2}}))
    now = {"job": "train", "source": {"data": "recipe:celeba", "data_arguments": {"seed": 0}}, "seed": 0}
    with Run(tmp_path, now, job="train", resume=True) as resumed:
        assert resumed.key == key_of(given)
    with Run(tmp_path / "new", now, job="train") as new:
        assert new.key == key_of(now)
    assert read_json(tmp_path / "new/config.json")["schema"] == SCHEMA
