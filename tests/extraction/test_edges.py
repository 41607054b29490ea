"""Numbers at the edge: huge scores, tiny temperatures, lone samples, many groups, one unit, any γ, any precision."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import bise
from bise import ExtractConfig
from bise.data import Labelled, labels
from bise.data.core.weights import group_weights
from bise.extraction.early_stopping import cannot_flip, coast
from bise.extraction.objective import information, information_gradient, joint_table
from bise.extraction.scores import Scores
from bise.network.gates import slope
from conftest import toy, toy_inputs, toy_model, trained

BRIEF = {"upsilon": 1, "steps": 4, "batch_size": 60, "head_epochs": 2}
SGD = {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4}


def quietly(model, data, **changes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bise.BiseWarning)
        return bise.extract(model, data, config=ExtractConfig(**(BRIEF | changes)))


def finite(sub):
    return all(score.isfinite().all() for score in sub.scores.values()) and all(
        math.isfinite(row[key]) for row in sub.record["history"] for key in ("loss", "cross_entropy", "head_loss")
    )


# scores and temperatures


def test_slopes_of_huge_scores_and_tiny_temperatures():
    """σ'(m/τ)/τ by hand: a quarter of 1/τ at 0, σ(1)σ(−1)/τ at m = τ, and nothing far out."""
    m = torch.tensor([-1e4, -1.0, 0.0, 1.0, 1e4], dtype=torch.float64)
    assert slope(m, 1e-8).tolist() == [0, 0, 0.25e8, 0, 0]
    one = math.exp(-1) / (1 + math.exp(-1)) ** 2
    assert slope(torch.tensor([1e-8, -1e-8], dtype=torch.float64), 1e-8).tolist() == pytest.approx([one * 1e8] * 2)
    assert slope(m.float(), torch.tensor(1.0)).tolist() == pytest.approx([0, one, 0.25, one, 0])


def test_a_step_on_huge_scores_is_decay_alone():
    sub = bise.subnetwork(toy_model(), {"2": torch.ones(16)}, example=torch.zeros(2, 8))
    scores = Scores(sub, torch.device("cpu"))
    start = torch.tensor([1e4, -1e4] * 8)
    scores.flat.copy_(start)
    scores.step(torch.full((16,), 1e6), torch.tensor(1.0), **SGD)
    assert torch.allclose(scores.flat.double(), start.double() * (1 - 1e-6), rtol=1e-7)
    scores.set_mask()
    assert sub.masks["2"].tolist() == [True, False] * 8
    assert sub.at(0.9999).masks["2"].tolist() == [True, False] * 8
    assert sub.at(1.0).units == (0, 16)


def test_huge_scores_are_settled_and_coast_to_the_closed_form():
    m, still = torch.tensor([1e4, -1e4]), torch.zeros(2)
    phases = [(100, 1e-8)]
    assert cannot_flip(m, still, torch.full((2,), 1e6), phases, **SGD).all()
    moved = m.double()
    velocity = still.double()
    for _ in range(100):
        velocity = 0.9 * velocity + 1e-4 * moved
        moved = moved - 0.01 * velocity
    assert torch.allclose(coast(m, still, 100, **SGD).double(), moved, rtol=1e-6)


def test_an_extraction_down_to_a_temperature_of_1e_8():
    data = toy()
    config = ExtractConfig(**BRIEF, tau_min=1e-8, early_stop=False)
    assert config.temperatures()[-1] == 0.5**26
    sub = quietly(trained(toy_model(), data), data, tau_min=1e-8, early_stop=False)
    assert len(sub.record["history"]) == 27
    assert finite(sub)


# groups


def test_one_sample_in_a_group():
    """3 × 3 cells, of which one holds a single sample: it counts as much as the 60 of another."""
    y = torch.arange(541) % 3
    b = (y + torch.arange(541) // 3 % 3) % 3
    lone = torch.tensor([i for i in range(541) if (y[i], b[i]) != (0, 1)] + [int(((y == 0) & (b == 1)).nonzero()[0])])
    y, b = y[lone], b[lone]
    weights = group_weights(y * 3 + b)
    assert float(weights[-1]) == pytest.approx(len(y) / 9)
    assert float(weights.mean()) == pytest.approx(1)
    x = toy_inputs(y, b, torch.Generator().manual_seed(0))
    data = Labelled(TensorDataset(x), y=y, b=b, aligned=[0, 1, 2])
    model = trained(toy_model(), data)
    sub = quietly(model, data)
    assert finite(sub)
    found = bise.audit(sub, data)
    with torch.no_grad():
        right = sub(x).argmax(1) == y
    assert found.accuracy == pytest.approx(float(right.double().mean()))
    cells = [right[(y == i) & (b == j)].double().mean() for i in range(3) for j in range(3)]
    assert found.unbiased == pytest.approx(float(torch.stack(cells).mean()))
    assert found.worst_group == pytest.approx(float(torch.stack(cells).min()))


def test_a_thousand_groups():
    count = 4000
    y = torch.arange(count) % 10
    b = torch.arange(count) // 10 % 100
    data = Labelled(TensorDataset(torch.randn(count, 8)), y=y, b=b, aligned=list(range(10)))
    cells = labels(data)
    assert int((cells.counts > 0).sum()) == 1000
    assert cells.counts.tolist() == torch.bincount(y * 100 + b).tolist()
    assert group_weights(y * 100 + b).unique().tolist() == [1.0]
    sub = quietly(toy_model(classes=10), data, upsilon=1, tau_min=0.3)
    assert finite(sub)


def test_information_between_a_hundred_labels_that_agree():
    """b̂ = b for certain: I / ln |B| is 1, and 0 where b̂ is even."""
    b = torch.arange(100).repeat(4)
    ones = torch.ones(400, dtype=torch.bool)
    sure = torch.eye(100)[b]
    assert float(information(*joint_table(sure, b, ones))) == pytest.approx(1, abs=1e-5)
    even = torch.full((400, 100), 0.01)
    table, n = joint_table(even, b, ones)
    assert float(information(table, n)) == pytest.approx(0, abs=1e-5)
    assert information_gradient(even, b, ones, table, n).abs().max() < 1e-6
    none = torch.zeros(400, dtype=torch.bool)
    table, n = joint_table(sure, b, none)
    assert float(information(table, n)) == 0
    assert information_gradient(sure, b, none, table, n).abs().max() == 0


# sites


def test_one_unit_at_a_site_stays_open_and_shrinks():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 1), nn.ReLU(), nn.Linear(1, 3)).eval()
    sub = quietly(model, toy(), lr=1.0)
    assert sub.masks["3"].tolist() == [True]
    assert finite(sub)
    small = sub.shrink(torch.randn(4, 8))
    assert max(small.shrink_report.differences.values()) <= 1e-10


# γ


@pytest.fixture(scope="module")
def biased():
    data = toy()
    return data, trained(toy_model(), data)


def test_without_gamma_the_information_moves_nothing(biased):
    """γ = 0 learns, bit for bit, what mi="none" learns, where neither trains a head first."""
    data, model = biased
    none = quietly(model, data, mi="none", head_epochs=0)
    zero = quietly(model, data, gamma=0.0, head_epochs=0)
    for site, score in none.scores.items():
        assert torch.equal(score, zero.scores[site])
    assert none.record["history"][0]["cross_entropy"] == zero.record["history"][0]["cross_entropy"]


def first_scores(biased, gamma):
    """The scores after a single step at τ = 1."""
    data, model = biased
    changes = {"gamma": gamma, "steps": 1, "tau_min": 0.9, "momentum": 0.0, "weight_decay": 0.0, "collapse": "undo"}
    sub = quietly(model, data, **changes, mi="batch", head_epochs=5, early_stop=False)
    return torch.cat(list(sub.last.scores.values())).double()


def test_a_step_is_linear_in_gamma_up_to_a_million(biased):
    zero, one, huge = (first_scores(biased, gamma) for gamma in (0.0, 1.0, 1e6))
    assert huge.isfinite().all()
    assert (one - zero).abs().max() > 0
    slope_by_huge = (huge - zero) / 1e6
    assert torch.allclose(one - zero, slope_by_huge, rtol=1e-3, atol=1e-9)


def test_an_extraction_under_a_gamma_of_a_million(biased):
    data, model = biased
    sub = quietly(model, data, gamma=1e6)
    assert finite(sub)
    assert 0 < sub.units[0] <= sub.units[1]


# precision


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_models_of_another_precision(dtype):
    whole = toy()
    model = trained(toy_model(), whole).to(dtype)
    x = whole.tensors[0].to(dtype)
    data = Labelled(TensorDataset(x), y=whole.y, b=whole.b, classes=3, bias_classes=3)
    before = bise.fingerprint(model)
    sub = quietly(model, data)
    assert bise.fingerprint(model) == before
    assert finite(sub)
    assert all(score.dtype == torch.float32 for score in sub.scores.values())
    with torch.no_grad():
        assert sub(x).dtype == dtype
        assert torch.equal(sub.at(0.0)(x), model(x)), "all gates open is the model"
        h = model[2](model[1](model[0](x))) * sub.masks["2"].to(dtype)
        assert torch.equal(sub(x), model[5](model[4](model[3](h)) * sub.masks["4"].to(dtype)))
    small = sub.shrink(x[:4])
    assert max(small.shrink_report.differences.values()) <= 1e-10
    assert all(parameter.dtype == dtype for parameter in small.parameters())
    found = bise.audit(sub, data)
    with torch.no_grad():
        assert found.accuracy == pytest.approx(float((sub(x).argmax(1) == whole.y).double().mean()), abs=0.01)
