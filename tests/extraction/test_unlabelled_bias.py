"""Samples whose bias isn't known, b = −1: they count for the task, and for nothing else."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

import bise
from bise import BadInput, BiseWarning, ExtractConfig
from bise.data import Labelled, labels
from bise.data.core.cells import Cells
from bise.data.core.sampling import sample_weights, strata
from bise.engine.inputs import Inputs
from bise.engine.validation import Validation
from bise.extraction.bias_head import BiasHeads, cross_entropy, with_one
from bise.extraction.objective import information, information_gradient, joint_table
from conftest import toy, toy_model, trained

QUICK = {"upsilon": 2, "steps": 10, "head_epochs": 2, "head_steps": 5, "batch_size": 60, "tau_min": 0.2}
SAME = {0: 0, 1: 1, 2: 2}


def hidden(data, which, **options):
    """The same samples with b unknown where `which` [N] says so."""
    return Labelled(data.dataset, y=data.y, b=torch.where(which, -1, data.b), bias_classes=3, **options)


def chosen(data, which):
    return Labelled(TensorDataset(data.tensors[0][which]), y=data.y[which], b=data.b[which], classes=3, bias_classes=3)


@pytest.fixture(scope="module")
def data():
    return toy(rho=0.8)


@pytest.fixture(scope="module")
def third(data):
    return torch.rand(len(data), generator=torch.Generator().manual_seed(9)) < 0.3


@pytest.fixture(scope="module")
def model(data):
    return trained(toy_model(), data)


def test_cells_and_strata(data, third):
    cells = labels(hidden(data, third))
    known = labels(chosen(data, ~third))
    assert cells.unknown == int(third.sum())
    assert torch.equal(cells.counts, known.counts)
    assert torch.equal(cells.aligned_bias, known.aligned_bias)
    assert cells.rho == known.rho
    assert not cells.aligned[third].any()
    assert not cells.conflicting[third].any()
    by_cell, by_alignment = strata(cells, "cells"), strata(cells, "alignment")
    assert torch.equal(by_cell[~third], known.index)
    assert torch.equal(by_cell[third], 9 + data.y[third]), "each class's unlabelled samples are a stratum"
    assert torch.equal(by_alignment[third], torch.full_like(data.y[third], 2))


def test_weights(data, third):
    cells = labels(hidden(data, third))
    known = labels(chosen(data, ~third))
    paper = sample_weights(cells, "paper")
    assert torch.equal(paper[~third], sample_weights(known, "paper"))
    assert torch.allclose(paper[third], sample_weights(known, "paper").mean())
    groups = sample_weights(cells, "groups")
    assert float(groups.mean()) == pytest.approx(1)
    sums = torch.zeros(12, dtype=torch.float64).index_add_(0, strata(cells, "cells"), groups)
    assert torch.allclose(sums, torch.full_like(sums, 600 / 12)), "every stratum weighs the same in all"


def test_heads_and_information_see_the_known_rows_alone(data, third):
    generator = torch.Generator().manual_seed(0)
    z, b = with_one(torch.randn(600, 5, generator=generator)), torch.where(third, -1, data.b).unsqueeze(1)
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4, "device": z.device}
    some, all_rows = (
        BiasHeads(5, (3,), generator=torch.Generator().manual_seed(1), complete=complete, **options)
        for complete in (True, False)
    )
    for _ in range(3):
        some.step(z[~third], some.one_hots(b[~third]))
        all_rows.step(z, all_rows.one_hots(b))
    assert torch.allclose(some.parameters, all_rows.parameters, atol=1e-6)
    p, q = all_rows.probabilities(z), all_rows.probabilities(z[~third])
    assert float(cross_entropy(p, some.one_hots(b))) == pytest.approx(float(cross_entropy(q, some.one_hots(b[~third]))))
    include = b[:, 0] >= 0
    table, count = joint_table(p[0], b[:, 0], include)
    other, same = joint_table(q[0], b[~third, 0], include[~third])
    assert torch.allclose(table, other, rtol=1e-5)
    assert count == same == int((~third).sum())
    assert float(information(table, count)) == pytest.approx(float(information(other, same)), rel=1e-4)
    gradient = information_gradient(p[0], b[:, 0], include, table, count)
    assert not gradient[third].any()
    expected = information_gradient(q[0], b[~third, 0], include[~third], other, same)
    assert torch.allclose(gradient[~third], expected, atol=1e-8)


def test_a_batch_without_any_label_moves_no_head():
    rates = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0}
    generator = torch.Generator().manual_seed(0)
    heads = BiasHeads(4, (3,), **rates, generator=generator, device=torch.device("cpu"), complete=False)
    before, z, b = heads.parameters.clone(), with_one(torch.randn(8, 4)), torch.full((8, 1), -1)
    heads.step(z, heads.one_hots(b))
    assert torch.equal(heads.parameters, before)
    table, count = joint_table(heads.probabilities(z)[0], b[:, 0], b[:, 0] >= 0)
    assert float(information(table, count)) == 0
    assert not information_gradient(heads.probabilities(z)[0], b[:, 0], b[:, 0] >= 0, table, count).any()


def test_an_audits_groups_are_those_of_the_known_rows(model, data, third):
    whole, known = (
        bise.audit(model, hidden(data, third), aligned=SAME),
        bise.audit(model, chosen(data, ~third), aligned=SAME),
    )
    assert whole.by_group == known.by_group
    assert (whole.unbiased, whole.worst_group) == (known.unbiased, known.worst_group)
    assert whole.aligned == known.aligned
    assert whole.conflicting == known.conflicting
    assert whole.mutual_information[0] == pytest.approx(known.mutual_information[0])
    assert whole.without_bias == int(third.sum())
    assert whole.n == 600
    assert whole.accuracy == bise.audit(model, data, aligned=SAME).accuracy != known.accuracy


def test_validations_groups_are_those_of_the_known_rows(model, data, third):
    sub, train = bise.Subnetwork(model, ()), labels(data)
    whole, known, all_labels = (
        Validation(val, train, Inputs(val, torch.device("cpu")))(sub)
        for val in (hidden(data, third), chosen(data, ~third), data)
    )
    assert whole["unbiased"] == known["unbiased"] != all_labels["unbiased"]
    assert whole["worst_group"] == known["worst_group"]
    assert whole["accuracy"] == all_labels["accuracy"]


def extracted(model, data, **changes):
    return bise.extract(model, data, config=ExtractConfig.paper(**(QUICK | {"weights": "none"} | changes)))


@pytest.mark.filterwarnings("ignore::bise.BiseWarning")
def test_without_information_extraction_does_not_ask_for_b(model, data, third):
    one, other = (extracted(model, d, mi="none", head_epochs=0) for d in (data, hidden(data, third)))
    assert any(scores.any() for scores in one.scores.values())
    assert all(torch.equal(one.scores[n], other.scores[n]) for n in one.scores)


@pytest.mark.filterwarnings("ignore::bise.BiseWarning")
def test_information_over_conflicting_samples_does_not_ask_for_the_others_b(model, data, third):
    """With a head that stays as it starts, hiding b of aligned samples changes nothing."""
    still = {"head_lr": 1e-30, "head_epochs": 0}
    aligned = third & (data.y == data.b)
    one, other, without = (
        extracted(model, hidden(data, which, aligned=SAME), **still)
        for which in (torch.zeros_like(third), aligned, third)
    )
    assert aligned.sum() > 50
    assert all(torch.equal(one.scores[n], other.scores[n]) for n in one.scores)
    assert not all(torch.equal(one.scores[n], without.scores[n]) for n in one.scores)


@pytest.mark.parametrize("preset", [ExtractConfig.balanced, ExtractConfig.paper])
def test_extraction_says_how_many_labels_are_missing(model, data, third, preset):
    val = hidden(toy(rho=1 / 3, seed=1), third)
    config = preset(**(QUICK | {"collapse": "prevent"}))
    with pytest.warns(BiseWarning, match=f"{int(third.sum())} of 600 training samples lack a bias label"):
        sub = bise.extract(model, hidden(data, third), val=val, config=config)
    assert sub.units[0] < sub.units[1]
    assert bise.audit(sub, val).without_bias == int(third.sum())


def test_two_biases_of_which_one_may_be_unknown():
    y = torch.tensor([0, 0, 1, 1, 0, 1])
    b = torch.tensor([[0, 0], [0, -1], [1, 1], [-1, 0], [1, 0], [-1, -1]])
    cells = Cells.of(y, b, bias_classes=(2, 2), aligned={0: (0, 0), 1: (1, 1)})
    assert cells.known.tolist() == [True, False, True, False, True, False]
    assert cells.conflicting.tolist() == [
        [False] * 2,
        [False] * 2,
        [False] * 2,
        [False, True],
        [True, False],
        [False] * 2,
    ]
    assert cells.rho == (3 / 4, 3 / 4)
    assert cells.alignment_index.tolist() == [0, -1, 0, -1, 2, -1]


def test_no_label_at_all_is_refused(model, data):
    with pytest.raises(BadInput, match="has all its bias labels"):
        bise.extract(model, hidden(data, torch.ones(600, dtype=torch.bool)))
    with pytest.raises(BadInput, match="holds the label -2"):
        labels(Labelled(data.dataset, y=data.y, b=data.b - 2))
