"""The demo's promises, over its three seeds."""

from __future__ import annotations

import json

import pytest
import torch

from bise.data import labels
from bise.data.sets.digits import coloured_digits
from bise.jobs.demo import demo

MODELS = ("vanilla", "subnetwork", "finetuned", "dense_finetuned")


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
    runs = [demo(tmp_path / str(seed), seed=seed) for seed in (0, 1, 2)]
    for seed in (0, 1, 2):
        summary = json.loads((tmp_path / str(seed) / "summary.json").read_text())
        assert all({"accuracy", "unbiased", "worst_group", "by_group"} <= set(summary[name]) for name in MODELS)
        assert summary["weights"]["before"] == summary["weights"]["after"]
        page = tmp_path / str(seed) / "report.html"
        assert 100_000 < page.stat().st_size < 500_000
        assert "This model leaned on colour" in page.read_text(encoding="utf-8")
    mean = {name: sum(run[name]["unbiased"] for run in runs) / 3 for name in MODELS}
    assert mean["subnetwork"] >= mean["vanilla"] + 0.15
    assert mean["finetuned"] >= mean["vanilla"] + 0.30
