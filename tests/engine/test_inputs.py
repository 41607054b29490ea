"""Batches: augmentation by hand and by torchvision, data in memory and streamed, orders, runs side by side."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

from bise import BadInput, TrainConfig
from bise.data import Labelled, labels
from bise.data.core.sampling import Sampler
from bise.data.core.transforms import Transform
from bise.engine.inputs import Inputs
from bise.engine.precision import repeatable_convolutions
from bise.engine.training import fit
from bise.methods.finetuning import owning
from bise.network.architectures.vision import torchvision
from conftest import Stream, toy, toy_model

CPU = torch.device("cpu")


def bytes_of(n=12, size=5, seed=0):
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


# augmentation


def test_crops_and_mirrors_by_hand():
    x = torch.arange(1, 5, dtype=torch.uint8).view(1, 1, 2, 2).expand(4, 1, 2, 2) * 51
    transform = Transform(crop=1, flip=True)
    # three offsets for a crop of 1: [0, ⅓) is 0, [⅓, ⅔) is 1, the middle, [⅔, 1) is 2; below ½ it is mirrored
    draws = torch.tensor([[0.4, 0.5, 0.7], [0.4, 0.5, 0.2], [0.0, 0.99, 0.9], [0.9, 0.0, 0.1]])
    found = (transform(x, draws) * 5).round().int()[:, 0]
    expected = [[[1, 2], [3, 4]], [[2, 1], [4, 3]], [[0, 0], [2, 0]], [[3, 0], [0, 0]]]
    assert found.tolist() == expected


def test_crops_and_mirrors_as_torchvision_does_them():
    torchvision()
    from torchvision.transforms import functional

    x, transform = bytes_of(40), Transform(crop=2, flip=True)
    draws = transform.draw(40, torch.Generator().manual_seed(1))
    found = transform(x, draws)
    for picture, (top, left, mirror), got in zip(x, draws, found, strict=True):
        padded = functional.pad(picture, [2, 2, 2, 2])
        expected = functional.crop(padded, int(top * 5), int(left * 5), 5, 5)
        expected = functional.hflip(expected) if mirror < 0.5 else expected
        assert torch.allclose(got, expected / 255, atol=1e-7)


def test_every_offset_and_both_sides_are_drawn_about_as_often():
    draws = Transform(crop=1, flip=True).draw(30_000, torch.Generator().manual_seed(0))
    counts = torch.bincount((draws[:, 0] * 3).long() * 6 + (draws[:, 1] * 3).long() * 2 + (draws[:, 2] < 0.5).long())
    assert len(counts) == 18
    assert (counts / (30_000 / 18) - 1).abs().max() < 0.15


def test_channels_are_normalised_each_by_its_own():
    x = bytes_of(3)
    found = Transform(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))(x)
    for c, (mean, std) in enumerate(((0.1, 0.5), (0.2, 0.6), (0.3, 0.7))):
        assert torch.allclose(found[:, c], (x[:, c] / 255 - mean) / std, atol=1e-6)
    assert Transform().draw(3, torch.Generator()) is None
    assert not Transform().augments


@pytest.mark.parametrize("size", [1, 3, 5, 12])
def test_draws_belong_to_samples_not_to_batches(size):
    data = Labelled(TensorDataset(bytes_of()), y=[0, 1] * 6, b=[0, 1] * 6, transform=Transform(crop=1, flip=True))
    order = torch.randperm(12, generator=torch.Generator().manual_seed(2))
    inputs = Inputs(data, CPU)
    whole = next(inputs.batches(order, 12, torch.Generator().manual_seed(3)))[0]
    parts = [x for x, _ in inputs.batches(order, size, torch.Generator().manual_seed(3))]
    assert torch.equal(torch.cat(parts), whole)
    assert not torch.equal(whole, next(inputs.batches(order, 12))[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_data_in_memory_and_streamed_are_augmented_alike(workers):
    x, transform = bytes_of(), Transform(mean=(0.5,), std=(0.2,), crop=1, flip=True)
    held, streamed = (
        Labelled(inner, y=[0, 1] * 6, b=[0, 1] * 6, transform=transform) for inner in (TensorDataset(x), Stream(x))
    )
    order = torch.tensor([3, 3, 0, 11, 7])
    batches = [
        [(x, i) for x, i in Inputs(data, CPU, workers=workers).batches(order, 2, torch.Generator().manual_seed(0))]
        for data in (held, streamed)
    ]
    assert [len(x) for x, _ in batches[0]] == [2, 3], "a last sample alone joins the batch before it"
    for (a, i), (b, j) in zip(*batches, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(i, j)


# streaming


class Noisy(Stream):
    def __getitem__(self, i):
        return torch.rand(2)


def test_a_data_set_that_augments_in_workers_does_so_anew_in_every_epoch():
    inputs, order = Inputs(Noisy(torch.zeros(8, 2)), CPU, workers=1), torch.arange(8)
    first, second = (torch.cat([x for x, _ in inputs.batches(order, 4)]) for _ in range(2))
    assert not torch.equal(first, second)
    again = Inputs(Noisy(torch.zeros(8, 2)), CPU, workers=1)
    assert torch.equal(torch.cat([x for x, _ in again.batches(order, 4)]), first)


class Broken(Stream):
    def __getitem__(self, i):
        if i == 5:
            raise BadInput("sample 5: no such picture; put it back")
        return self.data[i]


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_worker_refuses_arrives_as_its_sentence(workers):
    data = Labelled(Broken(toy(12).tensors[0]), y=toy(12).y, b=toy(12).b)
    with pytest.raises(BadInput, match=r"^sample 5: no such picture; put it back$"):
        list(Inputs(data, CPU, workers=workers).batches(torch.arange(12), 4))
    with pytest.raises(BadInput, match=r"^sample 5: no such picture"):
        fit(owning(toy_model()), Inputs(data, CPU, workers=workers), labels(data), TrainConfig(epochs=1))


def test_a_bad_number_in_a_stream_names_its_sample():
    x = torch.zeros(6, 3)
    x[4, 1] = float("nan")
    with pytest.raises(BadInput, match="the input of sample 4 holds NaN"):
        list(Inputs(Stream(x), CPU).batches(torch.tensor([0, 1, 4, 2]), 2))


# orders


def test_natural_orders_are_passes_over_the_data():
    sampler, generator = Sampler(7), torch.Generator().manual_seed(0)
    assert sorted(sampler.draw(None, 3, generator).tolist()) == list(range(7))
    order = sampler.draw(6, 3, generator)
    assert len(order) == 18
    assert sorted(order[:7].tolist()) == sorted(order[7:14].tolist()) == list(range(7))
    assert len(set(order[14:].tolist())) == 4


def test_even_orders_deal_every_stratum_before_any_comes_again():
    strata = torch.tensor([4] * 90 + [9] * 9 + [2])
    order = Sampler(100, strata).draw(10, 30, torch.Generator().manual_seed(0))
    for deal in strata[order].split(3):
        assert sorted(deal.tolist()) == [2, 4, 9]
    drawn = torch.bincount(order, minlength=100)
    assert drawn[99] == 100
    assert (drawn[90:99] > 0).all()
    assert len(Sampler(100, strata).draw(None, 30, torch.Generator())) == 100


# convolutions


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("trying", [False, True])
def test_convolutions_repeat_themselves_unless_the_caller_lets_cudnn_try(trying, always):
    cudnn = torch.backends.cudnn
    before, cudnn.benchmark = cudnn.benchmark, trying
    settings = cudnn.benchmark, cudnn.deterministic

    def fail():
        with repeatable_convolutions(always=always):
            assert (cudnn.benchmark, cudnn.deterministic) == (settings if trying and not always else (False, True))
            raise KeyError

    try:
        with pytest.raises(KeyError):
            fail()
        assert (cudnn.benchmark, cudnn.deterministic) == settings
    finally:
        cudnn.benchmark = before
