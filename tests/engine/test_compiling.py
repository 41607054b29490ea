"""torch.compile beside gates: what it computes is the network that it was given."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

import bise
from bise.data.core.contract import labels
from bise.engine.compiling import compiled
from bise.engine.inputs import Inputs
from bise.engine.training import fit
from bise.methods.finetuning import owning
from bise.network.architectures.small import SimpleConvNet
from test_paths import pictures
from test_steps import GPU

# torch.compile's own: which ones it gives, and whether once a process, differs by version; those of bise stay errors
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", r"ignore:::torch\.")


def network():
    torch.manual_seed(0)
    return SimpleConvNet(3, widths=(8, 8), kernel=3).eval()


def half(model, example):
    """The model with every second unit closed."""
    names = bise.sites(model, example)
    return bise.subnetwork(model, {name: torch.arange(8) % 2 == 0 for name in names}, example=example)


@pytest.fixture
def on_cpu(monkeypatch):
    """torch.compile without a C compiler: its graphs as they are."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))


def test_gates_are_not_lost_behind_a_dense_network(on_cpu):
    model, x = network(), torch.randn(4, 3, 9, 9)
    sub = half(model, x)
    assert not torch.allclose(sub(x), model(x))
    dense = owning(model).network
    for one in (dense, sub.network, dense):
        with compiled(one) as fast, torch.no_grad():
            torch.testing.assert_close(fast(x), one(x))


def test_a_subnetwork_that_users_compile_themselves_has_its_gates(on_cpu):
    model, x = network(), torch.randn(4, 3, 9, 9)
    with compiled(owning(model).network) as fast:
        fast(x)
    sub = half(model, x)
    torch.testing.assert_close(torch.compile(sub.network)(x), sub(x))


@pytest.mark.parametrize("device", [GPU])
def test_a_subnetwork_is_finetuned_behind_its_gates(device):
    data = pictures()
    config = bise.TrainConfig(epochs=2, lr=0.05, precision="fp32", compile=True)
    inputs = Inputs(data, torch.device(device))
    fit(owning(network().to(device)), inputs, labels(data), config)  # the dense one, compiled
    sub = half(network().to(device), inputs.example())
    tuned = [bise.finetune(sub, data, config=replace(config, compile=c)) for c in (True, False)]
    losses = [[row["loss"] for row in one.record["history"]] for one in tuned]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
