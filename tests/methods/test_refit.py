"""The last layer fitted anew: the solver against scikit-learn and by hand, what is owned, refused, saved and told."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import bise
from bise import BadInput, BiseWarning
from bise.data import Labelled, labels
from bise.data.core.coders import word_pieces
from bise.data.core.tokens import Sentences
from bise.engine.inputs import Inputs
from bise.methods.refit import logistic
from bise.methods.refit.fitting_data import Part, fold_of
from bise.methods.refit.logistic import Problem, solve
from bise.network.twin import digest_of, named_tensors
from conftest import Stream, toy, toy_model, trained
from small_texts import small

L2 = (1e-5, 1e-3, 1e-1)


@pytest.fixture(scope="module")
def parts():
    """(model, a subnetwork of it with a third of each site closed, train, val, test)."""
    train, val, test = toy(seed=0), toy(rho=1 / 3, seed=1), toy(n=1500, rho=1 / 3, seed=2)
    model = trained(toy_model(), train)
    return model, masked(model, train.tensors[0][:4]), train, val, test


def masked(model, example, **more):
    sizes = bise.sites(model, example)
    return bise.subnetwork(model, {name: torch.arange(n) % 3 > 0 for name, n in sizes.items()}, example=example, **more)


def features(sub, x, layer):
    """What the layer gets, by a hook of our own."""
    seen = []
    hook = dict(sub.network.named_modules())[layer].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        sub(x)
    hook.remove()
    return seen[0]


def even(cell):
    """Weights with sum 1, the same for each cell."""
    counts = {c: int((cell == c).sum()) for c in cell.tolist()}
    return np.array([1 / (counts[c] * len(counts)) for c in cell.tolist()])


# the solver


def random_problem(classes, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(400, 7)) * np.logspace(-2, 2, 7) + np.linspace(-5, 5, 7)
    z[:, 3] = 4.2  # constant
    y = rng.integers(0, classes, 400)
    z[:, 0] += 0.01 * y
    return torch.from_numpy(z), torch.from_numpy(y), torch.from_numpy(rng.dirichlet(np.ones(400)))


def by_sklearn(z, y, share, l2, *, intercept=True):
    """(coefficients, intercepts) on the features as they are, standardised by numpy."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    z, share = z.double().numpy(), share.numpy()
    mean = share @ z if intercept else np.zeros(z.shape[1])
    scale = np.sqrt(share @ (z - mean) ** 2)
    scale[scale < 1e-9 * np.abs(z).max(0)] = 1
    scale[scale == 0] = 1
    # its objective is C · Σ share · CE + ‖W‖²/2
    oracle = linear_model.LogisticRegression(
        C=1 / l2, solver="newton-cholesky", tol=1e-13, max_iter=1000, fit_intercept=intercept
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own line search, at the level of rounding
        oracle.fit((z - mean) / scale, y.numpy(), sample_weight=share)
    coefficients = oracle.coef_ / scale
    return coefficients, oracle.intercept_ - coefficients @ mean


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("l2", L2)
@pytest.mark.parametrize(("classes", "outputs"), [(4, 4), (2, 1)])
@pytest.mark.parametrize("way", ["by products", "factored, as on a GPU"])
def test_the_solver_agrees_with_scikit_learn(monkeypatch, way, classes, outputs, l2, intercept):
    if way != "by products":
        monkeypatch.setattr(logistic, "_by_products", logistic.factored)
    z, y, share = random_problem(classes)
    problem = Problem(z, y, share, outputs=outputs, intercept=intercept)
    optimum = solve(problem, l2)
    assert optimum.converged
    assert optimum.gradient <= 1e-7 * l2
    weight, bias = problem.folded(optimum.theta)
    coefficients, intercepts = by_sklearn(z, y, share, l2, intercept=intercept)
    np.testing.assert_allclose(weight.numpy(), coefficients, atol=1e-6)
    bias = bias.numpy()
    if outputs > 1:  # the same for all classes may be added to the intercepts
        bias, intercepts = bias - bias.mean(), intercepts - intercepts.mean()
    np.testing.assert_allclose(bias, intercepts, atol=1e-5)
    if intercept:
        assert torch.equal(weight[:, 3], torch.zeros(outputs, dtype=torch.float64))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_one_logit_by_hand():
    """z becomes x = −1 and 1. With w on one logit the slope is −σ(−w) + λ w, which λ = σ(−1) makes 0 at w = 1."""
    z, y = torch.tensor([[0.0], [0.0], [0.0], [2.0]]), torch.tensor([0, 0, 0, 1])
    share = torch.tensor([1 / 6, 1 / 6, 1 / 6, 1 / 2], dtype=torch.float64)
    problem = Problem(z, y, share, outputs=1)
    optimum = solve(problem, sigmoid(-1))
    weight, bias = problem.folded(optimum.theta)
    assert weight.item() == pytest.approx(1, abs=1e-6)
    assert bias.item() == pytest.approx(-1, abs=1e-6), "the logit is x = z − 1"


def test_two_logits_by_hand():
    """w and −w make a difference of 2 w x, and a penalty of λ w²: the slope −2 σ(−2w) + 2 λ w is 0 at w = ½ for
    λ = 2 σ(−1)."""
    z, y = torch.tensor([[0.0], [2.0]]), torch.tensor([0, 1])
    problem = Problem(z, y, torch.tensor([0.5, 0.5], dtype=torch.float64), outputs=2)
    weight, bias = problem.folded(solve(problem, 2 * sigmoid(-1)).theta)
    assert weight.flatten().tolist() == pytest.approx([-0.5, 0.5], abs=1e-6)
    assert bias.tolist() == pytest.approx([0.5, -0.5], abs=1e-6)


def test_pieces_on_the_fly_are_the_whole(monkeypatch):
    z, y, share = random_problem(3)
    whole = Problem(z, y, share, outputs=3)
    monkeypatch.setattr(logistic, "AT_ONCE", 33)
    monkeypatch.setattr(logistic, "HELD", 0)
    pieces = Problem(z.float(), y, share, outputs=3)
    assert pieces.held is None
    assert len(pieces.parts) == 13
    one, other = (solve(problem, 1e-3).theta[:, :-1] for problem in (whole, pieces))
    torch.testing.assert_close(one, other, atol=1e-5, rtol=0)  # z in float32 is another one


# the layer


@pytest.mark.parametrize("on", ["train", "val", "both"])
def test_the_layer_is_the_optimum_on_masked_features(parts, on):
    model, _, train, val, _ = parts
    model = toy_model().double()
    model.load_state_dict(parts[0].state_dict())
    sub = masked(model, train.tensors[0][:4].double())
    doubled = {
        name: Labelled(TensorDataset(data.tensors[0].double()), y=data.y, b=data.b)
        for name, data in (("train", train), ("val", val))
    }
    found = bise.refit(sub, doubled["train"], val=doubled["val"], on=on, l2=[1e-3], keep_worse=True)
    used = [doubled[name] for name in ("train", "val") if on in (name, "both")]
    y, b = (torch.cat([getattr(data, key) for data in used]) for key in "yb")
    z = torch.cat([features(sub, data.tensors[0], "5") for data in used]).float()  # features are kept in float32
    coefficients, intercepts = by_sklearn(z, y, torch.from_numpy(even(y * 3 + b)), 1e-3)
    np.testing.assert_allclose(found.network[5].weight.numpy(), coefficients, atol=1e-6)
    np.testing.assert_allclose(found.network[5].bias.numpy(), intercepts - intercepts.mean(), atol=1e-6)
    closed = ~sub.masks["4"]
    assert closed.any()
    assert not found.network[5].weight[:, closed].any(), "closed units have no variance, so no weight"
    record = found.record
    assert record["samples"] == {name: 600 for name in ("train", "val") if on in (name, "both")}
    assert sum(record["n_by_cell"].values()) == len(y)
    assert record["n_by_cell"]["y=1 b=2"] == int(((y == 1) & (b == 2)).sum())
    assert record["solver"]["gradient"] <= record["solver"]["wanted"] == pytest.approx(1e-10)
    assert record["solver"]["constant_features"] >= int(closed.sum())


def test_only_the_last_layer_is_its_own(parts):
    model, sub, train, val, test = parts
    before = bise.fingerprint(model), bise.fingerprint(sub)
    found = bise.refit(sub, train, val=val, on="val")
    assert (bise.fingerprint(model), bise.fingerprint(sub)) == before
    assert found.owned == {"5.weight", "5.bias"}
    theirs, ours = named_tensors(model), named_tensors(found.network)
    assert {name for name in theirs if theirs[name].data_ptr() != ours[name].data_ptr()} == found.owned
    rest = digest_of({name: tensor for name, tensor in theirs.items() if name not in found.owned})
    assert found.record["rest"] == {"before": rest, "after": rest}
    assert all(torch.equal(found.masks[name], sub.masks[name]) for name in sub.masks)
    assert not any(parameter.requires_grad for parameter in found.parameters())
    assert bise.audit(found, test).unbiased > bise.audit(sub, test).unbiased + 0.02
    tried = found.record["l2"]["tried"]
    best = max(tried, key=lambda row: (row["accuracy"], -row["cross_entropy"]))
    assert found.record["l2"]["chosen"] == best["l2"]
    assert sorted(row["l2"] for row in tried) == [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]


def test_val_judges_what_is_fitted_on_train(parts):
    _, sub, train, val, _ = parts
    found = bise.refit(sub, train, val=val)
    figures = found.record["val"]
    for name, network in (("before", sub), ("after", found)):
        audited = bise.audit(network, val, aligned=labels(train))
        assert figures[name]["unbiased"] == pytest.approx(audited.unbiased)
        assert figures[name]["worst_group"] == pytest.approx(audited.worst_group)
    # each group is a cell here
    assert max(row["accuracy"] for row in found.record["l2"]["tried"]) == pytest.approx(figures["after"]["unbiased"])
    assert (figures["by"], found.record["l2"]["by"]) == ("val", "val")


def test_without_val_or_on_val_folds_choose(parts):
    _, sub, train, val, _ = parts
    for given, by in (({}, "5 folds of train"), ({"val": val, "on": "both"}, "5 folds of val")):
        one, other = (bise.refit(sub, train, **given, l2=L2, seed=3) for _ in range(2))
        assert one.record["l2"]["by"] == by
        assert torch.equal(one.network[5].weight, other.network[5].weight)
        assert one.record["l2"] == other.record["l2"]
        assert one.record["l2"] != bise.refit(sub, train, **given, l2=L2, seed=4).record["l2"], "other folds"
    assert bise.refit(sub, train, l2=[0.1]).record["val"] is None


def test_figures_of_folds_are_of_samples_that_no_fit_has_seen(parts):
    """Labels without rhyme or reason: on samples that a fit has seen it would do better than guessing."""
    model, _, train, _, _ = parts
    y = torch.randint(0, 3, (60,), generator=torch.Generator().manual_seed(0))
    noise = Labelled(TensorDataset(torch.randn(60, 8)), y=y, b=torch.zeros(60, dtype=torch.long), bias_classes=3)
    found = bise.refit(model, train, val=noise, on="val", l2=[1e-5], keep_worse=True)
    assert bise.audit(found, noise).unbiased > 0.55, "a plane of 16 features learns much of 60 labels by heart"
    assert found.record["val"]["after"]["unbiased"] < 0.5


def test_folds_have_their_part_of_every_cell():
    data = toy(n=1000, rho=0.9, seed=5)
    cells = labels(data)
    fold = fold_of(cells, 5, 0)
    for cell in cells.index.unique():
        counts = torch.bincount(fold[cells.index == cell], minlength=5)
        assert int(counts.max() - counts.min()) <= 1
    rare = Labelled(TensorDataset(torch.zeros(6, 1)), y=[0, 0, 0, 0, 1, 1], b=[0, 0, 0, 1, 0, 1])
    fold = fold_of(labels(rare), 5, 0)
    assert fold[4] != fold[5], "one of the class is left to fit on"


def test_cells_weigh_evenly_however_many_samples_they_have(parts):
    _, sub, train, _, _ = parts
    again = torch.cat([torch.arange(600), *[(train.y == train.b).nonzero().flatten()] * 3])
    more = Labelled(TensorDataset(train.tensors[0][again]), y=train.y[again], b=train.b[again])
    one, other = (bise.refit(sub, data, l2=[1e-3]).network[5].weight for data in (train, more))
    torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_it_shrinks_exactly_and_comes_back_from_its_folder(parts, tmp_path):
    model, sub, train, val, test = parts
    found = bise.refit(sub, train, val=val, on="both")
    x = test.tensors[0]
    small_net = found.shrink(x[:8])
    report = small_net.shrink_report
    assert max(report.differences.values()) <= 1e-10
    assert report.parameters_after < report.parameters_before
    with torch.no_grad():
        torch.testing.assert_close(small_net(x), found(x), atol=1e-5, rtol=1e-5)
    found.save(tmp_path)
    assert {key for key in load_file(tmp_path / "subnetwork.safetensors") if key.startswith("own.")} == {
        "own.5.weight", "own.5.bias",
    }  # fmt: skip
    again = bise.load(tmp_path, model)
    with torch.no_grad():
        assert torch.equal(again(x), found(x))
    assert again.record["l2"]["chosen"] == found.record["l2"]["chosen"]
    tuned = bise.finetune(found, train, config=bise.TrainConfig.finetuning(epochs=1, lr=1e-9))
    torch.testing.assert_close(tuned.network[5].weight, found.network[5].weight, atol=1e-5, rtol=0)  # it goes on there


def test_what_is_worse_on_val_is_refused(parts, tmp_path):
    model, sub, train, val, _ = parts
    with torch.no_grad():
        said = sub(val.tensors[0]).argmax(1)  # who judges by these finds nothing better than what there is
    partial = Labelled(val.dataset, y=said, b=val.b, classes=3, bias_classes=3)
    with pytest.warns(BiseWarning, match="refit was refused, and 5 stays as it was.*100.0% to .*keep_worse=True"):
        found = bise.refit(sub, train, val=partial)
    assert found.record["refused"]
    assert found.record["val"]["before"]["unbiased"] == 1 > found.record["val"]["after"]["unbiased"]
    assert found.owned == frozenset()
    assert bise.fingerprint(found.bare()) == bise.fingerprint(model)
    found.save(tmp_path)
    assert torch.equal(bise.load(tmp_path, model).network[5].weight, model[5].weight)
    kept = bise.refit(sub, train, val=partial, keep_worse=True)
    assert not kept.record["refused"]
    assert kept.record["val"] == found.record["val"]
    assert not torch.equal(kept.network[5].weight, model[5].weight)


def test_samples_without_a_bias_label_are_left_out(parts):
    _, sub, train, _, _ = parts
    unknown = torch.arange(600) % 4 == 0
    known = Labelled(TensorDataset(train.tensors[0][~unknown]), y=train.y[~unknown], b=train.b[~unknown])
    mixed = Labelled(train.dataset, y=train.y, b=train.b.masked_fill(unknown, -1))
    with pytest.warns(BiseWarning, match="150 of 600 samples of train lack a bias label"):
        found = bise.refit(sub, mixed, l2=[1e-2])
    expected = bise.refit(sub, known, l2=[1e-2])
    torch.testing.assert_close(found.network[5].weight, expected.network[5].weight, atol=1e-6, rtol=1e-6)
    assert sum(found.record["n_by_cell"].values()) == 450


# models of every kind


class OneLogit(nn.Module):
    """[N] or [N, 1], a tuple or a dict."""

    def __init__(self, wrap):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.wrap = nn.Sequential(nn.Linear(8, 12), nn.ReLU()), nn.Linear(12, 1), wrap

    def forward(self, x):
        return self.wrap(self.head(self.body(x)))


@pytest.mark.parametrize(
    "wrap",
    [lambda s: s, lambda s: s[:, 0], lambda s: (s, None), lambda s: {"logits": s}],
    ids=["column", "flat", "tuple", "mapping"],
)
def test_one_logit(wrap):
    train, val = toy(classes=2, biases=2, rho=0.9, seed=0), toy(classes=2, biases=2, rho=0.5, seed=1)
    model = OneLogit(wrap)
    sub = masked(model, train.tensors[0][:4])
    found = bise.refit(sub, train, val=val, l2=[1e-2])
    z = features(sub, train.tensors[0], "head")
    coefficients, intercepts = by_sklearn(z, train.y, torch.from_numpy(even(train.y * 2 + train.b)), 1e-2)
    np.testing.assert_allclose(found.network.head.weight.numpy(), coefficients, atol=1e-5)
    np.testing.assert_allclose(found.network.head.bias.numpy(), intercepts, atol=1e-5)
    assert bise.audit(found, val).unbiased > 0.75 > bise.audit(sub, val).unbiased


def test_several_biases(parts):
    _, sub, train, val, test = parts
    flag = torch.arange(600) % 2
    two = [Labelled(d.dataset, y=d.y, b=torch.stack([d.b, flag], 1), bias_classes=(3, 2)) for d in (train, val)]
    found = bise.refit(sub, two[0], val=two[1], on="both")
    assert len(found.record["n_by_cell"]) == 18
    assert bise.audit(found, test).unbiased > bise.audit(sub, test).unbiased


def test_a_layer_without_bias_is_fitted_without_an_intercept(parts):
    _, _, train, val, _ = parts
    model = toy_model()
    model[5] = nn.Linear(16, 3, bias=False)
    sub = masked(model, train.tensors[0][:4])
    found = bise.refit(sub, train, val=val, l2=[1e-2])
    assert found.owned == {"5.weight"}
    z = features(sub, train.tensors[0], "5")
    coefficients, _ = by_sklearn(z, train.y, torch.from_numpy(even(train.y * 3 + train.b)), 1e-2, intercept=False)
    np.testing.assert_allclose(found.network[5].weight.numpy(), coefficients, atol=1e-5)


def test_a_model_without_gates_is_the_control(parts):
    model, _, train, val, test = parts
    found = bise.refit(model, train, val=val, on="val")
    assert found.sites == ()
    assert bise.audit(found, test).unbiased > bise.audit(model, test).unbiased + 0.02


def test_samples_that_are_asked_one_by_one(parts):
    _, sub, train, val, _ = parts
    one = bise.refit(sub, train, val=val)
    other = bise.refit(sub, Stream(train), val=Stream(val))
    torch.testing.assert_close(one.network[5].weight, other.network[5].weight)


class Counting(nn.Sequential):
    """A forward pass that moves a buffer."""

    def __init__(self, *layers):
        super().__init__(*layers)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


def test_a_model_that_counts_its_calls_is_left_as_it_was(parts):
    _, _, train, val, _ = parts
    model = Counting(*toy_model())
    found = bise.refit(masked(model, train.tensors[0][:4]), train, val=val)
    assert (model.calls, found.network.calls) == (0, 0)
    assert found.owned == {"5.weight", "5.bias", "calls"}


@pytest.mark.parametrize("kind", ["bert", pytest.param("roberta", marks=pytest.mark.long)])
def test_text(vocabulary, tmp_path, own_cache, kind):
    y = torch.arange(96) % 2
    b = torch.where(torch.arange(96) % 5 == 0, 1 - y, y)
    texts = [f"{('nice', 'fool')[y[i]]} {('old', 'young')[b[i]]}" + " the" * (i % 9) for i in range(96)]
    data = Labelled(Sentences(texts, word_pieces(vocabulary, 24)), y=y, b=b)
    model = small(kind)
    before = bise.fingerprint(model)
    example = Inputs(data, torch.device("cpu")).example(8)
    sub = masked(model, example)
    found = bise.refit(sub, data, val=data, on="val", l2=[1e-2])
    assert bise.fingerprint(model) == before
    layer = {"bert": "classifier", "roberta": "classifier.out_proj"}[kind]
    assert found.record["layer"] == found.bottleneck == layer
    assert found.owned == {f"{layer}.weight", f"{layer}.bias"}
    assert bise.audit(found, data).unbiased > bise.audit(sub, data).unbiased
    assert max(found.shrink(example).shrink_report.differences.values()) <= 1e-10
    found.save(tmp_path / "refitted")
    again = bise.load(tmp_path / "refitted", model)
    assert torch.equal(again.network.get_parameter(f"{layer}.weight"), found.network.get_parameter(f"{layer}.weight"))
    assert bise.audit(again, data).unbiased == bise.audit(found, data).unbiased


# what is refused


class Tied(nn.Module):
    """Its last layer is the first one too, or used by a function on the way."""

    def __init__(self, how):
        super().__init__()
        torch.manual_seed(0)
        self.how, self.first, self.head = how, nn.Linear(8, 8), nn.Linear(8, 8)
        if how == "tied":
            self.first.weight = self.head.weight

    def forward(self, x):
        if self.how == "twice":
            x = self.head(x)
        if self.how == "function":
            x = x * self.head.weight.sum()
        out = self.head(torch.relu(self.first(x)))
        return {"scaled": 3 * out, "probabilities": out.softmax(1)}.get(self.how, out)


class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(8, 8), nn.Conv1d(8, 3, 1)

    def forward(self, x):
        return self.head(torch.relu(self.first(x))[:, :, None])[:, :, 0]


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("tied", r"head.weight is tied to first.weight.*untie the two"),
        ("twice", r"head runs 2 times in one forward pass"),
        ("function", r"weights of head are used elsewhere in the network too"),
        ("scaled", r"head doesn't give the logits by itself"),
        ("probabilities", r"head doesn't give the logits by itself"),
    ],
)
@pytest.mark.filterwarnings("ignore:the model's outputs add up")
def test_a_last_layer_that_cannot_be_fitted_by_itself(how, sentence):
    data = toy(classes=3)
    data = Labelled(data.dataset, y=torch.arange(600) % 8, b=data.b)
    with pytest.raises(BadInput, match=sentence):
        bise.refit(Tied(how), data, l2=[1e-3])


def test_a_last_layer_that_is_not_linear(parts):
    _, sub, train, _, _ = parts
    with pytest.raises(BadInput, match="head is a Conv1d, and only a linear layer with a weight"):
        bise.refit(Convolved(), train, bottleneck="head")
    with pytest.raises(BadInput, match=r"gets its logits from no linear layer that is a module"):
        bise.refit(Convolved(), train)
    with pytest.raises(BadInput, match="4 is a ReLU, and only a linear layer"):
        bise.refit(sub, train, bottleneck="4")
    with pytest.raises(BadInput, match="3 doesn't give the logits by itself"):
        bise.refit(sub, train, bottleneck="3")
    normed = toy_model()
    nn.utils.parametrizations.weight_norm(normed[5])
    with pytest.raises(BadInput, match="5 is a ParametrizedLinear, and only a linear layer"):
        bise.refit(normed, train)


def of_classes(*counts):
    y = torch.cat([torch.full((n,), k) for k, n in enumerate(counts)])
    generator = torch.Generator().manual_seed(1)
    return Labelled(TensorDataset(torch.randn(len(y), 8, generator=generator)), y=y, b=torch.arange(len(y)) % 2)


@pytest.mark.parametrize(
    ("counts", "more", "sentence"),
    [
        ((1, 1), {"on": "val"}, "val has 2 samples with bias labels for 3 classes"),
        ((4, 4), {"on": "val"}, "val has no sample of class 2, which a last layer fitted on it would never answer"),
        ((4, 4, 1), {"on": "val"}, "val has one sample of class 2, and cross-validation over 5 folds needs two"),
        ((9, 9, 9), {"on": "test"}, "on='test' is unknown; use 'train' or 'val' or 'both'"),
        ((9, 9, 9), {"l2": []}, r"l2=\(\) leaves nothing to try"),
        ((9, 9, 9), {"l2": [0.0]}, "l2=0.0 must be a number greater than 0"),
        ((9, 9, 9), {"l2": [math.nan]}, "l2=nan must be a number greater than 0"),
        ((9, 9, 9), {"folds": 1}, "folds=1 leaves nothing to fit on"),
        ((9, 9, 9), {"bottleneck": "fc"}, "bottleneck='fc' is no module of Sequential; candidates are 5"),
    ],
)
def test_bad_input_is_one_sentence(parts, counts, more, sentence):
    _, sub, train, _, _ = parts
    with pytest.raises(BadInput, match=sentence) as error:
        bise.refit(sub, train, val=of_classes(*counts), **more)
    assert "\n" not in str(error.value)


def test_train_with_a_class_missing_and_no_val(parts):
    _, sub, train, _, _ = parts
    with pytest.raises(BadInput, match="on='val' fits the last layer on val, and there is none"):
        bise.refit(sub, train, on="val")
    with pytest.raises(BadInput, match="train has no sample of class 2"):
        bise.refit(sub, of_classes(40, 40))
    with pytest.raises(BadInput, match="takes a torch module"):
        bise.refit("net.pt", train)


def test_features_that_are_no_numbers(parts):
    _, _, train, _, _ = parts
    model = toy_model()
    with torch.no_grad():
        model[3].weight[3], model[3].bias[3] = 3e38, 3e38  # numbers themselves, whose sums are none
    with pytest.raises(BadInput, match="logits for samples 0, 1, 2, 3, 4 and 595 more are not finite"):
        bise.refit(model, train)


def test_a_fit_that_does_not_converge_is_refused(parts, monkeypatch):
    _, sub, train, _, _ = parts
    monkeypatch.setattr(logistic, "MOST_STEPS", 1)
    with pytest.raises(
        BadInput, match=r"didn't converge at L2 0.001: the gradient's norm is \d\.\de-\d\d after 1 step"
    ):
        bise.refit(sub, train, l2=[1e-3])


def test_scores_are_means_over_cells():
    """Cells of 3 and 1 samples, of which 2 and 0 are right: (2/3 + 0) / 2."""
    data = Labelled(TensorDataset(torch.zeros(4, 1)), y=[0, 0, 0, 1], b=[0, 0, 0, 1])
    logits = torch.tensor([[1.0, 0], [1, 0], [0, 1], [1, 0]])
    accuracy, entropy = Part(name="val", cells=labels(data), z=torch.zeros(4, 1), logits=logits).score(logits)
    right, wrong = math.log(1 + math.exp(-1)), math.log(1 + math.exp(1))
    assert accuracy == pytest.approx(1 / 3)
    assert entropy == pytest.approx(((2 * right + wrong) / 3 + wrong) / 2)
    assert F.cross_entropy(logits[:1], torch.tensor([0])).item() == pytest.approx(right)
