"""Fast and plain paths agree: caching, recording, and a loop written out in plain PyTorch."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import bise
from bise import ExtractConfig
from bise.data import Labelled
from bise.extraction.bias_head import BiasHeads, with_one
from bise.extraction.objective import information_gradient, joint_table
from bise.network.architectures.small import MLP, SimpleConvNet
from bise.network.gates import slope
from conftest import toy, toy_model, trained


class Residual(nn.Module):
    """A stem before the first gate, in-place and functional parts, a branch beside the stream."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.act = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        self.up, self.branch, self.down = nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)
        self.end, self.fc = nn.ReLU(), nn.Linear(8, 3)

    def forward(self, x):
        h = self.act(self.norm(self.stem(x)))
        return self.fc(self.end(h + self.down(self.branch(self.up(h)))).mean((2, 3)))


def pictures(n=457, size=10):
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (n,), generator=generator)
    other = (y + torch.randint(1, 3, (n,), generator=generator)) % 3
    b = torch.where(torch.rand(n, generator=generator) < 0.9, y, other)
    x = torch.randn(n, 3, size, size, generator=generator) / 2
    x[torch.arange(n), 0, y] += 1
    x[torch.arange(n), 1, :, b] += 2
    return Labelled(TensorDataset(x), y=y, b=b)


MODELS = {
    "convolutions": lambda: SimpleConvNet(3, widths=(4, 6, 8), kernel=3),
    "MLP": lambda: MLP(300, 3, hidden=(20, 20)),
    "residual": Residual,
}


@pytest.fixture(scope="module")
def vanilla():
    data, found = pictures(), {}
    for name, make in MODELS.items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            found[name] = trained(make(), data, epochs=2)
    return data, found


def same(a, b):
    return all(torch.equal(a.scores[n], b.scores[n]) and torch.equal(a.masks[n], b.masks[n]) for n in a.scores)


@pytest.mark.parametrize("preset", [ExtractConfig.balanced, ExtractConfig.paper])
@pytest.mark.parametrize("name", MODELS)
def test_what_is_cached_and_what_is_computed_anew_learn_the_same_bit_for_bit(vanilla, name, preset):
    data, models = vanilla
    config = {"upsilon": 2, "head_epochs": 3, "tau_min": 0.1, "collapse": "prevent"}
    cached, anew = (bise.extract(models[name], data, config=preset(cache=cache, **config)) for cache in (True, False))
    assert any(score.any() for score in cached.scores.values())
    assert same(cached, anew)


@pytest.mark.parametrize("preset", [ExtractConfig.balanced, ExtractConfig.paper])
def test_recording_changes_nothing_on_a_cpu(vanilla, preset):
    data, models = vanilla
    config = {"upsilon": 1, "head_epochs": 2, "tau_min": 0.3, "collapse": "prevent"}
    runs = [bise.extract(models["convolutions"], data, config=preset(graphs=g, **config)) for g in (True, False)]
    assert same(*runs)


# Algorithm 1 in plain PyTorch


class Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, m, tau):
        ctx.save_for_backward(m)
        ctx.tau = tau
        return (m >= 0).to(m.dtype)

    @staticmethod
    def backward(ctx, grad):
        return grad * slope(ctx.saved_tensors[0], ctx.tau), None


def soft_information(p, b):
    joint = (F.one_hot(b, p.shape[1]).to(p.dtype).T @ p / len(b)).clamp_min(1e-15)
    independent = joint.sum(1, keepdim=True) @ joint.sum(0, keepdim=True)
    return (joint * (joint / independent).log()).sum() / math.log(p.shape[1])


class LinearHead:
    """The bias head as a layer under autograd."""

    def __init__(self, generator):
        self.layer = nn.Linear(16, 3)
        start = (torch.rand(3, 17, generator=generator) * 2 - 1) / math.sqrt(16)
        with torch.no_grad():
            self.layer.weight.copy_(start[:, :-1])
            self.layer.bias.copy_(start[:, -1])
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

    def step(self, z, b):
        self.optimizer.zero_grad()
        F.cross_entropy(self.layer(z.detach()), b).backward()
        self.optimizer.step()

    def towards_z(self, z, b, include):
        """The gradient of the information over the samples `include`, which the head itself never sees."""
        z = z.detach().requires_grad_()
        if not include.any():
            return torch.zeros_like(z)
        fixed = F.linear(z[include], self.layer.weight.detach(), self.layer.bias.detach())
        return torch.autograd.grad(soft_information(fixed.softmax(1), b[include]), z)[0]


class ClosedHead:
    """The same by closed forms, as the engine has them."""

    def __init__(self, generator):
        rates = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}
        self.heads = BiasHeads(16, (3,), **rates, generator=generator, device=torch.device("cpu"))

    def step(self, z, b):
        self.heads.step(with_one(z), self.heads.one_hots(b.unsqueeze(1)))

    def towards_z(self, z, b, include):
        p = self.heads.probabilities(with_one(z))[0]
        table, count = joint_table(p, b, include)
        return information_gradient(p, b, include, table, count) @ self.heads.parameters[:, :-1]


def plain(model, data, config, make_head):
    """Natural passes, weights 1/(Cρ) and (C−1)/(C(1−ρ)), batch by batch, nothing kept; {site: scores}."""
    x, y, b, classes = data.tensors[0], data.y, data.b, 3
    aligned = y == b
    rho = aligned.double().mean()
    weights = torch.where(aligned, 1 / (classes * rho), (classes - 1) / (classes * (1 - rho))).float()
    generator = torch.Generator().manual_seed(config.seed)
    masks = {name: nn.Parameter(torch.zeros(16)) for name in ("2", "4")}
    head = make_head(generator)
    optimizer = torch.optim.SGD(masks.values(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    def forward(batch, tau):
        h = x[batch]
        for name, layer in model.named_children():
            z, h = h, layer(h)
            if name in masks:
                h = h * Step.apply(masks[name], tau)
        return h, z

    for tau in config.temperatures():
        for _ in range(config.head_epochs):
            for batch in torch.randperm(len(y), generator=generator).split(100):
                head.step(forward(batch, tau)[1], b[batch])
        for _ in range(config.upsilon):
            for batch in torch.randperm(len(y), generator=generator).split(100):
                logits, z = forward(batch, tau)
                loss = (F.cross_entropy(logits, y[batch], reduction="none") * weights[batch]).mean()
                towards = head.towards_z(z, b[batch], ~aligned[batch])
                optimizer.zero_grad()
                torch.autograd.backward([loss, z], [torch.ones_like(loss), towards])
                optimizer.step()
                head.step(z, b[batch])
    return {name: mask.detach() for name, mask in masks.items()}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("make_head", [LinearHead, ClosedHead])
def test_the_engine_learns_what_a_plain_loop_learns(seed, make_head):
    """Bit for bit with the same arithmetic for head and information; autograd's rounds otherwise in the last bit."""
    data = toy(rho=0.8)
    model = trained(toy_model(), data)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    config = ExtractConfig.paper(cache=False, early_stop=False, upsilon=5, head_epochs=3, tau_min=0.05, seed=seed)
    expected = plain(model, data, config, make_head)
    sub = bise.extract(model, data, config=config)
    assert sub.record["stopped"] == "the schedule's end"
    for name, scores in expected.items():
        assert torch.allclose(sub.scores[name], scores, atol=1e-6 if make_head is LinearHead else 0, rtol=0)
        assert torch.equal(sub.masks[name], scores >= 0)
    assert sub.units[0] < sub.units[1]


# number formats


@pytest.mark.parametrize("steps", [2, 20])  # with few, the part before the first gate isn't kept, so x comes as fp32
@pytest.mark.parametrize("name", ["residual", "convolutions"])
def test_bf16_on_a_cpu_is_the_same_cached_and_anew(vanilla, name, steps):
    data, models = vanilla
    config = {"upsilon": 1, "steps": steps, "head_epochs": 2, "tau_min": 0.3, "precision": "bf16"}
    runs = [bise.extract(models[name], data, config=ExtractConfig(cache=c, **config)) for c in (True, False)]
    assert same(*runs)
    assert runs[0].record["precision"] == "bf16"
    assert all(scores.dtype == torch.float32 for scores in runs[0].scores.values())


@pytest.mark.filterwarnings("ignore:train and val are the very same data")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_model_in_another_format_keeps_its_own(dtype):
    data = toy()
    model = trained(toy_model(), data).to(dtype)
    mine = Labelled(TensorDataset(data.tensors[0].to(dtype)), y=data.y, b=data.b)
    config = ExtractConfig(upsilon=1, steps=10, head_epochs=2, tau_min=0.2, precision="bf16")
    sub = bise.extract(model, mine, val=mine, config=config)
    assert sub.record["precision"] == "own"
    assert sub.units[0] < sub.units[1]
    with torch.no_grad():
        assert sub(mine.tensors[0]).dtype == dtype
