"""What frozen weights make needless: which modules are skipped, which biases are merged, and that all comes back."""

from __future__ import annotations

import copy
from types import MethodType

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import bise
from bise import ExtractConfig
from bise.data import Labelled
from bise.engine.frozen import behind, convolutions_and_norms, frozen_part, prefix, shifted, skipping
from bise.engine.inputs import Inputs
from bise.network.architectures.vision import torchvision
from bise.network.placement import place
from conftest import toy, toy_model, trained
from real_models import images, make, random_statistics

CPU = torch.device("cpu")
QUICK = {"upsilon": 1, "steps": 5, "head_epochs": 2, "head_steps": 5, "batch_size": 60, "tau_min": 0.3}


def gated(model, example, **options):
    return bise.Subnetwork(model.eval(), place(model, example, **options).sites)


def names(sub, example):
    paths = {module: path for path, module in sub.network.named_modules()}
    return [paths[module] for module in prefix(sub, example)]


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().eval()


def vgg():
    from torchvision.models import vgg11_bn

    torchvision()
    return vgg11_bn(num_classes=10)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # a gate sits on the ReLU's output, so the ReLU itself lies before it
        ("SimpleConvNet", ["blocks.0.0", "blocks.0.1", "blocks.0.2"]),
        ("MLP", ["hidden.0.0", "hidden.0.1"]),
        # the block's first convolution isn't passed by the shortcut
        ("torchvision resnet18", ["conv1", "bn1", "relu", "maxpool"]),
        ("small BERT", []),
    ],
)
def test_the_prefix_of_real_models(name, expected):
    model, example = make(name)
    assert names(gated(model, example), example) == expected


def test_the_prefix_of_a_vgg():
    torchvision()
    model, example = seeded(vgg), images(32)
    found = names(gated(model, example), example)
    assert found == ["features.0", "features.1", "features.2"]


def test_in_place_relus_and_poolings_are_passed_one_by_one():
    def half(width):
        return [nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(2)]

    body = [*half(3), *half(4), nn.Flatten(), nn.Dropout(), nn.Linear(16, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)]
    model, example = random_statistics(seeded(lambda: nn.Sequential(*body))), images(8, 4)
    sub = bise.Subnetwork(model, place(model, example, patterns="11").sites)
    assert names(sub, example) == [str(i) for i in range(12)]


class Odd(nn.Module):
    """A convolution, then whatever `kind` says, then gated layers."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.mix, self.act = nn.Conv2d(6 if kind == "concatenated" else 3, 8, 3), nn.ReLU(inplace=True)
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        h = x.clamp(-1.5, 1.5) if self.kind == "clamped before" else x
        h = self.conv(h)
        if self.kind == "run twice":
            h = self.conv(h)
        if self.kind == "function between":
            h = torch.tanh(h)
        h = self.norm(h)
        if self.kind == "concatenated":
            h = torch.cat([h, x], 1)
        if self.kind == "faint shortcut":
            h = h + 1e-5 * x
        if self.kind == "mean of x":
            h = h * x.mean((1, 2, 3), keepdim=True).sigmoid()
        return self.fc(self.act(self.mix(h)).mean((2, 3)))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("plain", ["conv", "norm", "mix", "act"]),
        ("run twice", []),
        ("function between", ["conv"]),
        ("clamped before", []),
        ("concatenated", []),
        ("faint shortcut", []),
        ("mean of x", []),
    ],
)
def test_a_model_that_looks_at_x_elsewhere_is_not_cut(kind, expected):
    model = random_statistics(seeded(lambda: Odd(kind)))
    example = images(8, 4) / 3  # within the clamp, so that only values far from it tell
    found = names(gated(model, example), example)
    assert found == expected


@pytest.mark.filterwarnings("ignore:train and val are the very same data")
@pytest.mark.filterwarnings("ignore:no mask that tells classes apart")
@pytest.mark.parametrize("kind", ["plain", "function between", "concatenated", "clamped before"])
def test_results_are_the_same_with_the_prefix_and_without(kind):
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(300) % 3
    b = torch.where(torch.rand(300, generator=generator) < 0.8, y, (y + 1 + y % 2) % 3)
    data = Labelled(TensorDataset(torch.randn(300, 3, 8, 8, generator=generator)), y=y, b=b)
    model = random_statistics(seeded(lambda: Odd(kind)))
    one, other = (bise.extract(model, data, val=data, config=ExtractConfig(cache=c, **QUICK)) for c in (True, False))
    assert all(torch.equal(one.scores[n], other.scores[n]) for n in one.scores)
    assert one.record["history"] == other.record["history"]


def test_the_network_behind_the_cut_is_the_network():
    model, example = make("SimpleConvNet")
    sub = gated(model, example)
    data = Inputs(TensorDataset(images(28, 37)), CPU)
    with torch.no_grad():
        expected = sub(images(28, 37))
        modules = prefix(sub, example)
        passed = behind(sub, modules, data, "fp32")
        with skipping(modules):
            found = torch.cat([sub(x) for x, _ in passed.batches(torch.arange(37), 10)])
        assert torch.equal(found, torch.cat([sub(x) for x in images(28, 37).split(10)]))
        assert torch.allclose(found, expected, atol=1e-5)


def forwards(sub):
    return [path for path, module in sub.network.named_modules() if "forward" in vars(module)]


@pytest.mark.parametrize("fails", [False, True])
def test_the_twin_is_restored_even_when_something_raises(fails):
    model, example = make("SimpleConvNet")
    sub = gated(model, example)
    before = copy.deepcopy(sub.state_dict())
    held = [Inputs(TensorDataset(images(28, 20)), CPU)]
    try:
        with frozen_part(sub, held, 1000, 1 << 30, "fp32") as passed:
            assert passed is not held
            assert forwards(sub)
            if fails:
                raise KeyError
    except KeyError:
        assert fails
    assert not forwards(sub)
    assert all(not m._forward_hooks for m in sub.network.modules() if not isinstance(m, nn.ReLU))
    assert all(torch.equal(before[n], t) for n, t in sub.state_dict().items())


def test_a_forward_that_another_library_put_there_comes_back():
    data = toy()
    model = trained(toy_model(), data)
    model[0].forward = MethodType(lambda self, x: 2 * F.linear(x, self.weight, self.bias), model[0])
    one, other = (bise.extract(model, data, config=ExtractConfig(cache=c, **QUICK)) for c in (True, False))
    x = data.tensors[0]
    assert all(torch.equal(one.scores[n], other.scores[n]) for n in one.scores)
    with torch.no_grad():
        assert torch.equal(one.at(0)(x), model(x))


@pytest.mark.parametrize(("draws", "budget"), [(39, 1 << 30), (1000, 1000)])
def test_nothing_is_kept_where_it_would_not_pay_or_not_fit(draws, budget):
    model, example = make("SimpleConvNet")
    held = [Inputs(TensorDataset(images(28, 20)), CPU)]
    with frozen_part(gated(model, example), held, draws, budget, "fp32") as passed:
        assert passed is held


# biases in front of BatchNorm


class Biased(nn.Module):
    def __init__(self, elsewhere=False):
        super().__init__()
        self.one, self.norm1, self.act1 = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
        self.two, self.norm2, self.act2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()
        self.three, self.fc = nn.Conv2d(4, 4, 1), nn.Linear(4, 3)
        self.elsewhere = elsewhere

    def forward(self, x):
        h = self.act1(self.norm1(self.one(x)))
        g = self.two(h)
        out = self.act2(self.norm2(g))
        return self.fc(self.three(out + g if self.elsewhere else out).mean((2, 3)))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_biases_are_merged_only_where_nothing_else_reads_the_convolution(elsewhere):
    model, example = random_statistics(seeded(lambda: Biased(elsewhere))), images(8)
    sub = gated(model, example)
    paths = {module: path for path, module in sub.network.named_modules()}
    pairs = convolutions_and_norms(sub, example)
    assert [(paths[c], paths[n]) for c, n in pairs] == [("one", "norm1"), ("two", "norm2")][: 1 if elsewhere else 2]
    before = {name: (t.data_ptr(), t.clone()) for name, t in sub.state_dict().items()}
    with torch.no_grad():
        expected = sub(example)
        with shifted(pairs):
            assert all(convolution.bias is None for convolution, _ in pairs)
            assert torch.allclose(sub(example), expected, atol=1e-5)
        assert torch.equal(sub(example), expected)
    after = {name: (t.data_ptr(), t) for name, t in sub.state_dict().items()}
    assert list(after) == list(before)
    assert all(after[n][0] == before[n][0] and torch.equal(after[n][1], before[n][1]) for n in before)


@pytest.mark.parametrize("change", ["train", "statistics", "twice", "parametrized"])
def test_which_biases_stay(change):
    model, example = random_statistics(seeded(Biased)), images(8)
    if change == "statistics":
        model.norm1 = nn.BatchNorm2d(4, track_running_stats=False).eval()
    if change == "parametrized":
        nn.utils.parametrize.register_parametrization(model.one, "bias", nn.Identity())
    sub = gated(model, example)
    if change == "train":
        sub.network.norm1.train()
    if change == "twice":
        sub.network.two = sub.network.one = nn.Conv2d(3, 3, 1)
        sub.network.norm1, sub.network.norm2, sub.network.three = (
            nn.BatchNorm2d(3),
            nn.BatchNorm2d(3),
            nn.Conv2d(3, 4, 1),
        )
        sub.gates = nn.ModuleList()
        for act in (sub.network.act1, sub.network.act2):
            act._forward_hooks.clear()
        sub.network.eval()
    pairs = convolutions_and_norms(sub, example)
    assert sub.network.one not in [convolution for convolution, _ in pairs]
