"""Loggers by the real MLflow, W&B and TensorBoard, where these are installed: what was written is read again."""

from __future__ import annotations

import importlib.util
import json
import math

import pytest

import bise
from bise import BadInput
from bise.jobs.loops.epochs import EpochAudits
from conftest import toy, toy_model, trained

ROWS = [
    {"job": "audit", "epoch": 1, "worst_group": 0.25, "gone": math.nan, "group": {"sex=f <50": 0.5}, "note": "words"},
    {"job": "audit", "epoch": 2, "worst_group": 0.75, "group": {"sex=f <50": 1.0}},
    {"epoch": 3, "mi": 0.125},
]


def test_mlflow_with_a_local_file_store(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with mlflow.start_run() as run:
        log = bise.to_mlflow()
        for row in ROWS:
            log(row)
    bise.to_mlflow(run.info.run_id, prefix="late/")({"epoch": 9, "accuracy": 0.5})  # a run that has ended
    client = mlflow.MlflowClient()
    found = dict(client.get_run(run.info.run_id).data.metrics)
    assert found == {
        "bise/audit/worst_group": 0.75, "bise/audit/group/sex_f _50": 1.0, "bise/mi": 0.125, "late/accuracy": 0.5,
    }  # fmt: skip
    history = client.get_metric_history(run.info.run_id, "bise/audit/worst_group")
    assert [(one.step, one.value) for one in history] == [(1, 0.25), (2, 0.75)]
    assert list(tmp_path.rglob("worst_group")), "in files, in the folder"


def test_wandb_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with pytest.raises(BadInput, match=r"no run of W&B is under way; call wandb.init\(\) before"):
        bise.to_wandb()
    with wandb.init(mode="offline", project="bise", dir=tmp_path) as run:
        for log in (bise.to_wandb(), bise.to_wandb(run)):
            log(ROWS[0])
        found = dict(run.summary)
    assert found["bise/audit/worst_group"] == 0.25
    assert found["bise/audit/group/sex=f <50"] == 0.5
    assert found["bise/epoch"] == 1
    assert "bise/audit/gone" not in found


def test_tensorboard(tmp_path):
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="the extra log is not installed"
    )
    log = bise.to_tensorboard(tmp_path / "events")
    for row in ROWS:
        log(row)
    found = reader.EventAccumulator(str(tmp_path / "events"))
    found.Reload()
    assert [(one.step, one.value) for one in found.Scalars("worst_group")] == [(1, 0.25), (2, 0.75)]
    assert found.Scalars("group/sex=f <50")[1].value == 1.0


def test_any_function_is_a_logger(tmp_path):
    """A logger is one function of a row: here one that writes JSON, told by an extraction and an audit."""
    path = tmp_path / "rows.jsonl"

    def log(row):
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    watch = EpochAudits(toy(rho=1 / 3, seed=1), log=log)
    model = trained(toy_model(), toy())
    watch.look(model, 1)
    bise.extract(model, toy(), config=bise.ExtractConfig(upsilon=1, steps=2, head_epochs=1, head_steps=1), log=log)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows[0]["worst_group"] == watch.audits[0].worst_group
    assert {row["epoch"] for row in rows[1:]} >= {1}


@pytest.mark.parametrize(("package", "make"), [("mlflow", bise.to_mlflow), ("wandb", bise.to_wandb)])
def test_a_missing_package_is_named(package, make):
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(BadInput, match=f"(?i){package} is not installed; install .*pip install"):
        make()
