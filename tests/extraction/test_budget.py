"""A budget: what the shrunk network takes, which units go for it, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import bise
from bise import BadInput, ExtractConfig
from bise.engine.checkpoints import Checkpoint
from bise.extraction.budget import Budget
from bise.extraction.scores import Scores
from bise.network.shrinking.counting import Counter
from bise.network.size import size
from conftest import toy, toy_model, trained

QUICK = {"upsilon": 2, "kappa": 0.1, "steps": 10, "head_epochs": 2, "head_steps": 5, "batch_size": 60}


@pytest.fixture(scope="module")
def data():
    return {"train": toy(seed=0), "val": toy(rho=1 / 3, seed=1)}


@pytest.fixture(scope="module")
def model(data):
    return trained(toy_model(), data["train"])


def really(sub, data):
    """Shares of MACs and parameters by shrinking and counting, as a user would."""
    x = data["train"].tensors[0][:4]
    dense, small = size(sub.bare(), x[:1]), size(sub.shrink(x), x[:1])
    return {"macs": small.macs / dense.macs, "parameters": small.parameters / dense.parameters}


@pytest.mark.parametrize(
    ("budget", "val"),
    [(0.3, True), ({"macs": 0.5, "parameters": 0.2}, False)],
)
def test_the_shrunk_network_keeps_to_it(model, data, budget, val):
    judge = data["val"] if val else None
    sub = bise.extract(model, data["train"], val=judge, budget=budget, config=ExtractConfig(**QUICK))
    found, asked = really(sub, data), budget if isinstance(budget, dict) else {"macs": budget}
    assert sub.record["budget"]["asked"] == asked
    for kind, share in asked.items():
        assert found[kind] <= share
        assert sub.record["budget"]["shares"][kind] == found[kind]
    assert sub.record["selection"]["kind"] == ("best" if val else "last")
    assert all(mask.any() for mask in sub.masks.values())
    assert sub.record["weights_before"] == sub.record["weights_after"] == bise.fingerprint(model)
    last = sub.record["history"][-1]["budget"]
    assert all(last[kind] <= share for kind, share in asked.items())


def test_a_budget_that_binds_nothing_leaves_the_masks_as_they_are(model, data):
    config = ExtractConfig(baseline=False, **QUICK)
    free = bise.extract(model, data["train"], val=data["val"], config=config)
    wide = bise.extract(model, data["train"], val=data["val"], config=config, budget=0.999)
    taken = [row for row in wide.record["history"] if row["weight"]]
    if not taken:  # else some mask on the way had no unit closed
        assert all(torch.equal(score, wide.scores[name]) for name, score in free.scores.items())
    assert "budget" not in free.record
    assert all("budget" not in row and "weight" not in row for row in free.record["history"])


def test_the_same_bits_again_and_after_a_stop(model, data, tmp_path, monkeypatch):
    config = ExtractConfig(max_macs=0.25, **QUICK)
    whole = bise.extract(model, data["train"], val=data["val"], config=config)
    save, seen = Checkpoint.save, []

    def stopping(self, tensors, state):
        save(self, tensors, state)
        seen.append(state["priced"])
        if len(seen) in (20, 50):
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "save", stopping)
    how = {"val": data["val"], "config": config, "checkpoint": tmp_path / "x.safetensors", "checkpoint_every": 0}
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            bise.extract(model, data["train"], **how)
    again = bise.extract(model, data["train"], **how)
    assert 0 < seen[19] < seen[49] <= 4
    assert all(torch.equal(score, again.scores[name]) for name, score in whole.scores.items())
    assert whole.record["budget"] == again.record["budget"]
    assert [row["budget"] for row in whole.record["history"]] == [row["budget"] for row in again.record["history"]]


class Two(nn.Module):
    """8 → 4 → 3 → 2, so that every count can be done by hand."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(8, 4), nn.Linear(4, 3), nn.Linear(3, 2)
        self.acts = nn.ModuleList([nn.ReLU(), nn.ReLU()])

    def forward(self, x):
        return self.third(self.acts[1](self.second(self.acts[0](self.first(x)))))


@pytest.fixture(scope="module")
def counted():
    model, x = Two().eval(), torch.randn(4, 8)
    sub = bise.subnetwork(model, {"acts.0": torch.ones(4).bool(), "acts.1": torch.ones(3).bool()}, example=x)
    return sub, Counter(sub, x, x[:1])


def macs(a, b):
    return 8 * a + a * b + 2 * b


def budget_of(counted, flat, wanted):
    sub, counter = counted
    scores = Scores(sub, torch.device("cpu"))
    scores.flat.copy_(torch.tensor(flat))
    return Budget(scores, wanted, counter)


def test_a_price_is_what_a_unit_less_saves(counted):
    budget = budget_of(counted, [1.0, 2, 3, 4, -1, 2, 3], {"macs": 0.5})
    budget.price(0)
    assert budget.prices[0] == pytest.approx((macs(4, 2) - macs(3, 2)) / macs(4, 3) / 0.5)
    assert budget.prices[1] == pytest.approx((macs(4, 2) - macs(4, 1)) / macs(4, 3) / 0.5)
    before = budget.prices.clone()
    budget.scores.flat.fill_(1.0)
    budget.price(0)
    assert torch.equal(budget.prices, before), "once a temperature"
    budget = budget_of(counted, [1.0, 2, 3, 4, -1, -2, 3], {"macs": 0.5})
    budget.price(0)  # the last one stays, so another one tells
    assert budget.prices[1] == pytest.approx((macs(4, 2) - macs(4, 1)) / macs(4, 3) / 0.5)


class Grouped(nn.Module):
    """Its second layer reads channels in pairs, and drops a pair only as a whole."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1, groups=4)
        self.acts, self.last = nn.ModuleList([nn.ReLU(), nn.ReLU()]), nn.Linear(8, 2)

    def forward(self, x):
        return self.last(self.acts[1](self.second(self.acts[0](self.first(x)))).mean((2, 3)))


def test_units_that_save_nothing_one_by_one_go_too():
    model, x = Grouped().eval(), torch.randn(4, 3, 2, 2)
    sub = bise.subnetwork(model, {f"acts.{k}": torch.ones(8).bool() for k in range(2)}, example=x)
    scores, counter = Scores(sub, torch.device("cpu")), Counter(sub, x, x[:1])
    scores.flat.copy_(torch.arange(1.0, 17))
    budget = Budget(scores, {"macs": 0.3}, counter)
    budget.price(0)
    assert (budget.prices > 0).all()
    assert budget.settle()["macs"] <= 0.3
    assert [int(mask.sum()) > 0 for mask in budget.masks(scores.flat)] == [True, True]


@given(
    flat=st.lists(st.floats(-2, 2, width=32), min_size=7, max_size=7),
    share=st.sampled_from([0.25, 0.3, 0.45, 0.6, 0.8]),
)
@settings(max_examples=60, deadline=None)
def test_it_closes_the_units_of_least_score_for_their_price_and_no_more(counted, flat, share):
    budget = budget_of(counted, flat, {"macs": share})
    budget.price(0)
    before = budget.scores.flat.clone()
    first = [piece >= 0 for piece in before.split([4, 3])]
    shares, weight = budget.close({"macs": share})
    after = budget.scores.flat
    masks = [piece >= 0 for piece in after.split([4, 3])]
    opened = [int(mask.sum()) for mask in masks]
    if all(opened):
        assert shares["macs"] == macs(*opened) / macs(4, 3) <= share
    assert not (after >= 0)[before < 0].any(), "it opens none"
    assert torch.equal(after[before < 0], before[before < 0])
    gone = (before >= 0) & (after < 0)
    assert bool(gone.any()) == (weight > 0 or bool((before[gone] == 0).any()))
    if not gone.any():
        return
    for piece, was, mask in zip(before.split([4, 3]), first, masks, strict=True):
        assert mask[piece.argmax()] or not was.any(), "a site's best unit stays"
    price = budget.prices.repeat_interleave(torch.tensor([4, 3]))
    ratio = before.double() / price
    best = torch.zeros(7, dtype=torch.bool)
    best[before[:4].argmax()] = best[4 + before[4:].argmax()] = True
    kept = (after >= 0) & ~best
    assert not kept.any() or ratio[gone].max() <= ratio[kept].min() + 1e-9
    last = ratio.where(gone, torch.tensor(-torch.inf).double()).argmax()
    one_more = after >= 0
    one_more[last] = True
    assert macs(int(one_more[:4].sum()), int(one_more[4:].sum())) / macs(4, 3) > share, "one less would not do"


def test_the_budget_narrows_with_the_temperature(counted):
    budget = budget_of(counted, [1.0] * 7, {"macs": 0.36})
    assert budget.allowed(0.25)["macs"] == pytest.approx(0.6)
    assert budget.allowed(0.5) == budget.allowed(1.0) == {"macs": 0.36}
    found = [budget.allowed(part / 20)["macs"] for part in range(21)]
    assert found == sorted(found, reverse=True)
    assert found[0] == 1


def test_latency_is_measured_until_it_fits(counted):
    """A device that takes as long as a square root of the MACs says."""
    sub, counter = counted
    scores = Scores(sub, torch.device("cpu"))
    scores.flat.copy_(torch.arange(1.0, 8))
    asked = []

    def timed(masks):
        asked.append(masks)
        return (counter(masks).macs / macs(4, 3)) ** 0.5

    budget = Budget(scores, {"latency": 0.7}, counter, timed)
    budget.price(0)
    shares = budget.settle()
    assert timed(budget.masks(scores.flat)) == shares["latency"] <= 0.7
    with pytest.raises(BadInput, match=r"max_latency=0.3 can't be reached: .* give at least 0.47, or put gates on"):
        Budget(scores, {"latency": 0.3}, counter, timed)
    with pytest.raises(BadInput, match="limit something else, since shrinking gains nothing here"):
        Budget(scores, {"latency": 0.3}, counter, lambda _: 1.1)


@pytest.mark.long
def test_latency_on_this_machine_ends_with_what_was_measured(data):
    wide = trained(toy_model(width=512), data["train"], epochs=1)
    config = ExtractConfig(max_latency=0.9, **QUICK | {"steps": 2, "upsilon": 1, "batch_size": 600})
    sub = bise.extract(wide, data["train"], config=config)
    assert sub.record["budget"]["shares"]["latency"] <= 0.9
    assert sub.units[0] < sub.units[1]


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        (0, r"max_macs=0 is no share of the model to keep; give a number above 0 and below 1"),
        (1, r"max_macs=1 is no share"),
        (1.5, r"max_macs=1.5 is no share"),
        (float("nan"), r"max_macs=nan"),
        ("half", r"max_macs='half'"),
        ({"parameters": -0.1}, r"max_parameters=-0.1 is no share"),
        ({"flops": 0.3}, r"budget: 'flops' can't be limited; give shares of 'macs', 'parameters', 'latency'"),
        (
            0.001,
            r"max_macs=0.001 can't be reached: with all but one unit of each site closed, 2.8% of the model's MACs",
        ),
    ],
)
def test_an_impossible_budget_is_refused_in_a_sentence(model, data, budget, words):
    with pytest.raises(BadInput, match=words):
        bise.extract(model, data["train"], budget=budget)


def test_two_budgets_are_refused(model, data):
    with pytest.raises(BadInput, match="both budget and config limit the shrunk network; give one of them"):
        bise.extract(model, data["train"], budget=0.3, config=ExtractConfig(max_macs=0.4))


class Branches(nn.Module):
    """Decides by a value, which no export can follow."""

    def __init__(self):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)

    def forward(self, x):
        h = self.act(self.first(x))
        return self.last(h) if float(h.sum()) > -1 else self.last(-h)


def test_a_network_that_cannot_be_shrunk_has_no_budget(data):
    with pytest.raises(BadInput, match="a budget is for a network that can be shrunk, and this one can't be: Branches"):
        bise.extract(Branches(), data["train"], budget=0.5)


def test_a_network_that_gates_hold_in_part_says_what_remains(data):
    half = SimpleNamespace(model=trained(toy_model(), data["train"], epochs=1))
    with pytest.raises(BadInput, match=r"give at least 0.\d+, or put gates on more of the network with sites="):
        bise.extract(half.model, data["train"], budget=0.2, sites=["4"])
