"""Weights, mutual information and the gate's gradient, against values worked out by hand or by enumeration."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import bise
from bise import BadInput
from bise.data import Cells, load
from bise.data.core.sampling import sample_weights
from bise.engine.losses import cross_entropies, log_priors, weighted_mean
from bise.extraction.bias_head import BiasHeads, cross_entropy, with_one
from bise.extraction.objective import information, information_gradient, joint_table
from bise.extraction.scores import Scores
from bise.network.gates import slope


def mi(p, b, include=None):
    include = torch.ones(len(b)) if include is None else include
    return information(*joint_table(p, b, include))


def entropy(b):
    share = torch.bincount(b).double() / len(b)
    return float(-(share[share > 0] * share[share > 0].log()).sum())


@given(b=st.lists(st.integers(0, 3), min_size=2, max_size=30), permutation=st.permutations(range(4)))
@settings(max_examples=80, deadline=None)
def test_a_perfect_head_and_any_permutation_of_it_give_the_entropy_of_b(b, permutation):
    b = torch.tensor(b)
    p = F.one_hot(torch.tensor(permutation)[b], 4).float()
    assert float(mi(p, b)) == pytest.approx(entropy(b) / math.log(4), abs=1e-5)


def test_uniform_b_and_a_perfect_head_give_one():
    b = torch.arange(10).repeat(3)
    assert float(mi(F.one_hot(b, 10).float(), b)) == pytest.approx(1, abs=1e-6)


@given(row=st.lists(st.floats(0.01, 1), min_size=4, max_size=4), b=st.lists(st.integers(0, 3), min_size=1, max_size=30))
@settings(max_examples=80, deadline=None)
def test_a_constant_head_gives_zero(row, b):
    p = torch.tensor(row).softmax(0).expand(len(b), 4)
    assert float(mi(p, torch.tensor(b))) == pytest.approx(0, abs=1e-6)


def test_one_sample_and_no_sample_give_zero():
    p = torch.tensor([[0.7, 0.2, 0.1]])
    assert float(mi(p, torch.tensor([1]))) == pytest.approx(0, abs=1e-6)
    assert float(mi(p, torch.tensor([1]), torch.zeros(1))) == 0


def test_mi_of_a_soft_table_by_hand():
    # two samples, b = 0 and 1, p = (3/4, 1/4) and (1/4, 3/4): J = [[3/8, 1/8], [1/8, 3/8]], marginals 1/2
    p, b = torch.tensor([[0.75, 0.25], [0.25, 0.75]]), torch.tensor([0, 1])
    by_hand = (2 * 3 / 8 * math.log(1.5) + 2 * 1 / 8 * math.log(0.5)) / math.log(2)
    assert float(mi(p, b)) == pytest.approx(by_hand, rel=1e-5)


def test_left_out_samples_do_not_count():
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(20, 3, generator=generator).softmax(1)
    b = torch.randint(0, 3, (20,), generator=generator)
    include = torch.rand(20, generator=generator) < 0.5
    assert float(mi(p, b, include)) == pytest.approx(float(mi(p[include], b[include])), abs=1e-7)


def test_tables_of_two_halves_add_up():
    generator = torch.Generator().manual_seed(1)
    p = torch.rand(20, 3, generator=generator).softmax(1)
    b = torch.randint(0, 3, (20,), generator=generator)
    halves = [joint_table(p[part], b[part], torch.ones(10)) for part in (slice(0, 10), slice(10, 20))]
    summed = information(halves[0][0] + halves[1][0], halves[0][1] + halves[1][1])
    assert float(summed) == pytest.approx(float(mi(p, b)), abs=1e-6)


def heads(width=5, sizes=(3, 2), complete=True):
    return BiasHeads(
        width,
        sizes,
        lr=0.1,
        momentum=0.9,
        weight_decay=1e-2,
        generator=torch.Generator().manual_seed(0),
        device=torch.device("cpu"),
        complete=complete,
    )


@given(
    seed=st.integers(0, 10_000), size=st.integers(2, 6), samples=st.integers(1, 30), sharp=st.sampled_from([0.1, 1, 30])
)
@settings(max_examples=150, deadline=None)
def test_the_gradient_of_the_information_is_autograds(seed, size, samples, sharp):
    generator = torch.Generator().manual_seed(seed)
    logits = (sharp * torch.randn(samples, size, generator=generator, dtype=torch.float64)).requires_grad_()
    b = torch.randint(-1, size, (samples,), generator=generator)  # −1: not known
    include = (torch.rand(samples, generator=generator) < 0.7) & (b >= 0)
    p = logits.float().softmax(1)
    table, count = joint_table(p, b, include)
    (expected,) = torch.autograd.grad(information(table, count), logits)
    with torch.no_grad():
        found = information_gradient(p, b, include, table, count)
    assert torch.allclose(found.double(), expected, atol=1e-5)


def test_head_steps_are_torchs_sgd():
    head = heads()
    weight = head.parameters.clone().requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, weight_decay=1e-2)
    generator = torch.Generator().manual_seed(3)
    for _ in range(5):
        z = torch.randn(7, 5, generator=generator)
        b = torch.stack(
            [torch.randint(0, 3, (7,), generator=generator), torch.randint(0, 2, (7,), generator=generator)], 1
        )
        logits = F.linear(z, weight[:, :-1], weight[:, -1])
        loss = F.cross_entropy(logits[:, :3], b[:, 0]) + F.cross_entropy(logits[:, 3:], b[:, 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        features = with_one(z)
        true = head.one_hots(b)
        assert float(cross_entropy(head.probabilities(features), true)) == pytest.approx(loss.item(), rel=1e-5)
        head.step(features, true)
    assert torch.allclose(head.parameters, weight, atol=1e-6)


def test_samples_whose_bias_is_not_known_do_not_move_the_head():
    generator = torch.Generator().manual_seed(4)
    z = with_one(torch.randn(6, 5, generator=generator))
    b = torch.tensor([[0, 1], [2, 0], [1, 1], [0, 0], [2, 1], [1, 0]])
    some, all_known = heads(complete=False), heads()
    unknown = torch.cat([b, torch.full((3, 2), -1)])
    some.step(torch.cat([z, with_one(torch.randn(3, 5, generator=generator))]), some.one_hots(unknown))
    all_known.step(z, all_known.one_hots(b))
    assert torch.allclose(some.parameters, all_known.parameters, atol=1e-7)


def test_reweighted_and_balanced_cross_entropy_agree_in_expectation():
    # by enumeration: the mean over all samples of r_j ℓ_j is the mean over cells of the cells' mean losses
    y = torch.tensor([0, 0, 0, 0, 0, 1, 1, 2, 2, 2])
    b = torch.tensor([0, 0, 0, 1, 2, 1, 0, 2, 2, 2])
    cells = Cells.of(y, b)
    logits = torch.randn(10, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    losses = F.cross_entropy(logits, y, reduction="none")
    by_cell = [losses[cells.index == i].mean() for i in cells.counts.nonzero().flatten()]
    weights = sample_weights(cells, "groups")
    assert float((losses * weights).mean()) == pytest.approx(float(torch.stack(by_cell).mean()), rel=1e-12)
    assert float(weights.mean()) == pytest.approx(1)
    assert float(weighted_mean(cross_entropies(logits, y), weights)) == pytest.approx(
        float((losses * weights).mean()), rel=1e-5
    )


def test_log_priors_by_hand():
    y = torch.tensor([0, 0, 1, 1, 1, 0])
    b = torch.tensor([[0, 1], [0, -1], [0, 1], [1, 0], [-1, 1], [1, 1]])
    first, second = log_priors(y, b, 3, (2, 2))  # counts and one: b = 0 has 3, 2, 1; b = 1 has 2, 2, 1
    expected = torch.tensor([[3 / 6, 2 / 6, 1 / 6], [2 / 5, 2 / 5, 1 / 5], [1, 1, 1]]).log()
    torch.testing.assert_close(first, expected)
    expected = torch.tensor([[1 / 4, 2 / 4, 1 / 4], [3 / 7, 3 / 7, 1 / 7], [1, 1, 1]]).log()
    torch.testing.assert_close(second, expected)


def test_cross_entropies_with_margins_and_smoothed_targets():
    generator = torch.Generator().manual_seed(0)
    logits, y = torch.randn(4, 3, generator=generator), torch.tensor([0, 1, 2, 1])
    b = torch.tensor([[0, 1], [1, 1], [-1, 0], [0, -1]])
    priors = [torch.randn(3, 3, generator=generator), torch.randn(3, 3, generator=generator)]
    for prior in priors:
        prior[-1] = 0  # where b isn't known
    found = cross_entropies(logits, y, b=b, priors=priors, smoothing=0.3)
    for j in range(4):
        raised = [
            float(logits[j, c]) + sum(float(prior[b[j, k], c]) for k, prior in enumerate(priors)) / 2 for c in range(3)
        ]
        total = math.log(sum(math.exp(value) for value in raised))
        target = [0.1 + 0.7 * (c == y[j]) for c in range(3)]
        assert float(found[j]) == pytest.approx(sum(t * (total - r) for t, r in zip(target, raised, strict=True)))


def test_paper_weights_of_ten_classes():
    # ρ = 0.99 over 1,000 samples of ten classes: r∥ = 1/9.9, r⊥ = 9/(10 · 0.01) = 90, and they sum to N
    y = torch.arange(10).repeat(100)
    b = y.clone()
    b[:10] = (y[:10] + 1) % 10
    cells = Cells.of(y, b, aligned=list(range(10)))
    weights = sample_weights(cells, "paper")
    assert weights[:10].tolist() == pytest.approx([90] * 10)
    assert weights[10:].tolist() == pytest.approx([1 / 9.9] * 990)
    assert float(weights.sum()) == pytest.approx(1000)


def test_paper_weights_of_celeba():
    # the supplement's weights from its proportions: c_B, ρ_B and ρ_D of 71,629 / 66,874 / 22,880 / 1,387
    counts = {(0, 0): 71629, (0, 1): 66874, (1, 0): 22880, (1, 1): 1387}  # (blond, male)
    y = torch.cat([torch.full((n,), k[0]) for k, n in counts.items()])
    b = torch.cat([torch.full((n,), k[1]) for k, n in counts.items()])
    weights = sample_weights(Cells.of(y, b), "paper")
    total = sum(counts.values())
    blond = (counts[1, 0] + counts[1, 1]) / total
    women_blond = counts[1, 0] / (counts[1, 0] + counts[1, 1])
    women_dark = counts[0, 0] / (counts[0, 0] + counts[0, 1])
    by_hand = {
        (0, 1): 1 / (4 * (1 - women_dark) * (1 - blond)),
        (0, 0): 1 / (4 * women_dark * (1 - blond)),
        (1, 1): 1 / (4 * (1 - women_blond) * blond),
        (1, 0): 1 / (4 * women_blond * blond),
    }
    for (target, bias), value in by_hand.items():
        assert float(weights[(y == target) & (b == bias)][0]) == pytest.approx(value)
    assert by_hand[1, 1] == pytest.approx(29.34, abs=0.01)


def test_paper_weights_of_multi_color_mnist():
    y = torch.zeros(100, dtype=torch.long)
    y[50:] = 1
    b = y.unsqueeze(1).repeat(1, 2)
    b[:2, 0] = 1  # ρ_L = 0.98
    b[[0, 2, 3, 4, 5], 1] = 1  # ρ_R = 0.95
    cells = Cells.of(y, b, aligned={0: (0, 0), 1: (1, 1)})
    weights = sample_weights(cells, "paper")
    assert float(weights[0]) == pytest.approx(1 / (0.02 * 0.05))
    assert float(weights[1]) == pytest.approx(1 / (0.02 * 0.95))
    assert float(weights[2]) == pytest.approx(1 / (0.98 * 0.05))
    assert float(weights[99]) == pytest.approx(1 / (0.98 * 0.95))


def test_paper_weights_need_as_many_biases_as_classes():
    cells = Cells.of(torch.tensor([0, 1, 2]), torch.tensor([0, 1, 0]))
    with pytest.raises(BadInput, match='weights="groups"'):
        sample_weights(cells, "paper")


@pytest.mark.data
@pytest.mark.parametrize(
    ("rho", "empty", "aligned", "conflicting"),
    [(0.99, 1, 0.1010, 90), (0.995, 10, 0.1005, 180), (0.997, 6, 0.1003, 300)],
)
def test_paper_and_group_weights_differ_on_the_real_counts(data_root, rho, empty, aligned, conflicting):
    data = load("biased-mnist", split="train", rho=rho, protocol="paper", root=data_root)
    cells = Cells.of(data.y, data.b, aligned=list(range(10)))
    assert len(cells.empty) == empty
    paper, groups = sample_weights(cells, "paper"), sample_weights(cells, "groups")
    own = cells.aligned[:, 0]
    assert float(paper[own][0]) == pytest.approx(aligned, rel=0.02)
    assert float(paper[~own][0]) == pytest.approx(conflicting, rel=0.03)
    # group weights vary by cell around the closed form: by the spread of the conflicting cells' sizes
    ratio = groups[~own] / paper[~own]
    assert float(ratio.min()) < 1 < float(ratio.max())
    assert float(ratio.max() / ratio.min()) > 1.2


def test_the_gates_gradient_by_hand():
    # ĥ = h · 1{m ≥ 0}, L = Σ c ĥ: ∂L/∂m_i = σ'(m_i/τ)/τ · Σ_n h_ni c_ni
    h = torch.tensor([[1.0, 2.0, -3.0], [0.5, -1.0, 4.0]])
    c = torch.tensor([[2.0, 1.0, 1.0], [4.0, 3.0, -0.5]])
    sub = bise.subnetwork(torch.nn.Sequential(torch.nn.Identity()), {"0": [True] * 3}, example=h)
    for tau in (1.0, 0.5, 0.125):
        scores = Scores(sub, torch.device("cpu"))
        scores.flat.copy_(torch.tensor([0.0, 0.25, -0.5]))
        values = scores.hold()
        assert values.tolist() == [1, 1, 0]
        (gradient,) = torch.autograd.grad((sub(h) * c).sum(), values)
        before = scores.flat.clone()
        scores.step(gradient, torch.tensor(tau), lr=1.0, momentum=0.0, weight_decay=0.0)
        raw = [1 * 2 + 0.5 * 4, 2 * 1 - 1 * 3, -3 * 1 - 4 * 0.5]
        for i, score in enumerate([0.0, 0.25, -0.5]):
            sigma = 1 / (1 + math.exp(-score / tau))
            assert float((before - scores.flat)[i]) == pytest.approx(raw[i] * sigma * (1 - sigma) / tau, rel=1e-5)


def test_the_slope_far_out_is_zero_and_finite():
    far = slope(torch.tensor([-1e4, -1.0, 0.0, 1.0, 1e4]), 1e-8)
    assert far.isfinite().all()
    assert far.tolist() == [0, 0, pytest.approx(0.25e8), 0, 0]


def test_group_weights_equal_balanced_sampling_for_every_small_data_set():
    # exhaustively: all labelings of four samples by two classes and two biases
    losses = torch.tensor([0.1, 0.7, 1.3, 2.9], dtype=torch.float64)
    for pairs in itertools.product(itertools.product((0, 1), (0, 1)), repeat=4):
        y, b = torch.tensor([p[0] for p in pairs]), torch.tensor([p[1] for p in pairs])
        cells = Cells.of(y, b, classes=2, bias_classes=[2])
        means = [losses[cells.index == i].mean() for i in cells.counts.nonzero().flatten()]
        expected = float(torch.stack(means).mean())
        assert float((losses * sample_weights(cells, "groups")).mean()) == pytest.approx(expected)
