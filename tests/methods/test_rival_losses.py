"""The losses of rival methods: by hand, by loops and by brute force, and by what they are to bring about."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bise.base.errors import BadInput
from bise.data.core.cells import Cells
from bise.data.core.sampling import strata
from bise.data.core.weights import group_weights
from bise.methods.rivals.bcon import draw_weights
from bise.methods.rivals.cnc import pairs
from bise.methods.rivals.debian import discovery, group_means, worse
from bise.methods.rivals.dedier import distillation, misread_weights
from bise.methods.rivals.dett import error_weights
from bise.methods.rivals.di import own_block
from bise.methods.rivals.eiil import environments, invariant, slopes, violation
from bise.methods.rivals.end import disentangling, entangling
from bise.methods.rivals.ffw import two_sigmoid
from bise.methods.rivals.hex import co_occurrence, projected
from bise.methods.rivals.jtt import repeated
from bise.methods.rivals.leace import eraser
from bise.methods.rivals.learned_mixin import mixed_loss
from bise.methods.rivals.lnl import negative_entropy, reversed_gradient
from bise.methods.rivals.lwbc import committee_loss, committee_weights
from bise.methods.rivals.pgi import divergence, parting
from bise.methods.rivals.pruned import magnitudes, masks_of
from bise.methods.rivals.rebias import hsic, kernel
from bise.methods.rivals.rubi import masked_loss
from bise.methods.rivals.softcon import REFERENCES, unlikeness
from bise.methods.rivals.subsampling import subset_of
from bise.methods.rivals.vcba import beyond, class_weights
from bise.methods.shared.distilling import Transplanted
from bise.methods.shared.dro import group_losses, moved
from bise.methods.shared.guessing import harder, named, sides
from bise.methods.shared.losses import by_class, contrastive, generalised, held, relative_difficulty, running
from bise.methods.shared.narrow import narrowed
from bise.methods.shared.priors import log_given_bias, shares
from bise.methods.shared.samplers import Beside, Listed, Weighted
from bise.network.placement import place
from bise.network.twin import was_frozen


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# contrastive losses


def by_loops(z: Tensor, positives: Tensor, tau: float, among: Tensor | None = None) -> float:
    """The supervised contrastive loss, anchor by anchor, in Python's own numbers."""
    rows = [[float(v) for v in row] for row in F.normalize(z.double(), dim=1)]
    n, total = len(rows), 0.0
    for i in range(n):
        others = [a for a in range(n) if a != i and (among is None or among[i, a])]
        chosen = [(p, float(positives[i, p])) for p in others if positives[i, p] > 0]
        if not chosen:
            continue
        cosine = {a: sum(u * v for u, v in zip(rows[i], rows[a], strict=True)) for a in others}
        below = math.log(sum(math.exp(cosine[a] / tau) for a in others))
        total -= sum(w * (cosine[p] / tau - below) for p, w in chosen) / sum(w for _, w in chosen)
    return total / n


@pytest.mark.parametrize("tau", [0.07, 0.5])
def test_contrastive_as_by_loops(tau):
    z = drawn(9, 4)
    y, b = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2]), torch.tensor([0, 1, 1, 0, 0, 1, 2, 2, 2])
    positives = (y[:, None] == y) & (b[:, None] != b)
    assert not positives[7:].any()  # these two have no positive
    assert float(contrastive(z, positives, tau)) == pytest.approx(by_loops(z, positives, tau), rel=1e-5)
    soft = (y[:, None] == y) * drawn(9, 9, seed=1).abs()
    assert float(contrastive(z, soft, tau)) == pytest.approx(by_loops(z, soft, tau), rel=1e-5)
    chosen, among = pairs(y, torch.tensor([0, 1, 0, 1, 0, 1, 1, 2, 0]))
    assert float(contrastive(z, chosen, tau, among=among)) == pytest.approx(by_loops(z, chosen, tau, among), rel=1e-5)


def test_contrastive_has_a_finite_gradient_without_pairs():
    z = drawn(4, 3).requires_grad_()
    nobody = torch.zeros(4, 4, dtype=torch.bool)
    loss = contrastive(z, nobody, 0.1, among=nobody)
    loss.backward()
    assert loss.item() == 0
    assert not z.grad.any()


def test_pairs_of_a_right_answer_by_hand():
    """Samples (y, ŷ): (0, 0), (0, 1), (1, 0), (1, 1). The first and last are right."""
    positives, among = pairs(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1]))
    assert positives.nonzero().tolist() == [[0, 1], [3, 2]]
    assert (among & ~positives).nonzero().tolist() == [[0, 2], [3, 1]]


# LfF and DFA


def test_generalised_cross_entropy_has_the_gradient_of_its_closed_form():
    """CE weighed by q · p^q has q times the gradient of (1 − p^q)/q."""
    logits, y, q = drawn(5, 3).double().requires_grad_(), torch.tensor([0, 1, 2, 1, 0]), 0.7
    (ours,) = torch.autograd.grad(generalised(logits, y, q).sum(), logits)
    p = logits.softmax(1)[torch.arange(5), y]
    (closed,) = torch.autograd.grad(((1 - p**q) / q).sum(), logits)
    assert torch.allclose(ours, q * closed)


def test_running_means_and_weights_by_hand():
    table, seen = torch.zeros(4), torch.zeros(4, dtype=torch.bool)
    running(table, seen, torch.tensor([1, 3]), torch.tensor([2.0, 4.0]), 0.7)
    assert table.tolist() == [0, 2, 0, 4]  # the first value stands undamped
    running(table, seen, torch.tensor([3, 0]), torch.tensor([1.0, 5.0]), 0.7)
    assert table.tolist() == pytest.approx([5, 2, 0, 0.7 * 4 + 0.3 * 1])
    assert by_class(table, torch.tensor([0, 0, 1, 1]), 3).tolist() == pytest.approx([5, 3.1, 0])
    weights = relative_difficulty(torch.tensor([3.0, 0.0]), torch.tensor([1.0, 2.0]))
    assert weights.tolist() == pytest.approx([0.75, 0.0])


# Group DRO


def test_group_dros_update_by_hand():
    """Losses of cells 0 and 2 in the batch are 1.5 and 3; cell 1 is absent and has 0."""
    losses = group_losses(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 0, 2]), 3)
    assert losses.tolist() == [1.5, 0, 3]
    q = moved(torch.tensor([0.5, 0.25, 0.25]), losses, 0.1)
    raw = [0.5 * math.exp(0.15), 0.25, 0.25 * math.exp(0.3)]
    assert q.tolist() == pytest.approx([value / sum(raw) for value in raw])


# EnD


def test_end_as_by_loops():
    z, b, y = drawn(7, 3), torch.tensor([0, 0, 1, 1, 1, 2, 0]), torch.tensor([0, 1, 0, 0, 1, 1, 1])
    g = F.normalize(z, dim=1) @ F.normalize(z, dim=1).T
    apart = 0.0
    for k in range(3):
        same = [(i, j) for i, j in itertools.combinations(range(7), 2) if b[i] == b[j] == k]
        if same:
            apart += abs(sum(float(g[i, j]) for i, j in same)) / len(same)
    assert float(disentangling(z, b, 3)) == pytest.approx(apart, rel=1e-5)
    across = [(i, j) for i in range(7) for j in range(7) if y[i] == y[j] and b[i] != b[j]]
    together = 1 - sum((1 + float(g[i, j])) / 2 for i, j in across) / len(across)
    assert float(entangling(z, y, b)) == pytest.approx(together, rel=1e-5)
    assert float(entangling(z, y, torch.zeros(7, dtype=torch.long))) == 0


# HSIC


def test_hsic_by_brute_force():
    """The U-statistic of Song et al.: the mean of h over all ordered quadruples of different samples."""
    one, other, sigma = drawn(6, 2).double(), drawn(6, 3, seed=1).double(), 1.3
    k, m = kernel(one, sigma), kernel(other, sigma)
    total, count = 0.0, 0
    for i, j, q, r in itertools.permutations(range(6), 4):
        total += float(k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q]))
        count += 1
    assert float(hsic(one, other, sigma)) == pytest.approx(total / count, rel=1e-9)


def test_the_kernel_is_scikit_learns():
    from sklearn.metrics.pairwise import rbf_kernel

    z = drawn(5, 3).double()
    assert np.allclose(kernel(z, 0.8).numpy(), rbf_kernel(z.numpy(), gamma=1 / (2 * 0.8**2)))


def test_hsic_tells_dependence():
    z = drawn(200, 2)
    assert float(hsic(z, z.sin(), 1.0)) > 20 * abs(float(hsic(z, drawn(200, 2, seed=1), 1.0)))


# LEACE


def test_no_linear_probe_reads_b_behind_leace():
    """Least squares has nothing to fit, and logistic regression is no better than a constant; y remains."""
    from sklearn.linear_model import LogisticRegression

    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 2, (600,), generator=generator)
    b = torch.where(torch.rand(600, generator=generator) < 0.8, y, torch.randint(0, 3, (600,), generator=generator))
    z = drawn(600, 8)
    z[:, :3] += 3 * F.one_hot(b, 3)
    z[:, 4] += 4 * y
    cells = Cells.of(y, b)
    weights = group_weights(strata(cells, "cells"))
    matrix, shift = eraser(z, b, weights)
    erased = z.double() @ matrix.T + shift
    share = (weights / weights.sum()).double()
    one_hot = F.one_hot(b).double()
    across = ((erased - share @ erased) * share[:, None]).T @ (one_hot - share @ one_hot)
    assert across.abs().max() < 1e-12
    probe = LogisticRegression(C=1e6, max_iter=2000)
    weight = weights.numpy()
    before = probe.fit(z.numpy(), b.numpy(), sample_weight=weight).score(z.numpy(), b.numpy(), sample_weight=weight)
    probe.fit(erased.numpy(), b.numpy(), sample_weight=weight)
    prior = max(float(share[b == k].sum()) for k in range(3))
    assert before > prior + 0.2
    assert np.allclose(probe.coef_, 0, atol=1e-3)
    target = LogisticRegression(max_iter=2000).fit(erased.numpy(), y.numpy()).score(erased.numpy(), y.numpy())
    assert target > 0.95
    # what is not about b stays: the mean, and one application is enough
    assert torch.allclose(share @ erased, share @ z.double())
    assert torch.allclose(matrix @ matrix, matrix, atol=1e-9)


def test_leace_changes_least():
    """Any other affine map that erases b moves the features further; here the plain orthogonal projection."""
    z, b = drawn(400, 5) @ drawn(5, 5, seed=3), torch.arange(400) % 2
    z[:, 1] += 2 * b
    even = torch.ones(400)
    matrix, shift = eraser(z, b, even)
    direction = (z[b == 1].mean(0) - z[b == 0].mean(0)).double()
    projected = (
        z.double() - torch.outer((z.double() - z.double().mean(0)) @ direction, direction) / direction.square().sum()
    )
    moved_by = (z.double() @ matrix.T + shift - z.double()).square().sum()
    assert moved_by < (projected - z.double()).square().sum()


# RUBi, LearnedMixin, LNL, FFW, BiasBalance, DI


def test_masked_and_mixed_losses_by_hand():
    logits, q, y = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, math.log(3)]]), torch.tensor([1])
    # σ(0) = 1/2 and σ(ln 3) = 3/4: logits (1, 0), and the answers' p = (1/4, 3/4)
    by_hand = math.log(1 + math.e) + 0.5 * -math.log(0.75)
    assert float(masked_loss(logits, q, y, 0.5)) == pytest.approx(by_hand)
    # p_f = (1/2, 1/2), p_g² ∝ (1/16, 9/16): p = (0.1, 0.9) for both the sum and H
    biased = torch.tensor([[0.25, 0.75]]).log()
    spread = -(0.1 * math.log(0.1) + 0.9 * math.log(0.9))
    found = mixed_loss(torch.zeros(1, 2), biased, torch.tensor([2.0]), y, 0.36)
    assert float(found) == pytest.approx(-math.log(0.9) + 0.36 * spread)


def test_reversal_and_entropy():
    z = drawn(3, 2).requires_grad_()
    out = reversed_gradient(z, 0.1)
    assert torch.allclose(out, z)
    (gradient,) = torch.autograd.grad((out * torch.arange(6.0).view(3, 2)).sum(), z)
    assert torch.allclose(gradient, -0.1 * torch.arange(6.0).view(3, 2))
    assert float(negative_entropy(torch.zeros(4, 8))) == pytest.approx(-math.log(8))
    assert float(negative_entropy(torch.tensor([[100.0, 0.0]]))) == pytest.approx(0, abs=1e-6)


def test_a_two_sided_sigmoid():
    w, tau = torch.tensor([-0.2, 0.0, 0.3], requires_grad=True), torch.tensor(0.1)
    gate = two_sigmoid(w, tau)
    assert gate.tolist() == pytest.approx([2 / (1 + math.exp(2)), 1, 1])
    (slope,) = torch.autograd.grad(gate.sum(), w)
    s = [1 / (1 + math.exp(-v / 0.1)) for v in (-0.2, 0, 0.3)]
    assert slope.tolist() == pytest.approx([2 * v * (1 - v) / 0.1 for v in s], rel=1e-4)


def test_shares_by_hand():
    y, b = torch.tensor([0, 0, 1, 1, 1, 2]), torch.tensor([0, 0, 0, 1, 1, 1])
    assert torch.allclose(shares(y, b, 3), torch.tensor([[2 / 3, 1 / 3, 0], [0, 2 / 3, 1 / 3]]))
    assert log_given_bias(y, b, 3)[0, 2] == pytest.approx(math.log(1e-9))
    # 1 / p(b | y): 1 for y = 0 and 2, 3 and 1.5 for y = 1; three times the smallest is the most
    assert draw_weights(y, b, 3, 10.0).tolist() == pytest.approx([1, 1, 3, 1.5, 1.5, 1])
    assert draw_weights(y, b, 3, 2.0).tolist() == pytest.approx([1, 1, 2, 1.5, 1.5, 1])


def test_each_sample_has_the_block_of_its_b():
    logits = torch.arange(12.0).view(2, 3, 2)
    assert own_block(logits, torch.tensor([2, 0])).tolist() == [[4, 5], [6, 7]]


# JTT, subsampling, SoftCon's draws, samplers


def test_errors_are_repeated():
    assert repeated(torch.tensor([False, True, False]), 3).tolist() == [0, 1, 2, 1, 1, 1]


def test_a_subset_has_cells_of_one_size():
    cell = torch.tensor([0] * 50 + [1] * 7 + [3] * 20 + [-1] * 9)
    kept = subset_of(cell, 1, torch.Generator().manual_seed(0))
    assert torch.bincount(cell[kept], minlength=4).tolist() == [7, 7, 0, 7]
    assert len(torch.unique(kept)) == 21
    kept = subset_of(cell, 10, torch.Generator().manual_seed(0))
    assert torch.bincount(cell[kept], minlength=4).tolist() == [10, 7, 0, 10]


def test_unlikeness_by_hand():
    """In class 0 three samples point up and one right: it is unlike most, and they are like most."""
    features = torch.tensor([[0.0, 1.0]] * 3 + [[1.0, 0.0]] + [[0.0, 1.0]])
    found = unlikeness(features, torch.tensor([0, 0, 0, 0, 1]), torch.Generator().manual_seed(0)) / REFERENCES
    assert found[:3].tolist() == pytest.approx([0.25] * 3, abs=0.05)
    assert found[3] == pytest.approx(0.75, abs=0.05)
    assert found[4] == 0


def test_samplers():
    generator = torch.Generator().manual_seed(0)
    assert sorted(Listed(torch.tensor([5, 5, 7]), 6).draw(None, 2, generator).tolist()) == [5, 5, 5, 5, 7, 7]
    assert len(Listed(torch.tensor([5, 7]), 6).draw(4, 2, generator)) == 8
    order = Weighted(torch.tensor([0.0, 1.0, 3.0, 0.0])).draw(1, 8000, generator)
    counts = torch.bincount(order, minlength=4)
    assert counts[[0, 3]].tolist() == [0, 0]
    assert int(counts[2]) / 8000 == pytest.approx(0.75, abs=0.02)
    beside = Beside(10, Weighted(torch.tensor([0.0] * 9 + [1.0])), views=2)
    batches = beside.draw(None, 5, generator).view(2, 5)
    assert beside.first(5) == 3
    assert batches[:, 3:].tolist() == [[9, 9], [9, 9]]
    assert len(torch.unique(batches[:, :3])) == 6  # a natural pass


# EIIL and PGI


def test_slopes_are_the_gradients_towards_a_scale():
    logits, y = drawn(6, 3).double(), torch.tensor([0, 1, 2, 2, 1, 0])
    for i, found in enumerate(slopes(logits, y).tolist()):
        scale = torch.ones((), dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(F.cross_entropy(scale * logits[i : i + 1], y[i : i + 1]), scale)
        assert found == pytest.approx(float(gradient))


def test_violation_by_hand():
    """Means of q a and (1 − q) a: (1 · 2 + 0.5 · −4) / 2 = 0 and (0 + 0.5 · −4) / 2 = −1."""
    assert float(violation(torch.tensor([1.0, 0.5]), torch.tensor([2.0, -4.0]))) == 0.5


def test_environments_are_the_best_cut_of_all():
    """By brute force over the 2⁸ cuts; which side is which is chance."""
    a = drawn(8, seed=3)
    cuts = torch.tensor(list(itertools.product([0.0, 1.0], repeat=8)))
    best = max(float(violation(cut, a)) for cut in cuts)
    found = environments(a, 400, 0.1, torch.Generator().manual_seed(0))
    assert float(violation(found.float(), a)) == pytest.approx(best)


def test_irms_loss_by_torchs_own_gradients():
    logits, y = drawn(7, 3).double(), torch.tensor([0, 1, 2, 2, 1, 0, 0])
    hard = torch.tensor([True, False, False, True, False, False, True])
    total = 0.0
    for part in (hard, ~hard):
        scale = torch.ones((), dtype=torch.float64, requires_grad=True)
        error = F.cross_entropy(scale * logits[part], y[part])
        (gradient,) = torch.autograd.grad(error, scale)
        total += float(error.detach() + 20 * gradient**2) / 2
    assert float(invariant(logits, y, hard, torch.tensor(20.0))) == pytest.approx(total / 20, rel=1e-6)


def test_a_parting_by_hand():
    """Parts (1, ½) and (0, ½) have the risks 5 / 1.5 and 6, and the slopes by class (2, ⅓) and (0, 1)."""
    found = parting(torch.tensor([1.0, 0.5]), torch.tensor([2.0, 6.0]), torch.tensor([[3.0, 0.0], [0.0, 1.0]]))
    assert float(found) == pytest.approx(5 / 1.5 + 6 + 10 * (4 + 1 / 9) + 10 * 1, rel=1e-5)


def test_divergence_by_torchs_own():
    p, y = drawn(8, 3).softmax(1), torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
    hard = torch.tensor([True, False, False, True, True, False, False, False])  # class 2 has no hard part
    kept = 0.0
    for one in (0, 1):
        own, other = p[(y == one) & hard].mean(0), p[(y == one) & ~hard].mean(0)
        kept += float(F.kl_div(other.log(), own, reduction="none").mean())
    assert float(divergence(p, y, hard, 3)) == pytest.approx(kept, rel=1e-5)


def test_the_harder_part_is_found_over_all_or_in_each_class():
    errors, y = torch.tensor([1.0, 2.0, 5.0, 4.0, 3.0]), torch.tensor([0, 0, 1, 1, 2])
    part = torch.tensor([True, False, False, True, True])
    assert harder(errors, part, y, by_class=True).tolist() == [False, True, True, False, False]
    assert harder(errors, part, y, by_class=False).tolist() == [False, True, True, False, False]
    with pytest.raises(BadInput, match="are one"):
        harder(errors, torch.ones(5, dtype=torch.bool), y, by_class=True)


def test_sides_of_a_cut():
    values, y = torch.tensor([0.1, 0.9, 0.2, 0.4, 0.9, 0.6]), torch.tensor([0, 0, 1, 1, 2, 2])
    assert sides(values, 0.5, y).tolist() == [False, True, False, True, True, False]


def test_a_conflicting_sample_is_named_after_its_likeliest_other_class():
    logits = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [0.0, 9.0, 1.0]])
    y, conflicting = torch.tensor([0, 0, 1]), torch.tensor([False, True, True])
    assert named(logits, y, conflicting).tolist() == [0, 1, 2]


# DebiAN


def test_debian_by_loops():
    p, d = drawn(7).sigmoid(), drawn(7, seed=1).sigmoid()
    y = torch.tensor([0, 0, 0, 1, 1, 1, 1])  # no sample of class 2
    losses, weights = [], [0.0] * 7
    for one in (0, 1):
        at = [i for i in range(7) if y[i] == one]
        of = [sum(float(d[i] * p[i]) for i in at) / sum(float(d[i]) for i in at)]
        of.append(sum(float((1 - d[i]) * p[i]) for i in at) / sum(float(1 - d[i]) for i in at))
        mean = sum(float(d[i]) for i in at) / len(at)
        losses.append(-math.log(abs(of[0] - of[1]) + 1e-6) - 0.5 * math.log(1 - abs(mean - (1 - mean)) + 1e-6))
        for i in at:
            weights[i] = float(d[i]) if of[0] <= of[1] else 1 - float(d[i])
    assert float(discovery(p, d, y, 3, 0.5)) == pytest.approx(sum(losses) / 2, rel=1e-4)
    assert worse(p, d, y, 3).tolist() == pytest.approx(weights)
    assert group_means(p, d, y, 3)[3].tolist() == [3, 4, 0]


def test_a_gradient_is_held_at_its_length():
    d = drawn(4).requires_grad_()
    for factor, length in ((100.0, 0.5), (0.01, 0.02)):  # 1/√4, and what is shorter already
        (gradient,) = torch.autograd.grad((factor * held(d * 1)).sum(), d)
        assert float(gradient.norm()) == pytest.approx(length)


# VCBA


def test_distances_beyond_the_border_by_hand():
    """Centroids (0, 2) and (4, 2), so that the border is x = 2; two mistakes of class 0 are 1 and 3 beyond it."""
    z = torch.tensor([[0.0, 1.0], [0.0, 3.0], [4.0, 2.0], [3.0, 7.0], [5.0, 0.0], [1.0, 1.0]])
    y, predicted = torch.tensor([0, 0, 1, 0, 0, 2]), torch.tensor([0, 0, 1, 1, 1, 0])  # of class 2 nothing is right
    norm = (2 + math.sqrt(20)) / 2
    assert beyond(z, y, predicted, 3).tolist() == pytest.approx([1 / norm, 3 / norm])
    assert len(beyond(z, predicted, predicted, 3)) == 0


def test_weights_by_the_guessed_share_by_hand():
    """Two of the samples have b̂ = 1 by guess, of four in class 1; one has b̂ = 0, of five in class 0."""
    y = torch.tensor([0] * 5 + [1] * 4)
    guessed = torch.tensor([0, 0, 0, 1, 1, 1, 1, 1, 0])
    aligned, other = [1 / (1 - 1 / 5)] * 3, [1 / (2 / 4)] * 2
    assert class_weights(y, guessed, 2).tolist() == pytest.approx(aligned + other + [2.0] * 3 + [5.0])


# LWBC


def test_the_committees_weights_and_loss_by_loops():
    votes, main = drawn(3, 4, 2), drawn(3, 2, seed=1)
    y, own = torch.tensor([0, 1, 1]), torch.tensor([[True, False, False, True]] * 2 + [[False] * 4])
    right = [sum(int(votes[i, m].argmax()) == int(y[i]) for m in range(4)) / 4 for i in range(3)]
    assert committee_weights(votes, y, 0.02).tolist() == pytest.approx([1 / (h + 0.02) for h in right])
    taught, told = [], []
    for i, m in itertools.product(range(3), range(4)):
        if own[i, m]:
            taught.append(float(F.cross_entropy(votes[i, m], y[i])))
        else:
            soft = (votes[i, m] / 2.5).log_softmax(0)
            told.append(float(F.kl_div(soft, (main[i] / 2.5).softmax(0), reduction="sum")))
    by_hand = 0.4 * sum(taught) / len(taught) + 0.6 * 2.5**2 * sum(told) / len(told)
    assert float(committee_loss(votes, main, y, own, 0.6, 2.5)) == pytest.approx(by_hand, rel=1e-5)


# HEX


def test_what_is_projected_is_the_residual_of_least_squares():
    both, texture = drawn(20, 3).double(), drawn(20, 3, seed=1).double()
    residual = both - texture @ torch.linalg.lstsq(texture, both).solution
    assert torch.allclose(projected(both, texture, 1e-12), residual, atol=1e-5)
    assert (texture.T @ projected(both, texture, 1e-12)).abs().max() < 1e-4
    # where texture says nothing, or there are fewer samples than classes, it stays finite
    assert torch.allclose(projected(both, torch.zeros_like(both), 1e-3), both)
    assert projected(both[:2], texture[:2], 1e-3).isfinite().all()


def test_co_occurrence_by_loops():
    grey, here, there = 3 * drawn(2, 3, 4).abs(), torch.tensor([0.2, 1.0]), torch.tensor([0.5, 1.5])
    found = co_occurrence(grey, here, there)
    for n, i, j in itertools.product(range(2), range(2), range(2)):
        total = 0.0
        for row, column in itertools.product(range(3), range(3)):
            one = min(max(float(grey[n, row, column + 1] - there[i]), 1e-5), 1)
            total += one * min(max(float(grey[n, row, column] - here[j]), 1e-5), 1)
        assert float(found[n, i, j]) == pytest.approx(total / 9, rel=1e-4)


# distillation


def test_distillation_is_torchs_own():
    student, teacher = drawn(5, 3), drawn(5, 3, seed=1)
    own = F.kl_div((student / 3).log_softmax(1), (teacher / 3).softmax(1), reduction="none").sum(1)
    assert torch.allclose(distillation(student, teacher, 3.0), 9 * own, atol=1e-6)


def test_weights_of_what_is_misread_by_hand():
    """Readouts (¾, ¼) and (¼, ¾) have the margin ½; of class 1 the first is misread."""
    read = torch.tensor([[math.log(3), 0.0], [0.0, math.log(3)]])
    weights, wrong = misread_weights(read, torch.tensor([1, 1]), 0.1, 3.5)
    assert weights.tolist() == pytest.approx([math.exp(3.5 * 0.5**0.1)] * 2)
    assert wrong.tolist() == [True, False]
    assert error_weights(wrong, 50.0).tolist() == [50, 1]


def test_a_student_with_its_teachers_last_layer():
    """Where the projector gives the teacher's features, it answers as the teacher does; the teacher stands still."""
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    student = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    learner = Transplanted(student, "2", model, "2", 6)
    x = drawn(8, 4)
    logits, z = learner.told(x)
    assert torch.allclose(logits, model(x))
    assert torch.allclose(z, model[:2](x))
    assert not learner.train().teacher.training
    head = learner.network.get_submodule("2")
    assert torch.equal(head[1](z), model[2](z))
    own = head[0](student[:2](x))
    learner.network.train()
    variance = z.var(0, correction=0).mean()
    assert torch.allclose(learner.apart(x), (own - z).square().mean(1) / variance, rtol=1e-4)
    free = {name for name, parameter in learner.named_parameters() if not was_frozen(parameter)}
    assert {name.split(".")[0] for name in free} == {"network"}
    assert not any(name.startswith("network.2.1") for name in free)


# pruning, the narrow network


def test_ranks_and_masks_by_hand():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[3.0, 4.0], [0.0, 1.0], [0.0, 2.0]]))
        model[2].weight.copy_(torch.diag(torch.tensor([0.5, 0.6, 0.7, 0.0]))[:, :3])
    example = torch.zeros(2, 2)
    ranks = magnitudes(model, place(model, example), example)
    assert {name: rank.tolist() for name, rank in ranks.items()} == {
        "1": [5, 1, 2],
        "3": pytest.approx([0.5, 0.6, 0.7, 0.0]),
    }
    # four of seven units go: all of the second site's but its best, and the lowest of the first
    masks = masks_of(ranks, 4 / 7)
    assert {name: mask.tolist() for name, mask in masks.items()} == {
        "1": [True, True, True],
        "3": [False, False, True, False],
    }


def test_a_narrow_network_sees_single_pixels():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, stride=2), nn.ReLU(), nn.Conv2d(4, 5, 7, padding=3)).eval()
    shape = model(torch.zeros(1, 3, 8, 8)).shape
    narrow = narrowed(model)
    x = drawn(1, 3, 8, 8)
    out = narrow(x)
    assert out.shape == shape
    other = x.clone()
    other[0, :, 2, 2] += 1
    moved_at = (narrow(other) != out).any(1).nonzero()
    assert moved_at.tolist() == [[0, 1, 1]]
