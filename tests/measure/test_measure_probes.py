import pytest
import torch
from sklearn.linear_model import LogisticRegression

from bise.measure import probes
from bise.measure.probes import Probe, fit_logistic, linear_probe


def biased(n: int, rho: float, seed: int = 0, classes: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Targets and biases that agree with probability rho (and by chance otherwise)."""
    generator = torch.Generator().manual_seed(seed)
    y, other = torch.randint(classes, (2, n), generator=generator)
    return y, torch.where(torch.rand(n, generator=generator) < rho, y, other)


def noise(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_the_fit_is_scikit_learns():
    x = noise(300, 5).double()
    target = (x[:, :3] + noise(300, 3, seed=2)).argmax(dim=1)
    share = torch.rand(300, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    share /= share.sum()
    weight, bias = fit_logistic(x, target, share, 3)
    # Σ share CE + λ/2 ‖W‖² is theirs with C = 1/λ.
    model = LogisticRegression(C=1e4, tol=1e-10, max_iter=2000)
    model.fit(x.numpy(), target.numpy(), sample_weight=share.numpy())
    expected = torch.from_numpy(model.predict_proba(x.numpy()))
    torch.testing.assert_close((x @ weight.T + bias).softmax(dim=1), expected, atol=1e-3, rtol=0)


def test_the_probe_is_as_good_as_scikit_learns():
    y, b = biased(4000, 0.0)
    z = noise(4000, 16) + 1.2 * torch.eye(4, 16)[b] + 2 * torch.eye(4, 16).flip(1)[y]
    probe = linear_probe(z, b, cell=y * 4 + b)
    model = LogisticRegression(max_iter=1000).fit(z[:2000].numpy(), b[:2000].numpy())
    expected = model.score(z[2000:].numpy(), b[2000:].numpy())
    assert 0.4 < expected < 0.9
    assert probe.accuracy == pytest.approx(expected, abs=0.02)


def test_separable_features_are_read_perfectly():
    y, b = biased(800, 0.9)
    z = torch.eye(4)[b] + 0.01 * noise(800, 4)
    assert linear_probe(z, b, cell=y * 4 + b).accuracy == pytest.approx(1.0, abs=1e-3)


def test_noise_is_read_at_chance():
    y, b = biased(6000, 0.0)
    probe = linear_probe(noise(6000, 8), b, cell=y * 4 + b)
    assert probe.chance == pytest.approx(0.25)
    assert probe.accuracy == pytest.approx(0.25, abs=0.03)


def test_the_target_does_not_give_the_bias_away():
    y, b = biased(6000, 0.9)
    z = torch.eye(4)[y] + 0.01 * noise(6000, 4)
    # Guessing b = y is right for 0.9 + 0.1 / 4 of the samples, but for one in four cells.
    assert (y == b).double().mean() > 0.9
    probe = linear_probe(z, b, cell=y * 4 + b)
    assert probe.chance == pytest.approx(0.25)
    assert probe.accuracy == pytest.approx(0.25, abs=0.06)


def test_chance_is_the_share_of_cells_by_hand():
    # Cells (0, 0), (0, 1), (1, 1) with 10, 4 and 2 samples: b = 1 has two of three cells, if few samples.
    b = torch.tensor([0] * 10 + [1] * 6)
    cell = torch.tensor([0] * 10 + [1] * 4 + [3] * 2)
    probe = linear_probe(torch.zeros(16, 3), b, cell=cell)
    assert probe == Probe(accuracy=pytest.approx(2 / 3), chance=pytest.approx(2 / 3), n=8)


def test_cells_of_one_sample_are_not_tested():
    b = torch.tensor([0, 0, 0, 1, 1, 2])
    probe = linear_probe(torch.eye(3)[b], b, cell=b)
    assert probe.n == 2
    assert probe.chance == pytest.approx(0.5)


def test_training_and_testing_share_no_sample():
    # Every sample has a feature of its own: only a probe that saw a sample could know its random b.
    generator = torch.Generator().manual_seed(0)
    b = torch.randint(2, (400,), generator=generator)
    probe = linear_probe(torch.eye(400), b, cell=torch.zeros_like(b))
    assert probe.accuracy < 0.65


def test_a_large_training_half_is_cut_evenly_over_cells(monkeypatch):
    monkeypatch.setattr(probes, "MAX_TRAINING_SAMPLES", 100)
    cell = torch.tensor([0] * 1000 + [1] * 500 + [2] * 20)
    train, test = probes._split(cell, seed=0)
    assert torch.bincount(cell[train]).tolist() == [45, 45, 10]
    assert torch.bincount(cell[test]).tolist() == [500, 250, 10]
    assert not set(train.tolist()) & set(test.tolist())


def test_constant_and_badly_scaled_features_do_no_harm():
    y, b = biased(800, 0.5)
    z = torch.cat([1e6 + 1e3 * (torch.eye(4)[b] + 0.01 * noise(800, 4)), torch.full((800, 3), 3.1)], dim=1)
    assert linear_probe(z, b, cell=y * 4 + b).accuracy == pytest.approx(1.0, abs=1e-3)


def test_features_are_scaled_by_the_training_half_alone():
    train, test = torch.tensor([[1.0, 7.0], [3.0, 7.0]]), torch.tensor([[5.0, 9.0]])
    scaled_train, scaled_test = probes._standardise(train, test)
    assert scaled_train.tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert scaled_test.tolist() == [[3.0, 2.0]]


def test_the_seed_decides_the_split_and_nothing_global_does():
    y, b = biased(400, 0.5)
    z, cell = noise(400, 6), y * 4 + b
    state = torch.get_rng_state()
    first = linear_probe(z, b, cell=cell, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(7)
    assert linear_probe(z, b, cell=cell, seed=3) == first
    assert any(linear_probe(z, b, cell=cell, seed=seed) != first for seed in (4, 5))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_it_learns_where_gradients_are_off(mode):
    y, b = biased(400, 0.5)
    with mode():
        z = (torch.eye(4)[b] + 0.01 * noise(400, 4)).double()
        assert linear_probe(z, b, cell=y * 4 + b).accuracy > 0.99


def test_features_that_require_gradients_get_none():
    y, b = biased(400, 0.5)
    z = noise(400, 4).requires_grad_()
    linear_probe(z, b, cell=y * 4 + b)
    assert z.grad is None


def test_errors_name_the_argument():
    b = torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"z: shape \[2\]"):
        linear_probe(torch.zeros(2), b, cell=b)
    with pytest.raises(ValueError, match="lengths"):
        linear_probe(torch.zeros(3, 1), b, cell=b)
    with pytest.raises(ValueError, match="z: holds nan"):
        linear_probe(torch.tensor([[0.0], [float("nan")]]), b, cell=b)
    with pytest.raises(ValueError, match="no cell has two samples"):
        linear_probe(torch.zeros(2, 1), b, cell=b)
