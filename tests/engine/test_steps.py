"""One update after another: which batches it sees, and on a GPU that recording them changes nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import bise
from bise import BiseWarning, ExtractConfig
from bise.data import Labelled
from bise.data.core.transforms import Transform
from bise.engine import steps as steps_module
from bise.engine.inputs import Inputs
from bise.engine.steps import Steps
from conftest import toy, toy_model, trained

GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"))


def running(device, *, graphs=True, transform=None, samples=13):
    """Steps whose state, a sum and a count, tells every sample and batch they have seen."""
    if transform is None:
        data = TensorDataset(torch.arange(float(samples)).view(-1, 1))
    else:
        x = torch.arange(samples * 48).remainder(251).to(torch.uint8).view(samples, 3, 4, 4)
        data = Labelled(TensorDataset(x), y=[0] * samples, b=[0] * samples, transform=transform)
    total = torch.zeros(2, device=device)
    inputs = Inputs(data, torch.device(device))

    def update(x, index):
        total.mul_(1.1).add_(torch.stack([x.flatten(1)[:, 0].sum(), torch.ones((), device=x.device)]))
        return torch.cat([total[:1], index[:1].float()])

    return Steps(update, inputs, 3, state=lambda: [total], graphs=graphs), total


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 8, 9, 12, 13])
def test_every_length_of_an_order_gives_the_same_recorded_or_not(device, length):
    order = torch.randperm(13, generator=torch.Generator().manual_seed(0))[:length]
    plain, expected = running("cpu", graphs=False)
    steps, total = running(device)
    for _ in range(3):
        a, b = plain.run(order), steps.run(order).cpu()
        assert torch.allclose(a, b)
    sizes = [len(chunk) for chunk in order.split(3)]
    if len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [4]
    assert a.shape == (len(sizes), 2)
    assert torch.allclose(total.cpu(), expected)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_orders_that_become_shorter_and_longer(device):
    plain, expected = running("cpu", graphs=False)
    steps, total = running(device)
    for length in (9, 6, 13, 2, 12):
        order = torch.arange(length)
        assert torch.allclose(plain.run(order), steps.run(order).cpu())
    assert torch.allclose(total.cpu(), expected)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_augmentation_is_drawn_alike(device):
    transform = Transform(crop=1, flip=True)
    plain, _ = running("cpu", graphs=False, transform=transform)
    steps, _ = running(device, transform=transform)
    a, b = (s.run(torch.arange(11), torch.Generator().manual_seed(4)) for s in (plain, steps))
    assert torch.allclose(a, b.cpu())
    assert not torch.allclose(a, running("cpu", transform=transform)[0].run(torch.arange(11)))


@pytest.mark.parametrize("device", [GPU])
@pytest.mark.parametrize("bn", ["frozen", "statistics", "all"])
def test_extraction_recorded_and_not_on_a_gpu(device, bn):
    data = toy()
    model = trained(toy_model(), data).to(device)
    config = {"upsilon": 2, "steps": 10, "head_epochs": 2, "tau_min": 0.3, "precision": "fp32", "bn": bn}
    one, other = (bise.extract(model, data, config=ExtractConfig(graphs=graphs, **config)) for graphs in (True, False))
    for name, scores in one.scores.items():
        assert torch.allclose(scores, other.scores[name], atol=1e-4)


@pytest.mark.parametrize("device", [GPU])
def test_dropout_differs_from_step_to_step_in_a_recorded_run(device):
    inputs = Inputs(TensorDataset(torch.ones(12, 64)), torch.device(device))
    dropout = nn.Dropout()
    steps = Steps(lambda x, index: dropout(x)[0], inputs, 3, state=lambda: [])
    seen = torch.cat([steps.run(torch.arange(12)) for _ in range(2)])
    assert len({tuple(row.tolist()) for row in seen}) == 8


@pytest.mark.parametrize("device", [GPU])
def test_runs_in_threads_on_a_gpu_are_the_runs_alone(device):
    data = toy()
    model = trained(toy_model(), data).to(device)
    config = {"upsilon": 1, "steps": 10, "head_epochs": 2, "tau_min": 0.3, "precision": "fp32"}

    def run(seed):
        with torch.cuda.stream(torch.cuda.Stream(device)):
            sub = bise.extract(model, data, config=ExtractConfig(seed=seed, **config))
            torch.cuda.current_stream(device).synchronize()
        return sub

    alone = [run(seed) for seed in range(3)]
    with ThreadPoolExecutor(3) as pool:
        beside = list(pool.map(run, range(3)))
    for a, b in zip(alone, beside, strict=True):
        assert all(torch.allclose(a.scores[n], b.scores[n], atol=1e-4) for n in a.scores)


@pytest.mark.parametrize("count", [40, 41, 47])
def test_a_step_that_cannot_be_recorded_runs_unrecorded(monkeypatch, count):
    """On a CPU, with a recording that fails: every batch is done once, with the draws that were made for it."""
    x = torch.arange(50, dtype=torch.uint8).view(50, 1, 1, 1).expand(50, 1, 4, 4).contiguous()
    data = Labelled(TensorDataset(x), y=torch.arange(50) % 2, transform=Transform(crop=1, flip=True))
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))[:count]

    def seen(recordable):
        batches = []
        inputs = Inputs(data, torch.device("cpu"))
        steps = Steps(
            lambda x, index: batches.append((x.clone(), index.clone())) or x.sum().view(1), inputs, 10, state=list
        )
        steps.recordable = recordable
        return steps.run(order, torch.Generator().manual_seed(1)), batches

    plain, batches = seen(False)

    def fails(self, length, augmented):
        raise steps_module._NotRecordable("this model can't be recorded as a CUDA graph (a reason)")

    monkeypatch.setattr(Steps, "_record", fails)
    with pytest.warns(BiseWarning, match="can't be recorded"):
        figures, again = seen(True)
    assert torch.equal(figures, plain)
    for one, other in zip(batches, again, strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
