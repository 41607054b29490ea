"""The demo's promises, over seeds that its settings weren't chosen on."""

from __future__ import annotations

import json

import pytest
import torch

from bise.data import labels
from bise.data.sets.digits import PALETTE, coloured_digits
from bise.jobs.demo import demo, look
from bise.jobs.keys import KEYS

MODELS = ("vanilla", "subnetwork", "refitted", "finetuned", "dense_finetuned")


def test_coloured_digits():
    data = coloured_digits(rho=0.97, seed=0)
    train, test = labels(data["train"]), labels(data["test"])
    assert train.rho[0] == pytest.approx(0.97, abs=0.01)
    assert len(set(test.counts.view(10, 10)[0].tolist())) == 1, "every colour equally often for a class"
    assert float(data["train"].tensors[0].abs().max()) <= 1
    again = coloured_digits(rho=0.97, seed=0)["train"]
    assert torch.equal(again.tensors[0], data["train"].tensors[0])


@pytest.mark.long
def test_the_demo_keeps_its_promise_over_seeds(tmp_path):
    runs = [demo(tmp_path / str(seed), seed=seed) for seed in (0, 1, 2)]  # chosen on 100 to 102
    for seed in (0, 1, 2):
        summary = json.loads((tmp_path / str(seed) / "summary.json").read_text())
        assert all({"accuracy", "unbiased", "worst_group", "by_group"} <= set(summary[name]) for name in MODELS)
        assert summary["weights"]["before"] == summary["weights"]["after"]
        page = tmp_path / str(seed) / "report.html"
        assert 100_000 < page.stat().st_size < 500_000
        assert "This model leaned on colour" in page.read_text(encoding="utf-8")
    mean = {name: sum(run[name]["unbiased"] for run in runs) / 3 for name in MODELS}
    assert mean["vanilla"] < 0.8
    assert mean["subnetwork"] >= max(0.8, mean["vanilla"] + 0.07)
    assert mean["refitted"] >= max(0.9, mean["vanilla"] + 0.12)
    assert mean["finetuned"] >= 0.9


def test_the_look_of_the_demo():
    digits = look(3, 0.9) | {"copies": 2}
    data, plain = coloured_digits(**digits), coloured_digits(rho=0.9, seed=3, copies=2)
    train, test = (data[split].tensors[0] for split in ("train", "test"))
    assert train.shape == plain["train"].tensors[0].shape
    assert torch.equal(data["train"].y, plain["train"].y)
    # the background is its palette's colour times the brightness, in the mean over many: a corner shows it
    ground = (test[:, :, 0, 0][data["test"].b.flatten() == 2] + 1) / 2
    expected = digits["brightness"] * torch.tensor(PALETTE[2])
    assert torch.allclose(ground.mean(0), expected, atol=0.02)
    assert float(ground[:, 2].std()) == pytest.approx(digits["noise"], abs=0.02)
    strokes = [(part["train"].tensors[0].mean(1) > 0.9).float() for part in (data, plain)]
    assert not torch.equal(*strokes), "turned and stretched"
    again = coloured_digits(**digits)["val"].tensors[0]
    assert torch.equal(again, data["val"].tensors[0])


def test_a_run_of_the_demo_says_how_its_data_came_about():
    digits = look(1, 0.97) | {"copies": 1}
    assert set(digits) <= set(KEYS["demo:digits"].data_arguments)
    one = KEYS["demo:digits"].data("val", **digits)
    assert torch.equal(one.tensors[0], coloured_digits(**digits)["val"].tensors[0])
