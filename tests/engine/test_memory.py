"""What grows with the number of samples stays within the budget that the user sets."""

from __future__ import annotations

import errno
import gc
import importlib.util
import os
import sys

import pytest
import torch

import bise
from bise import BadInput, ExtractConfig
from bise.data import Labelled, labels
from bise.engine.inference import infer
from bise.engine.inputs import Inputs
from bise.engine.storage import LABELS, Memory, Store
from bise.engine.validation import Validation
from conftest import ROOT, Stream, toy, toy_model, trained

CPU = torch.device("cpu")
BRIEF = {"upsilon": 1, "tau_min": 0.6, "head_epochs": 2}
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")


def benchmark():
    path = ROOT / "benchmarks" / "memory.py"
    spec = importlib.util.spec_from_file_location("memory_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.long
@linux
def test_peak_memory_on_streamed_data_stays_within_the_budget():
    apart, memory = benchmark().apart, 6_000_000
    small, large = (apart(n, 512, memory, "paper") for n in (1000, 16000))
    assert large["features"] > 5 * memory
    assert large["peak"] - small["peak"] < memory
    without = apart(16000, 512, 1 << 30, "paper")
    assert without["peak"] > without["features"], "the measure should see features that are in memory"


@pytest.mark.parametrize("preset", [ExtractConfig.balanced, ExtractConfig.paper])
def test_features_in_a_file_and_in_memory_learn_the_same(preset):
    data = toy()
    model = trained(toy_model(), data)
    one, other = (
        bise.extract(model, data, config=preset(memory=memory, **BRIEF)) for memory in (LABELS * 600, 1 << 30)
    )
    assert all(torch.equal(one.scores[n], other.scores[n]) for n in one.scores)


def test_a_budget_that_cannot_hold_the_labels_is_refused():
    data = toy()
    with pytest.raises(
        BadInput, match=r"memory=1,000 bytes can't hold the labels .* 600 samples; give at least 72,000"
    ):
        bise.extract(toy_model(), data, config=ExtractConfig(memory=1000))
    memory = Memory(100_000, 600, 2)
    assert memory.left == 100_000 - 600 * 144
    memory.take(1 << 20)
    assert memory.left == 0


@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_a_store_gives_back_what_was_written(budget):
    values = torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    store = Store(60, 7, CPU, budget)
    store.write(5, values[:20])
    store.write(25, values[20:])
    index = torch.tensor([54, 5, 5, 30, 0])
    expected = torch.cat([torch.zeros(5, 7), values, torch.zeros(5, 7)])
    assert torch.equal(store.take(index), expected[index])
    assert torch.equal(store.rows, expected)
    batches = [x for x, _ in Inputs(store, CPU).batches(index, 2)]
    assert torch.equal(torch.cat(batches), expected[index])


def test_a_stores_file_has_no_name_and_goes_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    gc.collect()
    open_files = len(os.listdir("/proc/self/fd")) if sys.platform.startswith("linux") else None
    store = Store(10, 3, CPU, 0)
    assert not list(tmp_path.iterdir())
    del store
    gc.collect()
    if open_files is not None:
        assert len(os.listdir("/proc/self/fd")) == open_files


def test_a_store_without_the_systems_calls_uses_its_mapping(monkeypatch):
    monkeypatch.delattr(os, "preadv")
    store = Store(10, 3, CPU, 0)
    store.write(2, torch.ones(4, 3))
    assert torch.equal(store.take(torch.tensor([1, 2]))[:, 0], torch.tensor([0.0, 1.0]))


def test_no_room_for_the_file_is_one_sentence(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(
        BadInput, match="cached features take 8 GB, for which .* has no room .*; set TMPDIR to"
    ) as caught:
        Store(1_000_000, 2000, CPU, 0)
    assert "\n" not in str(caught.value)
    monkeypatch.delattr(os, "posix_fallocate")
    with pytest.raises(BadInput, match="has no room"):
        Store(10**9, 10**6, CPU, 0)


def test_validation_counts_batch_by_batch_and_says_what_an_audit_says():
    data = toy(rho=0.5, n=700)
    data = Labelled(data.dataset, y=data.y, b=torch.where(torch.arange(700) % 5 == 0, -1, data.b), bias_classes=3)
    sub = bise.Subnetwork(trained(toy_model(), toy()), ())
    found = Validation(Stream(data), labels(toy()), Inputs(data, CPU))(sub)
    audit = bise.audit(sub, data, probe=False)
    assert found == pytest.approx({k: getattr(audit, k) for k in ("accuracy", "unbiased", "worst_group")}, abs=1e-12)
    logits = infer(sub, Inputs(data, CPU)).logits
    assert found["accuracy"] == pytest.approx(float((logits.argmax(1) == data.y).double().mean()))


def test_nothing_finite_is_refused_wherever_it_stands():
    x = torch.zeros(9001, 2)
    Inputs(torch.utils.data.TensorDataset(x), CPU)
    x[8999, 1] = float("inf")
    with pytest.raises(BadInput, match="sample 8999 holds NaN or infinity"):
        Inputs(torch.utils.data.TensorDataset(x), CPU)
